"""10,000 idle sessions at one gateway: resident memory of each, and what their heartbeats cost.

A real Platform whose store is filled beforehand with as many nodes, each with a key of its own; the
agents are real links in processes of their own. Memory is the engine's, so the gateway's share of
it and the store's page cache count as well; the first sessions are opened before the first look,
since they load code that is loaded once.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import pathlib
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from bench import _crowd, enrolling, limits, report
from tests.support import real_platform

WARM = 100
FEW = 1_000
MANY = 10_000
CROWDS = 2
EVERY_SECONDS = _crowd.EVERY_SECONDS
SETTLE_SECONDS = 30.0  # one heartbeat of each
BEAT_SECONDS = 60.0
QUIET_SECONDS = 20.0  # far below the silence at which a session ends
KIB = 1024


def main() -> None:
    """Runs the bench and prints its figures."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-", dir="/var/tmp") as name:
        figures = measure(pathlib.Path(name))
    report.show("sessions", figures, as_json=as_json)


def measure(folder: pathlib.Path) -> list[report.Figure]:
    """Memory at 1,000 and 10,000 sessions, and the CPU of the heartbeats of all."""
    nodes = _fill(folder, count=WARM + MANY)
    with (
        real_platform.running(folder / "platform") as platform,
        contextlib.ExitStack() as stack,
    ):
        engine = platform.child("platform_server engine")
        crowds = [
            stack.enter_context(_running(folder, platform, nodes=share, number=number))
            for number, share in enumerate(_shares(nodes))
        ]
        _all(crowds, {"open": WARM // CROWDS})
        _all(crowds, {"rest": SETTLE_SECONDS})
        empty = _memory(engine)
        few_cpu = _open(crowds, engine, count=FEW)
        _all(crowds, {"rest": SETTLE_SECONDS})
        few = (_memory(engine) - empty) / FEW
        began = time.perf_counter()
        many_cpu = _open(crowds, engine, count=MANY - FEW)
        opening = time.perf_counter() - began
        _all(crowds, {"rest": SETTLE_SECONDS})
        many = (_memory(engine) - empty) / MANY
        spent = limits.cpu_of([engine])
        beats = _all(crowds, {"rest": BEAT_SECONDS})
        busy = limits.cpu_of([engine]) - spent
        took = max(one["seconds"] for one in beats)
        after = (_memory(engine) - empty) / MANY
        spent = limits.cpu_of([engine])
        _all(crowds, {"quiet": QUIET_SECONDS})
        idle = (limits.cpu_of([engine]) - spent) / QUIET_SECONDS
    assert not any(one["ended"] for one in beats), "Sessions ended meanwhile"
    sent = sum(one["sent"] for one in beats)
    share = busy / sent * (MANY + WARM) / EVERY_SECONDS
    return [
        report.Figure(
            name="kib_few", value=few / KIB, unit="KiB", at_most=50,
            meaning=f"resident memory of each of {FEW:,} idle sessions",
        ),
        report.Figure(
            name="kib_many", value=many / KIB, unit="KiB", at_most=50,
            meaning=f"of each of {MANY:,}",
        ),
        report.Figure(
            name="kib_beating", value=after / KIB, unit="KiB", at_most=50,
            meaning=f"the same after {BEAT_SECONDS:g} s of heartbeats",
        ),
        report.Figure(
            name="memory_ratio", value=many / few, unit="x", at_most=1.1,
            meaning=f"of each of {MANY:,} over each of {FEW:,}: flat is 1",
        ),
        report.Figure(
            name="heartbeat_share", value=100 * share, unit="%", at_most=15,
            meaning=f"of one core, {MANY + WARM:,} sessions with a heartbeat every "
            f"{EVERY_SECONDS:g} s, everything the engine does meanwhile included",
        ),
        report.Figure(
            name="idle_share", value=100 * idle, unit="%",
            meaning="of one core, the same sessions without heartbeats",
        ),
        report.Figure(
            name="heartbeat_cpu", value=1e6 * (busy - idle * took) / sent, unit="us",
            meaning="CPU of one heartbeat, read, judged, kept and written in batches",
        ),
        report.Figure(
            name="opening_cpu", value=1000 * many_cpu, unit="ms",
            meaning="CPU of one opening: handshake, hello, confirm, health, two commits",
        ),
        report.Figure(
            name="opening_ratio", value=many_cpu / few_cpu, unit="x", at_most=1.2,
            meaning=f"that up to {MANY:,} sessions over that up to {FEW:,}",
        ),
        report.Figure(
            name="slowest", value=max(one["slowest"] for one in beats), unit="s",
            meaning="the slowest answer to a heartbeat, as the crowds saw it",
        ),
        report.Figure(
            name="openings", value=(MANY - FEW) / opening, unit="/s",
            meaning="sessions opened a second, the crowds on the same cores",
        ),
    ]  # fmt: skip


@dataclasses.dataclass(slots=True)
class _Crowd:
    """A process of `bench._crowd`."""

    process: subprocess.Popen[str]

    def say(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "The crowd has gone"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def _open(crowds: list[_Crowd], engine: psutil.Process, *, count: int) -> float:
    """CPU of the engine for each opening, the heartbeats of those already open included."""
    spent = limits.cpu_of([engine])
    _all(crowds, {"open": count // CROWDS})
    return (limits.cpu_of([engine]) - spent) / count


def _all(crowds: list[_Crowd], order: dict[str, Any]) -> list[dict[str, Any]]:
    """Tells every crowd the same and waits for all of them."""
    for crowd in crowds:
        crowd.say(order)
    return [crowd.hear() for crowd in crowds]


@contextlib.contextmanager
def _running(
    folder: pathlib.Path,
    platform: real_platform.RealPlatform,
    *,
    nodes: list[dict[str, str]],
    number: int,
) -> Iterator[_Crowd]:
    parts = urllib.parse.urlsplit(str(platform.said["gateway"]))
    host, port = "127.0.0.1", int(parts.port or 0)
    file = folder / f"crowd-{number}.json"
    content = {
        "host": host,
        "port": port,
        "address": f"127.0.1.{number + 1}",
        "leaf_pem": ssl.get_server_certificate((host, port), timeout=10),
        "trust_key": "0" * 16,
        "nodes": nodes,
    }
    file.write_text(json.dumps(content))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._crowd", str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield _Crowd(process)
    finally:
        process.kill()
        process.communicate()


def _shares(nodes: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    return [nodes[number::CROWDS] for number in range(CROWDS)]


def _memory(engine: psutil.Process) -> int:
    return int(engine.memory_info().rss)


def _fill(folder: pathlib.Path, *, count: int) -> list[dict[str, str]]:
    """Registers nodes with keys of their own by copying one that enrolled for real."""
    data_dir, keys = folder / "platform", folder / "keys"
    keys.mkdir(mode=0o700)
    with real_platform.running(data_dir) as platform:
        requests = enrolling.bodies(platform, count=2, prefix="seed")
        enrolling.send(platform, requests=requests, in_flight=1)
    nodes = [_node(keys, number=number) for number in range(count)]
    store = sqlite3.connect(data_dir / "enlist.db")
    try:
        columns = [row[1] for row in store.execute("PRAGMA table_info(nodes)")]
        own = ("node_id", "pin", "certificate_pem", "certificate_sha256")
        chosen = ", ".join(f":{name}" if name in own else name for name in columns)
        statement = (
            f"INSERT INTO nodes ({', '.join(columns)}) "  # noqa: S608 - the names are the table's own
            f"SELECT {chosen} FROM nodes WHERE node_id = 'seed-0'"
        )
        store.executemany(statement, nodes)
        store.commit()
    finally:
        store.close()
    return [{key: node[key] for key in ("node_id", "pin", "pem")} for node in nodes]


def _node(keys: pathlib.Path, *, number: int) -> dict[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, f"bench-{number}")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=90))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    spki = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    file = keys / f"{number}.pem"
    file.touch(mode=0o600)
    file.write_text(private + pem)
    return {
        "node_id": f"bench-{number}",
        "pin": f"sha256:{hashlib.sha256(spki).hexdigest()}",
        "certificate_pem": pem,
        "certificate_sha256": f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}",
        "pem": str(file),
    }


if __name__ == "__main__":
    main()
