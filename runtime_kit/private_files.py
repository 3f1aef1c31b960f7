"""Files that only their owner may read, written so that a crash leaves the old or the new one.

Every file is created with its final mode (no moment in which others could read it), written
aside under a `.tmp-` name of its own, synced, renamed over the old one, and its folder synced.
A process that is killed leaves what it wrote aside; the next write of the same file, or `sweep`,
removes it. Whose writer is still at work is told by the kernel: each holds a lock (`flock`) on what
it writes aside, which ends with the process, so that two at once never take each other's. Known
limit: the lock does not hold between machines that share a folder over a network.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator

from runtime_kit import crash_points

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

Reader = Callable[..., bytes]
"""`read_private`, or `read_bounded` where lax modes are only to be told: `(path, max_bytes=)`."""

ASIDE = crash_points.declare(
    "private-file.aside", story="A file that must not be there yet is written, under another name."
)
LINKED = crash_points.declare(
    "private-file.linked", story="That file has its name, and still the other one as well."
)

_ASIDE = re.compile(r"\.tmp-(.+?)(-[0-9a-f]{8})?", re.DOTALL)


class FileTooLarge(Exception):
    """The file is larger than what it may hold: it is not one that Enlist wrote."""


class LaxMode(Exception):
    """Others may read or write the file: make it private with chmod 600, or replace its secret."""


def ensure_private_folder(path: pathlib.Path) -> None:
    """Makes the folder with mode 0700, or tightens one that is there and ours.

    Raises `PermissionError` when it belongs to another account: the caller says whose it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(path, PRIVATE_FOLDER)  # noqa: PTH102 - Path.mkdir hides the mode behind the umask too
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(f"{path} is in the way: a folder is needed there.") from None
    info = path.stat()
    if info.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to uid {info.st_uid}, not to uid {os.geteuid()}.")
    if stat.S_IMODE(info.st_mode) != PRIVATE_FOLDER:
        path.chmod(PRIVATE_FOLDER)


def write_private(path: pathlib.Path, content: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Replaces the file's content in one step that a crash cannot split.

    Raises `OSError` when the disk is full or not writable; the old file then stands unchanged.
    """
    with written_aside(path, content, mode=mode) as aside:
        aside.rename(path)
    sync_folder(path.parent)


def create_private(path: pathlib.Path, content: bytes, *, mode: int = PRIVATE_FILE) -> bool:
    """Writes the file only if there is none yet; says whether it did.

    For keys: two processes that start at once end with one key, and a real key is never replaced.
    A caller that finds the file in its place calls `sweep`: one killed between giving the file its
    name and taking the other name away leaves both.
    """
    with written_aside(path, content, mode=mode) as aside:
        crash_points.reach(ASIDE)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        crash_points.reach(LINKED)
    sync_folder(path.parent)
    return True


@contextlib.contextmanager
def written_aside(
    path: pathlib.Path, content: bytes, *, mode: int = PRIVATE_FILE
) -> Iterator[pathlib.Path]:
    """The content, whole and synced, beside `path` under a name of its own.

    At the end of the block that name is gone. Leftovers of earlier writes are removed first, since
    the room may be needed. Raises `OSError` when the disk is full or not writable.
    """
    sweep(path)
    aside, descriptor = _open_aside(path, mode=mode)
    try:
        os.fchmod(descriptor, mode)
        _write_all(descriptor, content)
        os.fsync(descriptor)
        yield aside
    finally:
        aside.unlink(missing_ok=True)
        os.close(descriptor)  # and the lock with it, after the name is gone


def sweep(path: pathlib.Path) -> None:
    """Removes what writers of this file that are no more left aside. Never raises `OSError`.

    What cannot be opened or removed here is left: it is another account's, or the folder read-only.
    """
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if aside_of(entry.name) == path.name:
                with contextlib.suppress(OSError):
                    _remove_if_left(entry.path)


def is_left(path: pathlib.Path) -> bool:
    """Whether the writer of this `.tmp-` file is no more; no too where it cannot be looked at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def aside_of(name: str) -> str | None:
    """The name of the file that a `.tmp-` name was written for; None for any other name."""
    found = _ASIDE.fullmatch(name)
    return found[1] if found else None


def _open_aside(path: pathlib.Path, *, mode: int) -> tuple[pathlib.Path, int]:
    while True:
        aside = path.with_name(f".tmp-{path.name}-{os.urandom(4).hex()}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits for a sweeper at most
            if os.fstat(descriptor).st_nlink:
                return aside, descriptor
        except BaseException:
            aside.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        os.close(descriptor)  # swept between its creation and its lock: once more


def _remove_if_left(aside: str) -> None:
    descriptor = os.open(aside, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(aside)  # noqa: PTH108 - a name from scandir
    finally:
        os.close(descriptor)


def read_private(path: pathlib.Path, *, max_bytes: int) -> bytes:
    """Reads a private file of at most `max_bytes`.

    Raises `FileNotFoundError`, `LaxMode` when group or others have any right to it, and
    `FileTooLarge`. A pipe or a device in the file's place is an `OSError`, and nobody waits for it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = _regular(descriptor, path=path)
        if stat.S_IMODE(info.st_mode) & 0o077:
            raise LaxMode(
                f"{path} has mode {stat.S_IMODE(info.st_mode):04o}: others may have read it. "
                f"If nobody has, run: chmod 600 {path}"
            )
        return _read_bounded(descriptor, path=path, max_bytes=max_bytes)
    finally:
        os.close(descriptor)


def read_bounded(path: pathlib.Path, *, max_bytes: int) -> bytes:
    """Reads any file of at most `max_bytes`; raises `FileTooLarge` beyond that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _read_bounded(descriptor, path=path, max_bytes=max_bytes)
    finally:
        os.close(descriptor)


def read_regular(path: pathlib.Path, *, max_bytes: int) -> bytes:
    """Reads a file that is read again later, so that no pipe can stand in its place.

    Raises `FileTooLarge`, and `OSError` for whatever is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _regular(descriptor, path=path)
        return _read_bounded(descriptor, path=path, max_bytes=max_bytes)
    finally:
        os.close(descriptor)


def sync_folder(path: pathlib.Path) -> None:
    """Makes a rename or a new name in the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, *, path: pathlib.Path) -> os.stat_result:
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return info


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_bounded(descriptor: int, *, path: pathlib.Path, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = max_bytes + 1
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise FileTooLarge(f"{path} is larger than {max_bytes} bytes.")
    return b"".join(parts)
