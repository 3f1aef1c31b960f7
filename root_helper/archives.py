"""The archive that comes with an update: copied first, then checked, so that nobody changes it.

What is passed is an open file of an account that may be captured: it can be written to while it is
read, or be no file at all. The copy has no name and is root's; hash, size and signature are those
of the copy, and from it alone the release is made.
"""

import contextlib
import hashlib
import io
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import archive as archive_kit
from installer import release as release_format
from installer import tree
from root_helper import places as places_kit
from root_helper import refusals
from runtime_kit import private_files
from wire_protocol import signing, updates

_CHUNK = 1024 * 1024
_MOST_KEY_BYTES = 4096


def stage(descriptor: int, *, wanted: updates.Update, places: places_kit.Places) -> str:
    """Checks the archive and lays its release out beside the others; gives its id.

    Nothing is switched. Raises `Refused`.
    """
    with _copied(descriptor, wanted=wanted, folder=places.folder) as copy:
        found = _checked(copy, places=places)
        _require_wanted(found.release, wanted=wanted, places=places)
        payload = _Part(copy, offset=found.payload_offset, size=found.payload_size)
        try:
            return tree.lay_out(
                places.layout,
                release=found.release,
                install_sh=found.install_sh,
                payload=cast("BinaryIO", io.BufferedReader(payload)),
                python=tree.this_python(),
            )
        except tree.BadPayload as error:
            raise refusals.Refused(refusals.Code.BAD_ARCHIVE, str(error)) from error
        except OSError as error:
            raise refusals.Refused(
                refusals.Code.FAILED, f"The release cannot be laid out: {error.strerror or error}."
            ) from error


def _require_wanted(
    found: release_format.Release, *, wanted: updates.Update, places: places_kit.Places
) -> None:
    arch = os.uname().machine
    for what, is_so in (
        ("another version than the order names", found.version == wanted.version),
        ("another release than the order names", found.id == wanted.release),
        (f"no {places.layout.role} release", found.role == places.layout.role),
        (f"not for {arch}", found.arch == arch),
    ):
        if not is_so:
            raise refusals.Refused(refusals.Code.BAD_ARCHIVE, f"The archive is {what}.")


@contextlib.contextmanager
def _copied(descriptor: int, *, wanted: updates.Update, folder: pathlib.Path) -> Iterator[BinaryIO]:
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise refusals.Refused(refusals.Code.NO_ARCHIVE, "What was passed is no plain file.")
    if info.st_size != wanted.size:
        raise refusals.Refused(
            refusals.Code.BAD_ARCHIVE,
            f"The archive has {info.st_size} bytes, and the order names {wanted.size}.",
        )
    digest = hashlib.sha256()
    try:
        with tempfile.TemporaryFile(dir=folder) as copy:
            at = 0
            while at < wanted.size:
                piece = os.pread(descriptor, min(_CHUNK, wanted.size - at), at)
                if not piece:
                    raise refusals.Refused(
                        refusals.Code.BAD_ARCHIVE, "The archive became shorter while it was read."
                    )
                digest.update(piece)
                copy.write(piece)
                at += len(piece)
            if digest.hexdigest() != wanted.archive_sha256:
                raise refusals.Refused(
                    refusals.Code.BAD_ARCHIVE, "The archive's hash is not the one the order names."
                )
            copy.seek(0)
            yield cast("BinaryIO", copy)
    except OSError as error:
        raise refusals.Refused(
            refusals.Code.FAILED, f"The archive cannot be copied: {error.strerror or error}."
        ) from error


def _checked(copy: BinaryIO, *, places: places_kit.Places) -> archive_kit.Archive:
    verify = signing.verifier_of(_release_key(places))
    try:
        return archive_kit.read(copy, verify=verify)
    except release_format.BadRelease as error:
        raise refusals.Refused(refusals.Code.BAD_ARCHIVE, str(error)) from error


def _release_key(places: places_kit.Places) -> ed25519.Ed25519PublicKey:
    """The one that this machine trusts from its first installation on."""
    path = places.layout.release_key
    try:
        pem = private_files.read_regular(path, max_bytes=_MOST_KEY_BYTES)
        key = serialization.load_pem_public_key(pem)
    except (OSError, ValueError, private_files.FileTooLarge) as error:
        raise refusals.Refused(
            refusals.Code.FAILED, f"The release key {path} cannot be read: install again."
        ) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise refusals.Refused(refusals.Code.FAILED, f"{path} is no Ed25519 key: install again.")
    return key


class _Part(io.RawIOBase):
    """A stretch of a file, read as a file of its own."""

    def __init__(self, file: BinaryIO, *, offset: int, size: int) -> None:
        super().__init__()
        self._descriptor = file.fileno()
        self._at = offset
        self._end = offset + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray", /) -> int:  # type: ignore[override]
        piece = os.pread(self._descriptor, min(len(buffer), self._end - self._at), self._at)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
