"""The lock files: everything pinned, everything hashed, nothing said of where it comes from."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.repo import project

LOCKS = ("base", "platform", "dev")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)( ; [^\\]+)? \\$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _lines(lock: str) -> list[str]:
    return project.text(f"requirements/{lock}.lock").splitlines()


def _pins(lock: str) -> dict[str, str]:
    found = (_PIN.match(line) for line in _lines(lock))
    return {_plain(match[1]): match[2] for match in found if match}


def _project_file() -> dict[str, Any]:
    return tomllib.loads(project.text("pyproject.toml"))


def _asked_for(extra: str | None) -> Iterator[str]:
    metadata = _project_file()["project"]
    wanted = list(metadata["dependencies"])
    if extra:
        wanted += metadata["optional-dependencies"][extra]
    for line in wanted:
        match = _NAME.match(line)
        assert match
        if match[0] == metadata["name"]:
            yield from _asked_for(line.partition("[")[2].rstrip("]"))
        else:
            yield _plain(match[0])


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_a_pin_a_hash_or_a_comment(lock: str) -> None:
    odd = [
        line
        for line in _lines(lock)
        if line
        and not line.lstrip().startswith("#")
        and not (_PIN.match(line) or _HASH.match(line))
    ]
    assert odd == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    lines = _lines(lock)
    bare = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if _PIN.match(line) and not _HASH.match(after)
    ]
    assert bare == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_path(lock: str) -> None:
    assert not re.search(
        r"://|--(extra-)?index|--find|--trusted|(?m:^\s*# .*\s/)", "\n".join(_lines(lock))
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_all_that_the_project_asks_for(lock: str) -> None:
    asked = set(_asked_for(None if lock == "base" else lock))
    build = {_plain(_NAME.match(line)[0]) for line in _project_file()["build-system"]["requires"]}  # type: ignore[index]
    assert (asked | build) - _pins(lock).keys() == set()


@pytest.mark.parametrize("lock", ["base", "platform"])
def test_the_smaller_locks_agree_with_the_largest(lock: str) -> None:
    assert _pins(lock).items() - _pins("dev").items() == set()
