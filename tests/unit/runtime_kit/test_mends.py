"""A mend runs the very command that a person would run, as the account that owns the files."""

import os
import subprocess
from typing import Any

import pytest

from runtime_kit import mends


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was started; each ends with the exit code that the test appended, else well."""
    calls: list[dict[str, Any]] = []

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        calls.append({"command": command, **more})
        code = 75 if "fails" in command else 0
        return subprocess.CompletedProcess(command, code, stdout="", stderr="Error: it is away")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_as_oneself_nothing_is_changed_of_who_runs(ran: list[dict[str, Any]]) -> None:
    mends.own_command("operator_cli", ["worker", "x"], uid=os.geteuid(), gid=os.getegid())()
    assert ran[0]["command"][-4:] == ["-m", "operator_cli", "worker", "x"]
    assert "user" not in ran[0]


def test_another_accounts_files_are_written_as_that_account(ran: list[dict[str, Any]]) -> None:
    mends.own_command("operator_cli", ["worker", "x"], uid=4711, gid=4712)()
    assert (ran[0]["user"], ran[0]["group"], ran[0]["extra_groups"]) == (4711, 4712, [])


def test_a_command_that_fails_says_what_it_said(ran: list[dict[str, Any]]) -> None:
    with pytest.raises(mends.CannotMend, match="exit code 75: Error: it is away"):
        mends.own_command("operator_cli", ["fails"], uid=os.geteuid(), gid=os.getegid())()
    assert len(ran) == 1
