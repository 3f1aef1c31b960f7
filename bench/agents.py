"""Many agents at a real Platform, for the benches that need sessions by the thousand.

The store is filled beforehand with as many nodes, each with a key of its own; the agents are real
links in processes of their own (`bench._crowd`), which are told what to do a line at a time.
"""

import asyncio
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
import urllib.parse
from collections.abc import Iterator
from typing import Any

import asyncpg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from bench import enrolling
from tests.support import real_platform

CROWDS = 2


@dataclasses.dataclass(slots=True)
class Crowd:
    """A process of `bench._crowd`."""

    process: subprocess.Popen[str]

    def say(self, order: dict[str, Any]) -> None:
        """Tells it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """What became of it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "The crowd has gone"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def tell(crowds: list[Crowd], order: dict[str, Any]) -> list[dict[str, Any]]:
    """Tells every crowd the same and waits for all of them."""
    for crowd in crowds:
        crowd.say(order)
    return [crowd.hear() for crowd in crowds]


@contextlib.contextmanager
def running(
    folder: pathlib.Path,
    platform: real_platform.RealPlatform,
    *,
    nodes: list[dict[str, str]],
    number: int,
) -> Iterator[Crowd]:
    """A crowd of these nodes for the length of a `with`."""
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
        yield Crowd(process)
    finally:
        process.kill()
        process.communicate()


def shares(nodes: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """The nodes of each crowd."""
    return [nodes[number::CROWDS] for number in range(CROWDS)]


def fill(
    folder: pathlib.Path, *, count: int, database_url: str | None = None
) -> list[dict[str, str]]:
    """Registers nodes with keys of their own by copying one that enrolled for real."""
    data_dir, keys = folder / "platform", folder / "keys"
    keys.mkdir(mode=0o700)
    with real_platform.running(data_dir, database_url=database_url) as platform:
        requests = enrolling.bodies(platform, count=2, prefix="seed")
        enrolling.send(platform, requests=requests, in_flight=1)
    nodes = [_node(keys, number=number) for number in range(count)]
    if database_url is None:
        _copy_in_sqlite(data_dir / "enlist.db", nodes=nodes)
    else:
        asyncio.run(_copy_in_postgresql(database_url, nodes=nodes))
    return [{key: node[key] for key in ("node_id", "pin", "pem")} for node in nodes]


_OWN = ("node_id", "pin", "certificate_pem", "certificate_sha256")


def _copy_in_sqlite(path: pathlib.Path, *, nodes: list[dict[str, str]]) -> None:
    store = sqlite3.connect(path)
    try:
        columns = [row[1] for row in store.execute("PRAGMA table_info(nodes)")]
        chosen = ", ".join(f":{name}" if name in _OWN else name for name in columns)
        store.executemany(
            f"INSERT INTO nodes ({', '.join(columns)}) "  # noqa: S608 - the names are the table's own
            f"SELECT {chosen} FROM nodes WHERE node_id = 'seed-0'",
            nodes,
        )
        store.commit()
    finally:
        store.close()


async def _copy_in_postgresql(url: str, *, nodes: list[dict[str, str]]) -> None:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_name = 'nodes' ORDER BY ordinal_position"
        )
        columns = [row["column_name"] for row in rows]
        places = {name: f"${at}" for at, name in enumerate(_OWN, start=1)}
        chosen = ", ".join(f"{places[name]}::text" if name in places else name for name in columns)
        await connection.executemany(
            f"INSERT INTO nodes ({', '.join(columns)}) "  # noqa: S608 - the names are the table's own
            f"SELECT {chosen} FROM nodes WHERE node_id = 'seed-0'",
            [tuple(node[name] for name in _OWN) for node in nodes],
        )
    finally:
        await connection.close()


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
