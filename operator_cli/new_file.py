"""A file that appears whole, under its name, or not at all.

Written without a name (O_TMPFILE), so that a process that is killed leaves nothing behind; where
the file system cannot do that (NFS), under a `.tmp-` name beside it. Mode 0600 from the first
byte; synced before it gets its name. Not for: secrets that fit in memory
(runtime_kit.private_files).
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import BinaryIO

from runtime_kit import crash_points, private_files

NAMELESS = crash_points.declare(
    "new-file.nameless", story="a file is whole and synced, and has no name yet"
)
ASIDE = crash_points.declare(
    "new-file.aside", story="a file is whole under another name, beside the one it is to replace"
)


@contextlib.contextmanager
def written(path: pathlib.Path, *, replace: bool) -> Iterator[BinaryIO]:
    """A file to fill; at the end of the block it stands at `path`, if nothing was raised.

    Raises `FileExistsError` when there is one and it is not to be replaced, and `OSError`.
    """
    if not replace and os.path.lexists(path):
        raise FileExistsError(f"{path} exists.")
    folder = path.parent
    aside: pathlib.Path | None = None
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, private_files.PRIVATE_FILE)
    except OSError:  # this file system has none, or the folder is none: the next line tells
        aside = _aside_of(path)
        descriptor = os.open(
            aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, private_files.PRIVATE_FILE
        )
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), private_files.PRIVATE_FILE)
            yield file
            file.flush()
            os.fsync(file.fileno())
            crash_points.reach(NAMELESS)
            if aside is None and replace:
                aside = _aside_of(path)
                _name(file, aside)
                crash_points.reach(ASIDE)
            if aside is None:
                _name(file, path)
            elif replace:
                aside.rename(path)
            else:
                os.link(aside, path)
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)
    private_files.sync_folder(folder)


def _name(file: BinaryIO, path: pathlib.Path) -> None:
    # With a descriptor, which the full path makes meaningless, Python calls linkat, which follows.
    source = f"/proc/self/fd/{file.fileno()}"
    os.link(source, path, src_dir_fd=file.fileno(), follow_symlinks=True)


def _aside_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".tmp-{path.name}-{os.urandom(4).hex()}")
