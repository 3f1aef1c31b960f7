"""`scripts/up` as a newcomer uses it, in a folder of its own with this environment's packages."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import httpx
import pytest

from tests.support import real_platform

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = pathlib.Path(sys.prefix)
SECONDS = 150

# Two at once would take each other's ports between the look and the bind.
pytestmark = [pytest.mark.xdist_group("up"), pytest.mark.timeout(300)]


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A checkout's worth of what the script reads; whatever it left running is stopped.

    In a folder with a short name: the Platform's Unix socket is in it, whose path has a limit.
    """
    # Otherwise the script would install its own folder into the environment of this very test.
    made_for = '. scripts/lib.sh && test "$(cat "$VENV_STAMP")" = "dev $(venv_fingerprint dev)"'
    if subprocess.run(["bash", "-c", made_for], cwd=ROOT, check=False, timeout=30).returncode:
        pytest.skip("this environment was not made by ./scripts/test, or for other packages")
    with tempfile.TemporaryDirectory(prefix="up-", dir="/tmp") as place:
        home = pathlib.Path(place) / "checkout"
        for name in ("scripts", "requirements"):
            shutil.copytree(ROOT / name, home / name)
        shutil.copy(ROOT / "pyproject.toml", home)
        (home / ".venv").symlink_to(VENV)
        try:
            yield home
        finally:
            up(home, "--down")


def up(home: pathlib.Path, *arguments: str) -> str:
    """Runs the script to its end; it must succeed. Returns what it printed, both streams."""
    done = subprocess.run(
        [home / "scripts" / "up", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=SECONDS,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def said(home: pathlib.Path) -> dict[str, object]:
    """What the Platform said when it listened."""
    document = json.loads((home / ".enlist-up" / "serve.out").read_text())
    assert isinstance(document, dict)
    return document


def ready(told: str) -> set[str]:
    """The nodes that the table shows as ready."""
    rows = [line.split() for line in told.splitlines()]
    return {row[0] for row in rows if len(row) > 1 and row[1] == "ready"}


def connectivity(home: pathlib.Path) -> dict[str, str]:
    """How each node is connected, by node id."""
    shown = real_platform.run_enlist(
        *("--data-dir", str(home / ".enlist"), "nodes", "list", "-o", "json")
    )
    return {node["node_id"]: node["connectivity"] for node in json.loads(shown)["nodes"]}


def running(home: pathlib.Path) -> list[int]:
    """The processes whose command line or folder is this checkout."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "cwd").resolve() == home and (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_up_comes_up_goes_down_and_comes_up_again_over_what_is_there(folder: pathlib.Path) -> None:
    first = up(folder, "--detach")
    assert ready(first) == {"worker-1", "worker-2"}
    assert str(said(folder)["gateway"]) in first
    assert str(said(folder)["api"]) in first
    assert "ent_" not in first
    assert "enj_" not in first
    assert "Running already" in up(folder, "--detach")

    up(folder, "--down")
    assert running(folder) == []

    again = up(folder, "--detach")
    assert "This machine is worker-1 already" in again
    assert "This machine is worker-2 already" in again
    assert ready(again) == {"worker-1", "worker-2"}
    assert connectivity(folder) == {"worker-1": "listen", "worker-2": "dial-out"}


def test_up_takes_other_ports_where_the_usual_ones_are_busy(folder: pathlib.Path) -> None:
    held = []
    for port in (8440, 8443, 8444, 8445):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # somebody else holds it, which serves as well
            probe.listen(1)
            held.append(probe.dup())
    try:
        told = up(folder, "--detach")
    finally:
        for one in held:
            one.close()
    assert "since 8440 is taken" in told
    assert "since 8443 is taken" in told
    assert "since 8444 is taken" in told
    assert "since 8445 is taken" in told
    assert not str(said(folder)["api"]).endswith(":8440")


@pytest.mark.parametrize(
    ("half", "joined"),
    [
        (".enlist", {"worker-1", "worker-2"}),
        (".enlist-worker-1", {"worker-1"}),
        (".enlist-worker-2", {"worker-2"}),
    ],
    ids=["the Platform", "the node that listens", "the node that dials out"],
)
def test_up_joins_anew_where_one_part_is_gone(
    folder: pathlib.Path, half: str, joined: set[str]
) -> None:
    up(folder, "--detach")
    up(folder, "--down")
    shutil.rmtree(folder / half)
    told = up(folder, "--detach")
    assert {name for name in ("worker-1", "worker-2") if f"machine as {name}" in told} == joined
    assert ready(told) == {"worker-1", "worker-2"}


def test_a_node_that_dials_out_finds_a_gateway_that_has_moved_meanwhile(
    folder: pathlib.Path,
) -> None:
    up(folder, "--detach")
    up(folder, "--down")
    port = httpx.URL(str(said(folder)["gateway"])).port
    assert port is not None
    with socket.create_server(("127.0.0.1", port)):
        told = up(folder, "--detach")
    assert "This machine is worker-2 already" in told
    assert ready(told) == {"worker-1", "worker-2"}
    assert httpx.URL(str(said(folder)["gateway"])).port != port


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["Ctrl-C on a terminal", "SIGTERM to the script"],
)
def test_up_in_the_foreground_leaves_nothing_behind_when_stopped(
    folder: pathlib.Path, number: signal.Signals, *, whole_group: bool
) -> None:
    script = subprocess.Popen(
        [folder / "scripts" / "up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert script.stdout is not None
    with script.stdout:
        lines = []
        for line in script.stdout:  # ends with the script, which bounds its own waits
            lines.append(line)
            if "Ctrl-C" in line:
                break
        assert ready("".join(lines)) == {"worker-1", "worker-2"}, lines
        if whole_group:
            os.killpg(script.pid, number)
        else:
            script.send_signal(number)
        assert script.wait(SECONDS) == 0
    assert running(folder) == []
