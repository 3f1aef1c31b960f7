"""The Agent's program from outside: whatever happens in it, a sentence and an exit code."""

import pathlib
from typing import Any

import pytest

from worker_agent import __main__ as program
from worker_agent.app import agent, logs

SECRET = "hunter2"


async def _unforeseen(*_arguments: object, **_more: Any) -> None:
    raise LookupError(SECRET)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    monkeypatch.setattr(agent, "run", _unforeseen)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_nobody_foresaw_is_one_sentence_with_a_report_id_and_ends_with_one(
    capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert program.main(["--data-dir", str(tmp_path / "worker")]) == 1
    told = capfd.readouterr().err
    (report,) = (tmp_path / "state" / "enlist" / "reports").iterdir()
    assert told.startswith(f"Error: A fault of ours (LookupError), report {report.stem}.")
    assert told.count("\n") == 1
    assert SECRET not in told + report.read_text()


def test_with_debug_the_traceback_is_told_as_well(
    capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert program.main(["--debug", "--data-dir", str(tmp_path / "worker")]) == 1
    assert "Traceback (most recent call last)" in capfd.readouterr().err


def test_a_file_for_a_data_directory_is_misuse(
    capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "hostname").touch()
    assert program.main(["--data-dir", str(tmp_path / "hostname")]) == 2
    assert "is no folder" in capfd.readouterr().err
