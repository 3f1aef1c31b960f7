"""Puts one archive together: payload, release.json, install.sh with the key, signed manifest."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from installer import archive
from installer import release as release_format
from installer.build import payload as payload_file
from installer.build import signing, sources
from installer.build import wheels as locked_wheels

_EMPTY_KEY: Final = re.compile(rb"^RELEASE_KEY=''$", re.MULTILINE)
CHANGED: Final = "+changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An archive, ready to be written."""

    release: release_format.Release
    data: bytes
    install_sh: bytes

    @property
    def sha256(self) -> str:
        """The hash by which machines ask for it."""
        return hashlib.sha256(self.data).hexdigest()


def build(
    source: sources.Source,
    *,
    role: release_format.Role,
    arch: release_format.Arch,
    wheels: Mapping[str, Sequence[locked_wheels.Wheel]],
    key: signing.ReleaseKey,
) -> Built:
    """Build one archive. `wheels` names them for each Python."""
    payload = payload_file.make(source, role=role, wheels=wheels)
    release = release_format.Release(
        role=role,
        version=source.version,
        arch=arch,
        pythons=tuple(sorted(wheels)),
        commit=source.commit + (CHANGED if source.changed else ""),
        made_at=source.made_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    members = {
        release_format.RELEASE: release.to_bytes(),
        release_format.INSTALL_SH: install_sh(source, key=key),
        release_format.PAYLOAD: payload,
    }
    manifest = release_format.sums(
        (name, hashlib.sha256(members[name]).hexdigest()) for name in release_format.LISTED
    )
    members[release_format.MANIFEST] = manifest
    members[release_format.SIGNATURE] = key.sign(manifest)
    return Built(
        release=release,
        data=_outer_tar(members),
        install_sh=members[release_format.INSTALL_SH],
    )


def install_sh(source: sources.Source, *, key: signing.ReleaseKey) -> bytes:
    """The installer of this source, with the public half of the release key written in.

    Raises:
        SourceError: it has no place for the key, or several.
    """
    text, places = _EMPTY_KEY.subn(
        f"RELEASE_KEY='{key.public_text}'".encode(), source.read(sources.INSTALL_SH)
    )
    if places != 1:
        raise sources.SourceError(
            f"{sources.INSTALL_SH} has {places} lines RELEASE_KEY='' where one belongs."
        )
    return text


def _outer_tar(members: Mapping[str, bytes]) -> bytes:
    pieces = []
    for name in release_format.MEMBERS:
        data = members[name]
        if len(data) > release_format.MOST_BYTES[name]:
            raise sources.SourceError(
                f"{name} has {len(data)} bytes, and no installer reads more than "
                f"{release_format.MOST_BYTES[name]}."
            )
        pieces += [archive.header(name, len(data)), data, archive.padding(len(data))]
    return b"".join((*pieces, archive.END))
