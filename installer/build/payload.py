"""The payload: code, wheels and units in one xz-compressed tar, the same bytes for the same input.

Names sorted, owner 0, mode 0644, one time for all; nothing of this machine's umask, clock or
account.
Known limit: the same bytes need the same liblzma; another version may compress otherwise, which
changes the hashes and nothing that they cover.
"""

import datetime
import io
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from typing import Final

from installer import release as release_format
from installer.build import sources
from installer.build import wheels as locked_wheels

CODE: Final = "code"
WHEELS: Final = "wheels"
# Wheels are compressed already and code is small: a higher preset costs seconds and wins nothing.
_PRESET: Final = 1


def make(
    source: sources.Source,
    *,
    role: release_format.Role,
    wheels: Mapping[str, Sequence[locked_wheels.Wheel]],
) -> bytes:
    """The payload of a role, with the wheels for each Python."""
    files: dict[str, bytes] = {}
    for name in source.code(role):
        files[f"{CODE}/{name}"] = source.read(name)
    for name in source.units(role):
        files[name] = source.read(name)
    for python, needed in wheels.items():
        # Which wheels a Python needs is said here, so that the installer need not judge tags.
        files[f"{WHEELS}/python{python}.sums"] = release_format.sums(
            (wheel.name, wheel.sha256) for wheel in sorted(needed, key=lambda wheel: wheel.name)
        )
        for wheel in needed:
            files[f"{WHEELS}/{wheel.name}"] = wheel.path.read_bytes()
    return lzma.compress(_tar(files, source.made_at), check=lzma.CHECK_CRC64, preset=_PRESET)


def _tar(files: Mapping[str, bytes], made_at: datetime.datetime) -> bytes:
    room = io.BytesIO()
    # As ustar; names past its 100 characters, as some wheels have, in a header of their own.
    with tarfile.open(fileobj=room, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mode = 0o644
            member.mtime = int(made_at.timestamp())
            tar.addfile(member, io.BytesIO(data))
    return room.getvalue()
