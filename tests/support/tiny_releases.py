"""Signed archives of a few kilobytes, real in form: each says its version and nothing else."""

import dataclasses
import functools
import hashlib
import io
import lzma
import os
import pathlib
import sys
import tarfile
import zipfile

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import archive
from installer import release as release_format
from tests.support import bundles
from wire_protocol import updates

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_WHEEL = "tiny-1.0-py3-none-any.whl"
_MAIN = 'import sys\n\n\ndef main():\n    print("enlist {said}")\n    sys.exit({code})\n'
_UNIT = "[Unit]\nDescription=A unit of {version}\n"


@functools.cache
def key() -> ed25519.Ed25519PrivateKey:
    """The release key of this test process."""
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(private: ed25519.Ed25519PrivateKey) -> bytes:
    """As `release.pub` holds it."""
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """One archive."""

    release: release_format.Release
    data: bytes

    @property
    def update(self) -> updates.Update:
        """What an order says of it."""
        return updates.Update(
            version=self.release.version,
            release=self.release.id,
            archive_sha256=hashlib.sha256(self.data).hexdigest(),
            size=len(self.data),
            urls=("https://platform.example:8446/bundles/sha256/x",),
        )

    def written(self, path: pathlib.Path) -> pathlib.Path:
        """The same as a file."""
        path.write_bytes(self.data)
        return path


def make(
    version: str,
    *,
    role: release_format.Role = "worker",
    says: str | None = None,
    code: int = 0,
    signed_by: ed25519.Ed25519PrivateKey | None = None,
) -> Tiny:
    """An archive of that version, which runs on this machine's Python."""
    payload = _payload(version, said=says or version, code=code)
    release = release_format.Release(
        role=role,
        version=version,
        arch=bundles.this_arch(),
        pythons=(PYTHON,),
        commit="0" * 40,
        made_at="2026-01-01T00:00:00Z",
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    members = {
        release_format.RELEASE: release.to_bytes(),
        release_format.INSTALL_SH: b"#!/bin/sh\n",
        release_format.PAYLOAD: payload,
    }
    manifest = release_format.sums(
        (name, hashlib.sha256(members[name]).hexdigest()) for name in release_format.LISTED
    )
    members[release_format.MANIFEST] = manifest
    members[release_format.SIGNATURE] = (signed_by or key()).sign(manifest)
    pieces = []
    for name in release_format.MEMBERS:
        data = members[name]
        pieces += [archive.header(name, len(data)), data, archive.padding(len(data))]
    return Tiny(release=release, data=b"".join((*pieces, archive.END)))


def open_memory(data: bytes) -> int:
    """An open file with this content, as an Agent passes one."""
    descriptor = os.memfd_create("archive")
    os.write(descriptor, data)
    return descriptor


def _payload(version: str, *, said: str, code: int) -> bytes:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(zipfile.ZipInfo("tiny/__init__.py"), "")
    files = {
        "code/operator_cli/__init__.py": b"",
        "code/operator_cli/main.py": _MAIN.format(said=said, code=code).encode(),
        f"wheels/{_WHEEL}": wheel.getvalue(),
        f"wheels/python{PYTHON}.sums": release_format.sums(
            [(_WHEEL, hashlib.sha256(wheel.getvalue()).hexdigest())]
        ),
        "systemd/worker/enlist-agent.service": _UNIT.format(version=version).encode(),
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return lzma.compress(plain.getvalue(), preset=0)
