"""A machine as the tests see it: a data directory, a port, the real join and the real Agent."""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cryptography import x509

from tests.support import real_platform
from wire_protocol import pins
from worker_agent.settings import paths

READY_SECONDS = 30.0
PAUSE_SECONDS = 0.05
LOWEST_PORT = 15_000  # above what is usually served


def free_port() -> int:
    """A port nobody listens on now.

    Below the range from which the kernel gives ports to outgoing connections: one of those, made by
    whatever else runs here, would take the port before the test's own server does.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(LOWEST_PORT, _first_outgoing_port())
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port


def _first_outgoing_port() -> int:
    given = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return max(int(given[0]), LOWEST_PORT + 1000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine-to-be: where it keeps its data, and where its Agent will listen (0: it dials)."""

    data_dir: pathlib.Path
    port: int

    @property
    def join_arguments(self) -> list[str]:
        """The command that joins it, reading the join token from standard input."""
        where = ("--address", "127.0.0.1", "--port", str(self.port)) if self.port else ()
        return ["--data-dir", str(self.data_dir), "worker", "join", "-", *where]

    def join(
        self,
        join_token: str,
        *more: str,
        expect: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Joins for real; the exit code must be the expected one."""
        return real_platform.run_enlist(
            *self.join_arguments, *more, stdin=join_token, expect=expect, environment=environment
        )

    def certificate_fingerprint(self) -> str:
        """`sha256:` and the SHA-256 of the certificate on its disk."""
        made = paths.Paths(folder=self.data_dir).certificate.read_bytes()
        return pins.fingerprint_of_certificate(x509.load_pem_x509_certificate(made))

    @contextlib.contextmanager
    def agent(self, *, environment: Mapping[str, str] | None = None) -> Iterator["Agent"]:
        """The Agent for the length of a `with`."""
        agent = self.start_agent(environment=environment)
        try:
            yield agent
        finally:
            agent.stop()

    def start_agent(
        self, *, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> "Agent":
        """Starts the Agent; its log stands beside the data directory."""
        log = self.data_dir.with_name(f"{self.data_dir.name}.log")
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*prefix, *real_platform.ENLIST, "agent", "--data-dir", str(self.data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=real_platform.clean_environment(environment),
            )
        return Agent(process=process, log=log)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A running Agent."""

    process: subprocess.Popen[bytes]
    log: pathlib.Path

    def stop(self) -> int:
        """Asks it to end, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(real_platform.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            said = real_platform.tail(self.log)
            raise AssertionError(f"The Agent did not stop; it logged:\n{said}") from None

    def kill(self) -> None:
        """Ends it as a power cut would."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def in_folder(folder: pathlib.Path, *, name: str = "machine") -> Machine:
    """A machine that keeps its data under this folder."""
    return Machine(data_dir=folder / name, port=free_port())


def dialling_out(folder: pathlib.Path, *, name: str = "machine") -> Machine:
    """A machine that opens no port and holds a session instead."""
    return Machine(data_dir=folder / name, port=0)


def issue(platform: real_platform.RealPlatform, node_id: str, *more: str) -> str:
    """A join token for the node; with further arguments by the operator's command."""
    if more:
        return platform.enlist("nodes", "enroll-token", node_id, "--raw", *more).strip()
    return str(platform.api("POST", "/enrollments", {"node_id": node_id})["join_token"])


def node(platform: real_platform.RealPlatform, node_id: str) -> dict[str, Any]:
    """The node as the API shows it."""
    return platform.api("GET", f"/nodes/{node_id}")


def wait_for_state(
    platform: real_platform.RealPlatform,
    node_id: str,
    state: str,
    *,
    seconds: float = READY_SECONDS,
) -> dict[str, Any]:
    """The node once it is in that state; fails with what it was in when the time is up."""
    deadline = time.monotonic() + seconds
    while (entry := node(platform, node_id))["state"] != state:
        if time.monotonic() > deadline:
            said = real_platform.tail(platform.log)
            raise AssertionError(f"{node_id} stayed {entry}; the Platform logged:\n{said}")
        time.sleep(PAUSE_SECONDS)
    return entry


def wait_for(
    platform: real_platform.RealPlatform,
    node_id: str,
    true: Callable[[dict[str, Any]], bool],
    *,
    seconds: float = READY_SECONDS,
) -> dict[str, Any]:
    """The node once that is true of it; fails with how it was when the time is up."""
    deadline = time.monotonic() + seconds
    while not true(entry := node(platform, node_id)):
        if time.monotonic() > deadline:
            said = real_platform.tail(platform.log)
            raise AssertionError(f"{node_id} stayed {entry}; the Platform logged:\n{said}")
        time.sleep(PAUSE_SECONDS)
    return entry


def wait_until_answered(
    platform: real_platform.RealPlatform,
    node_id: str,
    *,
    after: datetime.datetime,
    seconds: float = 60.0,
) -> dict[str, Any]:
    """The node once its Agent answered a question asked after that moment."""
    deadline = time.monotonic() + seconds
    while (entry := node(platform, node_id))["probe_answered_at"] is None or (
        datetime.datetime.fromisoformat(entry["probe_answered_at"]) <= after
    ):
        if time.monotonic() > deadline:
            said = real_platform.tail(platform.log)
            raise AssertionError(f"{node_id} stayed {entry}; the Platform logged:\n{said}")
        time.sleep(PAUSE_SECONDS)
    return entry
