"""Archives of the right form with next to nothing in them, signed by a key of the test's own.

For tests of what carries, checks and serves bundles; `bundles` builds real ones.
"""

import dataclasses
import hashlib
import pathlib

from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import archive, release
from installer.build import signing

MADE_AT = "2026-01-31T12:00:00Z"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """One archive."""

    content: bytes
    release: release.Release

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        path = folder / self.release.archive_name
        path.write_bytes(self.content)
        return path


def key() -> signing.ReleaseKey:
    return signing.ReleaseKey(ed25519.Ed25519PrivateKey.generate())


def make(
    signed_by: signing.ReleaseKey,
    *,
    version: str = "0.1.0",
    role: release.Role = "worker",
    arch: release.Arch = "x86_64",
    install_sh: bytes = b"#!/bin/sh\n",
    payload: bytes = b"payload",
) -> Small:
    made = release.Release(
        role=role,
        version=version,
        arch=arch,
        pythons=("3.11",),
        commit="0" * 40,
        made_at=MADE_AT,
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    members = {
        release.RELEASE: made.to_bytes(),
        release.INSTALL_SH: install_sh,
        release.PAYLOAD: payload,
    }
    manifest = release.sums(
        [(name, hashlib.sha256(data).hexdigest()) for name, data in members.items()]
    )
    everything = {
        release.MANIFEST: manifest,
        release.SIGNATURE: signed_by.sign(manifest),
        **members,
    }
    content = b"".join(
        archive.header(name, len(data)) + data + archive.padding(len(data))
        for name, data in everything.items()
    )
    return Small(content=content + archive.END, release=made)


def write_folder(folder: pathlib.Path, *several: Small) -> pathlib.Path:
    """As a released folder: archives, and for each architecture the line that names the latest."""
    folder.mkdir(exist_ok=True)
    for one in several:
        one.write(folder)
        line = release.sums([(one.release.archive_name, one.sha256)])
        (folder / release.latest_name(one.release.role, one.release.arch)).write_bytes(line)
    return folder
