"""A mend runs the very command that a person would run, as the account that owns the files."""

import os
import pwd
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


def test_a_mend_inherits_neither_the_callers_environment_nor_its_terminal(
    ran: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "PATH": "/usr/bin",
        "LC_ALL": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "no_proxy": "10.0.0.1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SECRET_ACCESS_KEY", "ENLIST_TOKEN", "LD_PRELOAD", "SSH_AUTH_SOCK", "HOME"):
        monkeypatch.setenv(name, "the caller's")
    mends.own_command("operator_cli", ["worker", "x"], uid=0, gid=0)()
    mends.own_command("operator_cli", ["worker", "x"], uid=4_000_004, gid=0)()
    of_root, of_nobody = (one["env"] for one in ran)
    assert of_root.items() >= given.items()
    assert of_root["HOME"] == pwd.getpwuid(0).pw_dir
    assert "HOME" not in of_nobody
    allowed = {*given, "LANG", "LANGUAGE", "TZ", "HOME", "PYTHONPATH"}
    for one in ran:
        odd = {
            name
            for name in one["env"].keys() - allowed
            if not name.startswith("LC_") and not name.lower().endswith("_proxy")
        }
        assert odd == set()
        assert "the caller's" not in one["env"].values()
        assert one["stdin"] == subprocess.DEVNULL
        assert one["start_new_session"] is True
