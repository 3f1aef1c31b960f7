"""Archives on their way in: pieces of a file, put together under the hash they are to have.

A transfer that broke off goes on where it stopped. What is not finished within a day is removed
when the next one begins; more than a few at a time are refused, so that a disk is not filled by
what nobody finishes. Blocking: call it in a thread.
"""

import datetime
import os
import pathlib
import shutil
from typing import Final

from runtime_kit import private_files

_FOLDER: Final = ".uploads"
_MOST: Final = 4
_KEEP_SECONDS: Final = 86_400
_SPARE_BYTES: Final = 64 * 1024 * 1024  # a Platform needs room for more than bundles


class Refused(Exception):
    """The piece does not fit; the sentence says why and what to do."""


class NoRoom(Exception):
    """The disk has no room for the archive."""


class Uploads:
    """The unfinished archives of one folder of bundles."""

    def __init__(self, folder: pathlib.Path, *, most_bytes: int) -> None:
        self._folder = folder / _FOLDER
        self._most_bytes = most_bytes

    def path(self, sha256: str) -> pathlib.Path:
        """Where the archive of that hash is put together."""
        return self._folder / sha256

    def size(self, sha256: str) -> int:
        """How much of it is there."""
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def put(
        self, sha256: str, *, offset: int, size: int, piece: bytes, now: datetime.datetime
    ) -> int:
        """Adds a piece of an archive that has `size` bytes in all; gives how much is there.

        Raises `Refused`, `NoRoom`, `OSError`.
        """
        if size > self._most_bytes:
            raise Refused(
                f"The archive has {size} bytes, and bundles.most_bytes allows {self._most_bytes}."
            )
        if offset + len(piece) > size:
            raise Refused("The piece reaches past the archive's end.")
        private_files.ensure_private_folder(self._folder)
        if offset == 0:
            self._begin(sha256, size=size, now=now)
        there = self.size(sha256)
        if offset > there:
            raise Refused(f"{there} bytes of this archive are here: go on from there.")
        path = self.path(sha256)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, offset)
            _write(descriptor, piece, offset=offset)
        finally:
            os.close(descriptor)
        return offset + len(piece)

    def forget(self, sha256: str) -> None:
        """Removes what is there of it."""
        self.path(sha256).unlink(missing_ok=True)

    def _begin(self, sha256: str, *, size: int, now: datetime.datetime) -> None:
        others = [one for one in self._folder.iterdir() if one.name != sha256]
        for one in list(others):
            if now.timestamp() - one.stat().st_mtime > _KEEP_SECONDS:
                one.unlink()
                others.remove(one)
        if len(others) >= _MOST:
            raise Refused(
                f"{_MOST} archives are being added already; finish them, or try again tomorrow."
            )
        if shutil.disk_usage(self._folder).free < size + _SPARE_BYTES:
            raise NoRoom(
                f"There is no room for {size} bytes under {self._folder.parent}; remove an old "
                "bundle: enlist platform bundles remove VERSION"
            )


def _write(descriptor: int, piece: bytes, *, offset: int) -> None:
    """Writes all or nothing of the piece."""
    done = 0
    try:
        while done < len(piece):
            done += os.pwrite(descriptor, piece[done:], offset + done)
    except OSError:
        os.ftruncate(descriptor, offset)
        raise
