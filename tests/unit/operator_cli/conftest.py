"""Runs `enlist` inside the test, against the Platform in memory, with a home of its own."""

import io
import sys
import time
from pathlib import Path

import httpx
import pytest

from operator_cli import main
from tests.support import cli_runs, standin


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; the time zone is UTC, so that local times can be claimed."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "ENLIST_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return tmp_path


@pytest.fixture
def platform(home: Path, monkeypatch: pytest.MonkeyPatch) -> standin.StandIn:
    """The Platform in memory, which ENLIST_PLATFORM names."""
    del home
    stand_in = standin.StandIn()
    monkeypatch.setenv("ENLIST_PLATFORM", "https://127.0.0.1:8440")
    monkeypatch.setattr(
        httpx, "HTTPTransport", lambda **_arguments: httpx.MockTransport(stand_in.answer)
    )
    monkeypatch.setattr("enlist.wiring.context_now", lambda _target: None)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return stand_in


@pytest.fixture
def enlist(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> cli_runs.Enlist:
    """Runs one command line and returns its exit code and what it printed."""
    del home

    def run(*arguments: str, stdin: str = "") -> cli_runs.Done:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        monkeypatch.setattr(sys, "stdin", stream)
        capsys.readouterr()
        code = main.run(arguments)
        captured = capsys.readouterr()
        return cli_runs.Done(code=code, out=captured.out, err=captured.err)

    return run
