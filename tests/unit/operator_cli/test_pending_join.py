"""What is kept of a join that was asked, and for how long."""

import io
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from operator_cli import main, pending_join
from wire_protocol import problems

ASKED: dict[str, Any] = {
    "join_token": "enj_secret",
    "platform_url": "https://platform.example:8444",
    "addresses": ["192.0.2.10"],
    "labels": ["rack=4"],
    "port": 8443,
}


class Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(**what: Any) -> None:
        monkeypatch.setattr(sys, "stdin", Stdin(pending_join.document(**what)))

    return put


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[list[str]]]:
    """The join ends with that code; gives what it was called with, secrets opened."""

    def with_code(code: int) -> list[list[str]]:
        calls: list[list[str]] = []

        def run(arguments: Sequence[str]) -> int:
            calls.append(
                [
                    f"<{pathlib.Path(word).read_text()}>" if word.startswith("/proc/") else word
                    for word in arguments
                ]
            )
            return code

        monkeypatch.setattr(main, "run", run)
        return calls

    return with_code


def test_what_was_asked_reaches_the_join_and_the_token_is_no_argument(
    tmp_path: pathlib.Path,
    asked: Callable[..., None],
    ends: Callable[[int], list[list[str]]],
) -> None:
    asked(**ASKED)
    calls = ends(0)
    code = pending_join.main(["--data-dir", str(tmp_path), "--stdin", "--output", "json"])
    assert code == 0
    assert calls == [
        [
            *("--output", "json", "--data-dir", str(tmp_path), "worker", "join"),
            *("--join-token-file", "<enj_secret>"),
            *("--platform-url", "https://platform.example:8444"),
            *("--address", "192.0.2.10", "--label", "rack=4", "--port", "8443"),
        ]
    ]


@pytest.mark.parametrize("code", sorted({*problems.Exit, 130}))
def test_it_stays_pending_only_where_trying_again_may_help(
    tmp_path: pathlib.Path,
    asked: Callable[..., None],
    ends: Callable[[int], list[list[str]]],
    code: int,
) -> None:
    asked(**ASKED)
    ends(code)
    assert pending_join.main(["--data-dir", str(tmp_path), "--stdin"]) == code
    path = tmp_path / pending_join.FILE
    assert path.exists() == (code in (problems.Exit.TEMPORARY, problems.Exit.OUR_FAULT))
    if path.exists():
        assert path.stat().st_mode & 0o7777 == 0o600
        calls = ends(0)
        assert pending_join.main(["--data-dir", str(tmp_path)]) == 0
        assert "<enj_secret>" in calls[0]
        assert not path.exists()


def test_without_a_token_or_with_check_nothing_is_kept(
    tmp_path: pathlib.Path,
    asked: Callable[..., None],
    ends: Callable[[int], list[list[str]]],
) -> None:
    ends(problems.Exit.TEMPORARY)
    asked(labels=["rack=4"])
    pending_join.main(["--data-dir", str(tmp_path), "--stdin"])
    asked(**ASKED)
    pending_join.main(["--data-dir", str(tmp_path), "--stdin", "--check"])
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_is_pending_there_is_nothing_to_do(tmp_path: pathlib.Path) -> None:
    assert pending_join.main(["--data-dir", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", json.dumps({"file_version": 2}).encode(), b'{"file_version":1,"port":-1}'],
)
def test_a_file_of_another_form_ends_it(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / pending_join.FILE
    path.write_bytes(content)
    path.chmod(0o600)
    assert pending_join.main(["--data-dir", str(tmp_path)]) == problems.Exit.INVALID


def test_a_file_that_others_may_read_is_not_used(tmp_path: pathlib.Path) -> None:
    path = tmp_path / pending_join.FILE
    path.write_bytes(pending_join.document(**ASKED))
    path.chmod(0o644)
    assert pending_join.main(["--data-dir", str(tmp_path)]) == problems.Exit.INVALID
