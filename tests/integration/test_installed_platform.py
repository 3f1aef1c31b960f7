"""A Platform as its units run it: sockets that outlive it, the edge beside it, readiness told.

A stand-in for the service manager passes the sockets; tests/machines has the real one.
"""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from platform_server.edge import handover
from tests.support import passing, real_platform

ROOT = pathlib.Path(__file__).parents[2]
UNIT = {"ENLIST_ENROLLMENT__UNIT": "true", "ENLIST_BUNDLES__UNIT": "true"}


class Installed:
    """The units of one Platform in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        enroll = socket.socket(socket.AF_UNIX)
        enroll.bind(str(folder / "enroll.sock"))
        enroll.listen(64)
        self.engine = passing.Manager(
            folder / "m1",
            {
                "api": socket.create_server(("127.0.0.1", 0), backlog=64),
                "gateway": socket.create_server(("127.0.0.1", 0), backlog=64),
                "enroll": enroll,
            },
        )
        self.edges = {
            name: passing.Manager(
                folder / f"m-{name}",
                {name: socket.create_server(("127.0.0.1", 0), backlog=64)},
            )
            for name in ("listener", "bundles")
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def port(self, name: str) -> int:
        sockets = self.engine.sockets if name in ("api", "gateway") else self.edges[name].sockets
        return int(sockets[name].getsockname()[1])

    @property
    def environment(self) -> dict[str, str]:
        return {
            **UNIT,
            "ENLIST_API__LISTEN": f"127.0.0.1:{self.port('api')}",
            "ENLIST_ENROLLMENT__PORT": str(self.port("listener")),
            "ENLIST_BUNDLES__PORT": str(self.port("bundles")),
            "ENLIST_GATEWAY__PORT": str(self.port("gateway")),
            "ENLIST_ENROLLMENT__ADDRESSES": "127.0.0.1",
        }

    def start_platform(self, **more: str) -> None:
        process = self.engine.start(
            [*real_platform.ENLIST, "serve", "--data-dir", str(self.data)],
            environment={**self.environment, **more},
            log=self.folder / "platform.log",
        )
        self.processes["platform"] = process
        self.engine.wait_for("READY=1", process=process)

    def start_edge(self, name: str) -> None:
        """As the units do, with the key and the words that root hands over."""
        handed = self.folder / "handed"
        handed.mkdir(exist_ok=True)
        handover.hand_over(self.data, to=handed)
        own = (
            ["--engine-socket", str(self.folder / "enroll.sock")]
            if name == "listener"
            else ["--folder", str(self.data / "bundles")]
        )
        process = self.edges[name].start(
            [
                *(sys.executable, "-m", f"platform_server.{name}"),
                *("--tls-file", str(handed / "tls.pem"), *own),
                f"@{handed / name}.words",
            ],
            environment={},
            log=self.folder / f"{name}.log",
        )
        self.processes[name] = process
        self.edges[name].wait_for("READY=1", process=process)

    def stop(self, name: str) -> float:
        """SIGTERM to the main process alone (KillMode=mixed); how long it took."""
        process = self.processes.pop(name)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        return time.monotonic() - started

    def close(self) -> None:
        for name, process in list(self.processes.items()):
            if process.poll() is None:
                self.stop(name)
        self.engine.close()
        for one in self.edges.values():
            one.close()


@pytest.fixture
def installed(tmp_path: pathlib.Path) -> Iterator[Installed]:
    for name in ("m1", "m-listener", "m-bundles"):
        (tmp_path / name).mkdir()
    one = Installed(tmp_path)
    try:
        yield one
    finally:
        one.close()


def children_of(pid: int) -> list[str]:
    return [real_platform.command_of(one) for one in psutil.Process(pid).children(recursive=True)]


def health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        return connection.getresponse().status


def enlist(installed: Installed, *arguments: str) -> str:
    return real_platform.run_enlist("--data-dir", str(installed.data), *arguments)


def test_the_edge_runs_beside_the_platform_and_a_machine_joins_through_it(
    installed: Installed, tmp_path: pathlib.Path
) -> None:
    installed.start_platform()
    assert any("STATUS=" in line for line in installed.engine.told)
    kinds = children_of(installed.processes["platform"].pid)
    assert [("engine" in one, "listener" in one, "bundles" in one) for one in kinds] == [
        (True, False, False)
    ]
    installed.start_edge("listener")
    installed.start_edge("bundles")
    shown = json.loads(enlist(installed, "nodes", "platform", "-o", "json"))
    assert shown["enrollment_url"] == f"https://127.0.0.1:{installed.port('listener')}"
    assert shown["bundle_url"] == f"https://127.0.0.1:{installed.port('bundles')}"
    assert shown["gateway_url"] == f"https://127.0.0.1:{installed.port('gateway')}"
    token = enlist(installed, "nodes", "enroll-token", "w-1", "--raw")
    real_platform.run_enlist(
        *("--data-dir", str(tmp_path / "w"), "worker", "join", "-"), stdin=token
    )


def test_a_restart_keeps_every_port_and_who_connects_meanwhile_is_served(
    installed: Installed,
) -> None:
    installed.start_platform()
    assert health(installed.port("api")) == 200
    assert installed.stop("platform") < 10
    assert "STOPPING=1" in installed.engine.take_told()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        early = pool.submit(health, installed.port("api"))  # nobody serves: it waits in the queue
        installed.start_platform()
        assert early.result(60) == 200


def test_the_edge_outlives_the_platform_and_waits_for_the_next(installed: Installed) -> None:
    installed.start_platform()
    installed.start_edge("listener")
    listener = installed.processes["listener"]
    installed.stop("platform")
    assert listener.poll() is None, "it ends with a host's children only"
    installed.start_platform()
    assert listener.poll() is None
    assert installed.stop("listener") < 10


def test_a_hangup_tells_the_manager_and_rewrites_what_the_edge_is_told(
    installed: Installed,
) -> None:
    installed.start_platform()
    file = installed.data / "run" / "listener" / "units.words"
    assert "--max-in-work 64" in file.read_text()
    (installed.data / "config.toml").write_text("[enrollment]\nconnections = 32\n")
    installed.engine.told.clear()
    process = installed.processes["platform"]
    process.send_signal(signal.SIGHUP)
    installed.engine.wait_for("RELOADING=1", process=process)
    installed.engine.wait_for("READY=1", process=process)
    assert "--max-in-work 32" in file.read_text()
    assert health(installed.port("api")) == 200


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ENLIST_API__LISTEN": "127.0.0.1:8440"}, ("enlist-platform.socket", "api.listen")),
        ({"ENLIST_API__LISTEN": "0.0.0.0:0"}, ("enlist-platform.socket", "api.listen")),
        ({"ENLIST_GATEWAY__PORT": "off"}, ("enlist-gateway.socket", "disable")),
        ({"ENLIST_GATEWAY__PORT": "9999"}, ("enlist-gateway.socket", "gateway.port")),
        ({"ENLIST_ENROLLMENT__PORT": "0"}, ("enrollment", "not 0")),
    ],
)
def test_sockets_and_settings_that_differ_stop_the_start_and_are_both_named(
    installed: Installed, more: dict[str, str], words: tuple[str, ...]
) -> None:
    log = installed.folder / "refused.log"
    process = installed.engine.start(
        [*real_platform.ENLIST, "serve", "--data-dir", str(installed.data)],
        environment={**installed.environment, **more},
        log=log,
    )
    assert process.wait(30) == 2
    said = log.read_text()
    assert all(word in said for word in words), said


def test_units_of_their_own_without_a_manager_are_refused(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [*real_platform.ENLIST, "serve", "--data-dir", str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=real_platform.clean_environment({**UNIT, "PYTHONPATH": str(ROOT)}),
    )
    assert (done.returncode, "enlist-enroll.socket" in done.stderr) == (2, True), done.stderr
