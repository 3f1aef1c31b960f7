"""The folder of bundles from the engine's side: what lies there, putting in, taking out.

An archive counts from the moment it has its name; what goes beside it (release.json, the
installer) is there before. The two files that are derived, the line that names the latest and the
installer, are written last and can be written anew at any time (`refresh`), so that whatever was
killed in between is finished by the same command.
Not for: judging a signature. Blocking: call it in a thread.
Known limit: each engine has its own folder; with several, bundles are added at each machine.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import stat
from dataclasses import dataclass
from typing import Final

from installer import archive as archives
from installer import release as releases
from platform_server.bundles import places
from runtime_kit import crash_points, private_files

_RELEASE_SUFFIX: Final = ".json"
_INSTALLER_SUFFIX: Final = places.INSTALLER_SUFFIX
_SHARED_BITS: Final = 0o044

BESIDE = crash_points.declare(
    "bundles.beside", story="what goes beside an archive is there, the archive is not"
)
NAMED = crash_points.declare(
    "bundles.named", story="an archive has its name, nothing says yet that it is the latest"
)
UNCOUNTED = crash_points.declare(
    "bundles.uncounted", story="nobody is told of an archive any more, it is still there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An archive on the shelf."""

    sha256: str
    size: int
    release: releases.Release
    is_latest: bool

    @property
    def name(self) -> str:
        """What the archive is called."""
        return self.release.archive_name

    @property
    def path(self) -> str:
        """Its address at the bundle port."""
        return f"{places.ARCHIVE_PREFIX}{self.sha256}"


class Shelf:
    """One folder of bundles; `put`, `take_out` and `refresh` are one at a time, by the caller."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._archives = folder / places.ARCHIVES

    def all(self) -> list[Bundle]:
        """What lies there, the newest first; what cannot be read is left out."""
        named = {arch: self._named_latest(arch) for arch in places.ARCHITECTURES}
        found = [
            Bundle(
                sha256=sha256,
                size=size,
                release=release,
                is_latest=named[release.arch] == sha256,
            )
            for sha256, size, release in self._archived()
        ]
        return sorted(found, key=_age, reverse=True)

    def latest(self, arch: str) -> Bundle | None:
        """The newest for that architecture, once machines are told of it."""
        return next((one for one in self.all() if one.is_latest and one.release.arch == arch), None)

    def holds(self, sha256: str) -> pathlib.Path | None:
        """The file of an archive, if it is there."""
        path = self._archives / sha256
        return path if path.is_file() else None

    def installer_hash(self, sha256: str) -> str | None:
        """SHA-256 of the script that came with the archive; None where it cannot be read."""
        try:
            return hashlib.sha256(self._installer(sha256)).hexdigest()
        except OSError:
            return None

    def put(self, found: archives.Archive, *, upload: pathlib.Path) -> None:
        """Gives a checked archive its name and makes what is derived; raises `OSError`.

        `upload` lies in the same file system; it may be the archive's own place.
        """
        place = self._archives / found.sha256
        mode = self._mode()
        private_files.write_private(
            self._beside(found.sha256, _INSTALLER_SUFFIX), found.install_sh, mode=mode
        )
        private_files.write_private(
            self._beside(found.sha256, _RELEASE_SUFFIX), found.release.to_bytes(), mode=mode
        )
        crash_points.reach(BESIDE)
        if upload != place:
            _sync(upload, mode=mode)
            upload.rename(place)
            private_files.sync_folder(self._archives)
        crash_points.reach(NAMED)
        self.refresh()

    def take_out(self, sha256: str) -> None:
        """Removes an archive; the newest of the others becomes the latest; raises `OSError`."""
        aside = [self._beside(sha256, one) for one in (_RELEASE_SUFFIX, _INSTALLER_SUFFIX)]
        aside[0].unlink(missing_ok=True)  # from now on it is not counted
        self.refresh()
        crash_points.reach(UNCOUNTED)
        (self._archives / sha256).unlink(missing_ok=True)
        aside[1].unlink(missing_ok=True)
        private_files.sync_folder(self._archives)

    def refresh(self) -> None:
        """Writes what is derived from what lies there; raises `OSError`."""
        ranked = sorted(self._archived(), key=lambda one: _rank(one[2], one[0]), reverse=True)
        self._write(
            places.INSTALLER,
            self._installer(ranked[0][0]) if ranked else None,
        )
        for arch in places.ARCHITECTURES:
            newest = next((one for one in ranked if one[2].arch == arch), None)
            line = None
            if newest is not None:
                line = releases.sums([(newest[2].archive_name, newest[0])])
            self._write(places.latest(arch), line)

    def is_fresh(self, sha256: str) -> bool:
        """Whether the archive is there with all that goes beside it, and nothing is left to do."""
        there = {one.sha256: one for one in self.all()}
        if sha256 not in there or not (self._folder / places.INSTALLER).is_file():
            return False
        mine = there[sha256]
        same = [one for one in there.values() if one.release.arch == mine.release.arch]
        return max(same, key=_age).is_latest

    def _archived(self) -> list[tuple[str, int, releases.Release]]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._archives):
                if len(entry.name) != 64 or not entry.is_file(follow_symlinks=False):
                    continue
                release = self._release(entry.name)
                if release is not None:
                    found.append((entry.name, entry.stat().st_size, release))
        return found

    def _installer(self, sha256: str) -> bytes:
        path = self._beside(sha256, _INSTALLER_SUFFIX)
        try:
            return private_files.read_regular(
                path, max_bytes=releases.MOST_BYTES[releases.INSTALL_SH]
            )
        except private_files.FileTooLarge as error:
            raise OSError(errno.EFBIG, "This is no installer of ours", str(path)) from error

    def _release(self, sha256: str) -> releases.Release | None:
        try:
            data = private_files.read_regular(
                self._beside(sha256, _RELEASE_SUFFIX),
                max_bytes=releases.MOST_BYTES[releases.RELEASE],
            )
            return releases.parse_release(data)
        except (OSError, private_files.FileTooLarge, releases.BadRelease):
            return None

    def _named_latest(self, arch: str) -> str | None:
        try:
            data = private_files.read_regular(self._folder / places.latest(arch), max_bytes=512)
            return releases.parse_latest(data)[0]
        except (OSError, private_files.FileTooLarge, releases.BadRelease):
            return None

    def _beside(self, sha256: str, suffix: str) -> pathlib.Path:
        return self._archives / f"{sha256}{suffix}"

    def _write(self, name: str, content: bytes | None) -> None:
        path = self._folder / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            private_files.write_private(path, content, mode=self._mode())

    def _mode(self) -> int:
        """Files are for others where the folder is: a bundle server with an account of its own."""
        return 0o600 | (stat.S_IMODE(self._folder.stat().st_mode) & _SHARED_BITS)


def _age(one: Bundle) -> tuple[tuple[int, ...], str, str]:
    return _rank(one.release, one.sha256)


def _rank(release: releases.Release, sha256: str) -> tuple[tuple[int, ...], str, str]:
    """By version, then by the time of its commit; the hash makes it an order."""
    return tuple(int(part) for part in release.version.split(".")), release.made_at, sha256


def _sync(path: pathlib.Path, *, mode: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
