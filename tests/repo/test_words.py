"""What no file of this project may name: machines it was written on, registries, ways of work.

The words are put together here from pieces, so that this file does not find itself.
"""

import re

import pytest

from tests.repo import project


def _pattern(*pieces: str) -> re.Pattern[str]:
    return re.compile("".join(pieces), re.IGNORECASE)


FORBIDDEN = {
    "a folder of the machine it was written on": _pattern(r"(?<![\w.~])/wo", r"rk/"),
    "a home folder": _pattern(r"/(root|home/[a-z]+)/\.(py", r"env|cargo|config/pip)"),
    "a version manager's folder": _pattern(r"\.py", r"env/"),
    "a Python registry's host": _pattern(r"\b(files\.pythonhos", r"ted|(test\.)?py", r"pi)\.org\b"),
    "a JavaScript registry's host": _pattern(r"registry\.np", r"mjs\.(org|com)"),
    "a distribution's mirror": _pattern(
        r"\b(deb\.deb", r"ian\.org|archive\.ubu", r"ntu\.com|security\.deb", r"ian\.org)"
    ),
    "a package index option": _pattern(r"^\s*--(extra-)?in", r"dex-url|^\s*--find-li", r"nks\b"),
    "a writing tool": _pattern(
        r"\b(cla",
        r"ude|anth",
        r"ropic|chat",
        r"gpt|open",
        r"ai|copi",
        r"lot|co-authored",
        r"-by)\b",
    ),
    "a private key": _pattern(r"-----BEGIN ([A-Z]+ )?PRI", r"VATE KEY-----\n[A-Za-z0-9+/]{40}"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    pattern = FORBIDDEN[what]
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in project.files()
        for number, line in enumerate(project.text(name).split("\n"), start=1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_path_names(what: str) -> None:
    assert [name for name in project.files() if FORBIDDEN[what].search("/" + name)] == []


def test_the_patterns_find_what_they_are_for() -> None:
    samples = {
        "a folder of the machine it was written on": "cd /wo" + "rk/main",
        "a version manager's folder": "/opt/.py" + "env/shims",
        "a Python registry's host": "https://py" + "pi.org/simple",
        "a package index option": "--ind" + "ex-url x",
    }
    assert all(FORBIDDEN[what].search(sample) for what, sample in samples.items())
