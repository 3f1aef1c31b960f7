"""The physical limits that the ratios are made against, measured in the same run."""

import contextlib
import dataclasses
import json
import pathlib
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

START_SECONDS = 10.0


def run_load(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one job of `bench._load` in its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench._load"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def cpu_of(processes: list[psutil.Process]) -> float:
    """User and system seconds of all of them so far."""
    return sum(times.user + times.system for times in (one.cpu_times() for one in processes))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Handshakes:
    """What openssl's own server spends."""

    cpu_seconds_each: float
    per_second: float


def openssl_handshakes(folder: pathlib.Path, *, connections: int, in_flight: int) -> Handshakes:
    """CPU of `openssl s_server` per new TLS 1.3 connection, P-256, no tickets, loopback."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    if not key.exists():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2",
             "-subj", "/CN=bench"],
            check=True, capture_output=True,
        )  # fmt: skip
    with _server(
        lambda port: [
            "openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-key", str(key),
            "-cert", str(certificate), "-tls1_3", "-num_tickets", "0", "-www", "-quiet",
        ]
    ) as (process, port):  # fmt: skip
        job = {
            "host": "127.0.0.1",
            "port": port,
            "trusted_pem": certificate.read_text(),
            "in_flight": in_flight,
            "path": "/",
        }
        run_load({**job, "bodies": [""] * 50})
        before = cpu_of([process])
        answer = run_load({**job, "bodies": [""] * connections})
        spent = cpu_of([process]) - before
    return Handshakes(
        cpu_seconds_each=spent / connections, per_second=connections / answer["seconds"]
    )


def durable_commits_per_second(folder: pathlib.Path, *, commits: int) -> float:
    """Raw SQLite commits, one row each, WAL and synchronous=FULL, one after the other."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, body TEXT)")
        began = time.perf_counter()
        for number in range(commits):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO raw (body) VALUES (?)", (f"{number:0200d}",))
            connection.execute("COMMIT")
        return commits / (time.perf_counter() - began)
    finally:
        connection.close()


@contextlib.contextmanager
def _server(
    command: Callable[[int], list[str]],
) -> Iterator[tuple[psutil.Process, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        command(port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for(port)
            yield psutil.Process(process.pid), port
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
