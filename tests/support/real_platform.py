"""Starts a real Platform as a process, on free ports of loopback, and stops it by its pid.

The tests and the benches share it. The command line is the product's own; what it prints as its
one JSON line says where it listens. Known limit: one Platform a folder, as for everybody.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psutil

START_SECONDS = 30.0
STOP_SECONDS = 15.0
ENLIST = (sys.executable, "-m", "operator_cli")


@dataclasses.dataclass(slots=True, kw_only=True)
class RealPlatform:
    """A running `enlist serve`: its process, its folder, and what it said of itself."""

    process: subprocess.Popen[bytes]
    data_dir: pathlib.Path
    said: dict[str, Any]
    log: pathlib.Path

    @property
    def enrollment_url(self) -> str:
        """Where machines enroll."""
        return str(self.said["enrollment"])

    @property
    def socket(self) -> pathlib.Path:
        """The local admin socket."""
        return self.data_dir / "run" / "platform.sock"

    def family(self) -> list[psutil.Process]:
        """The process and all its children."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def child(self, word: str) -> psutil.Process:
        """The one child whose command line holds the word, as `engine`."""
        found = [kid for kid in self.family()[1:] if word in command_of(kid)]
        assert len(found) == 1, [command_of(kid) for kid in self.family()]
        return found[0]

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far."""
        total = 0.0
        for process in self.family():
            times = process.cpu_times()
            total += times.user + times.system
        return total

    def api(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Asks an operator's route over the local socket; quicker than a command. Must succeed."""
        connection = _UnixConnection(str(self.socket), timeout=30)
        try:
            connection.request(
                method,
                f"/api/v1{path}",
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status < 300, (answer.status, content)
        document = json.loads(content)
        assert isinstance(document, dict)
        return document

    def enlist(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs an operator's command against it and returns what it printed; it must succeed."""
        return run_enlist("--data-dir", str(self.data_dir), *arguments, stdin=stdin)

    def stop(self) -> int:
        """Stops it as an operator would and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(self.process)
            raise AssertionError(
                f"The Platform did not stop; it logged:\n{tail(self.log)}"
            ) from None
        close(self.process)
        return code


def command_of(process: psutil.Process) -> str:
    """A process's command line; empty once it has gone, as one may between look and question."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the local socket."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("platform", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


def run_enlist(
    *arguments: str,
    stdin: str | None = None,
    expect: int = 0,
    environment: Mapping[str, str] | None = None,
    seconds: float = 60,
) -> str:
    """Runs `enlist` once, checks its exit code, and returns its standard output."""
    done = subprocess.run(
        [*ENLIST, *arguments],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=clean_environment(environment),
    )
    assert done.returncode == expect, f"{arguments} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what a person's shell may hold for Enlist or proxies."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ENLIST_") and not name.lower().endswith("_proxy")
    }
    # Nobody waits for a bundle but those whose test it is.
    return {**kept, "ENLIST_BUNDLES__BUILD": "false", **(more or {})}


@contextlib.contextmanager
def running(
    data_dir: pathlib.Path,
    *arguments: str,
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    enrollment_port: int | None = 0,
    addresses: Sequence[str] = ("127.0.0.1",),
    prefix: Sequence[str] = (),
) -> Iterator[RealPlatform]:
    """A Platform for the length of a `with`; it must have ended cleanly by its end."""
    platform = start(
        data_dir,
        *arguments,
        database_url=database_url,
        environment=environment,
        enrollment_port=enrollment_port,
        addresses=addresses,
        prefix=prefix,
    )
    try:
        yield platform
    finally:
        platform.stop()


def start(
    data_dir: pathlib.Path,
    *arguments: str,
    database_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    enrollment_port: int | None = 0,
    addresses: Sequence[str] = ("127.0.0.1",),
    prefix: Sequence[str] = (),
) -> RealPlatform:
    """Starts a Platform, on another host with `prefix`, and waits until it says it listens."""
    log = data_dir.with_name(f"{data_dir.name}.log")
    command = [
        *prefix,
        *ENLIST,
        *("serve", "-o", "json", "--data-dir", str(data_dir)),
        *(() if "--listen" in arguments else ("--listen", "127.0.0.1:0")),
        *(() if enrollment_port is None else ("--enrollment-port", str(enrollment_port))),
        *(() if "--gateway-port" in arguments else ("--gateway-port", "0")),
        *(word for address in addresses for word in ("--enrollment-address", address)),
        *(("--database-url", database_url) if database_url else ()),
        *arguments,
    ]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean_environment(environment),
            start_new_session=True,
        )
    said = _first_line(process, log=log)
    return RealPlatform(process=process, data_dir=data_dir, said=said, log=log)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its children at once, as a power cut would."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
    close(process)


def close(process: subprocess.Popen[bytes]) -> None:
    """Lets go of the pipe on which it said where it listens."""
    if process.stdout is not None:
        process.stdout.close()


def tail(log: pathlib.Path, *, most_bytes: int = 4000) -> str:
    """The end of a log, for a failing test's message."""
    return log.read_bytes()[-most_bytes:].decode(errors="replace")


def _first_line(process: subprocess.Popen[bytes], *, log: pathlib.Path) -> dict[str, Any]:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    collected = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in collected:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                kill_group(process)
                raise AssertionError(f"The Platform did not start; it logged:\n{tail(log)}")
            part = os.read(process.stdout.fileno(), 65_536)
            if not part:
                code = process.wait(STOP_SECONDS)
                close(process)
                raise AssertionError(f"The Platform ended with {code}; it logged:\n{tail(log)}")
            collected += part
    said = json.loads(collected.partition(b"\n")[0])
    assert isinstance(said, dict)
    return said
