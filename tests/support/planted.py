"""Every secret that a Platform and its machines know, and looking for them in what leaves.

Collected from where they really stand (files, the opened store, what was shown once), and looked
for in every form in which one might leak: as text, raw, in hex, and in base64 at each of its three
alignments.
"""

import base64
import io
import json
import pathlib
import re
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from platform_server.sealing import envelope, key_file

_PEM = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----\n", re.DOTALL
)
SHORTEST = 8  # a shorter one is found by chance


def of_text(text: str) -> Iterator[bytes]:
    """The forms of a secret that is a text."""
    yield from of_bytes(text.encode())


def of_bytes(raw: bytes) -> Iterator[bytes]:
    """The forms of a secret that is bytes."""
    assert len(raw) >= SHORTEST
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + raw)
        # what the neighbours decide of the first and last digits is left away
        inner = whole[4 if shift else 0 : -4]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")
    yield json.dumps(raw.decode("latin-1"))[1:-1].encode()


def of_private_key(pem: bytes) -> Iterator[bytes]:
    """The forms of a private key: its bare number, its DER, and each line of its PEM."""
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        yield from of_bytes(key.private_numbers().private_value.to_bytes(32))
    else:
        yield from of_bytes(key.private_bytes_raw())
    for line in pem.splitlines():
        if len(line) >= 40 and b"-----" not in line:
            yield line


def of_platform(data_dir: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Every secret of a Platform on SQLite: its master key and all that is sealed with it."""
    (master,) = key_file.read(data_dir / key_file.NAME)
    for form in of_bytes(master.raw):
        yield "master key", form
    keyring = envelope.Keyring([master], current=master.kek_id)
    connection = sqlite3.connect(f"file:{data_dir}/enlist.db?mode=ro", uri=True)
    try:
        sealed = list(connection.execute("SELECT name, sealed FROM sealed_secrets"))
        trust = list(connection.execute("SELECT key_id, sealed_private FROM trust_keys"))
        hashes = [
            *connection.execute("SELECT 'enrollment', token_hash FROM enrollments"),
            *connection.execute("SELECT 'api token', token_hash FROM api_tokens"),
        ]
    finally:
        connection.close()
    assert trust
    for name, content in sealed:
        value = keyring.open(content, name=name)
        forms = of_private_key(value) if value.startswith(b"-----BEGIN") else of_bytes(value)
        for form in forms:
            yield f"sealed {name}", form
        yield f"sealed {name}, as it is sealed", content
    for key_id, content in trust:
        for form in of_bytes(keyring.open(content, name=f"trust-key:{key_id}")):
            yield f"trust key {key_id}", form
    for what, content in hashes:
        for form in of_bytes(content):
            yield f"hash of {what}", form


def of_files(folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Every private key that lies in a file below the folder, whatever the file is called."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        for pem in _PEM.findall(content):
            for form in of_private_key(pem):
                yield str(path), form
        if path.name == "mesh.key":  # base64, as `wg genkey` writes one
            for form in of_bytes(base64.b64decode(content)):
                yield str(path), form


def of_texts(given: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Secrets that were handed out or set: tokens, passwords."""
    for name, text in given.items():
        for form in of_text(text):
            yield name, form


def leaks(secrets: list[tuple[str, bytes]], *, where: Mapping[str, bytes]) -> list[str]:
    """Which secret stands in which place."""
    return [
        f"{name} in {place}"
        for name, form in secrets
        for place, content in where.items()
        if form in content
    ]


def unpacked(archive: pathlib.Path) -> dict[str, bytes]:
    """The archive itself, and each of its members as it is after unpacking."""
    found = {"the archive": archive.read_bytes()}
    with tarfile.open(fileobj=io.BytesIO(found["the archive"]), mode="r:gz") as packed:
        for member in packed:
            opened = packed.extractfile(member)
            assert opened is not None
            found[member.name] = opened.read()
    return found
