"""What is checked on this machine before the token leaves it.

A full disk or a taken port found after the token was sent would leave a machine that is a node and
cannot be one. Free space is asked of the file system and then proved by really writing, since
quotas and thin volumes make the first answer a guess. What an interrupted proof left behind is ours
and removed by the next.
"""

import errno
import os
import pathlib

from runtime_kit import crash_points, private_files
from worker_agent.settings import failures, paths

NEEDED_BYTES = 2_097_152  # all files of a worker stay below 1.3 MB: twice, for the write aside
NEEDED_FILES = 16
PROBE_BYTES = 262_144
_PROBE_NAME = "space-probe"
_OF_MOUNTS = "lost+found"  # stands in a fresh file system made for the data directory

PROBED = crash_points.declare(
    "join.room-probed", story="A probe of the disk's space is written and not yet removed."
)


def check_room(where: paths.Paths) -> None:
    """Makes the data directory and proves that it can be written; raises `Misuse` if not."""
    try:
        _check_foreign(where)
        private_files.ensure_private_folder(where.folder)
        _check_free(where.folder)
        with private_files.written_aside(where.folder / _PROBE_NAME, os.urandom(PROBE_BYTES)):
            crash_points.reach(PROBED)
    except OSError as error:
        raise cannot_write(where.folder, error=error) from error


def look_for_room(where: paths.Paths) -> None:
    """The same as far as it goes without writing, for `--check`; raises `Misuse`."""
    folder = where.folder
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise failures.Misuse(
            f"{folder} cannot be written by this account, so that {where.folder} cannot be made.",
            hint="Run the command as root, or name a folder of your own with --data-dir.",
        )
    _check_foreign(where)
    _check_free(folder)


def cannot_write(folder: pathlib.Path, *, error: OSError) -> failures.Misuse:
    """The failure for a data directory that cannot be written, in words for its cause."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"Free at least {NEEDED_BYTES // 1024} KiB there, then run the same command again."
        return failures.Misuse(f"The disk under {folder} is full.", hint=hint)
    reason = error.strerror or str(error)
    return failures.Misuse(
        f"The data directory {folder} cannot be written: {reason}.",
        hint="Run the command as its owner or as root, or name another with --data-dir.",
    )


def _check_foreign(where: paths.Paths) -> None:
    """Keeps a mistyped `--data-dir /tmp` from being made private to one account."""
    if not where.folder.is_dir():
        return
    own = {path.name for path in where.entries()}
    left_aside = {*own, _PROBE_NAME}
    names = {
        path.name
        for path in where.folder.iterdir()
        if private_files.aside_of(path.name) not in left_aside and path.name != _OF_MOUNTS
    }
    if names and names.isdisjoint(own):
        raise failures.Misuse(
            f"{where.folder} is not empty and no worker's data directory.",
            hint="Nothing was changed. Name a folder of its own with --data-dir.",
        )


def _check_free(folder: pathlib.Path) -> None:
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    # Some file systems count no files: then both figures are zero.
    if free < NEEDED_BYTES or (space.f_files and space.f_favail < NEEDED_FILES):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
