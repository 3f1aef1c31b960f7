"""Files that only their owner may read, written so that a crash leaves the old or the new one.

Every file is created with its final mode (no moment in which others could read it), written
aside, synced, renamed over the old one, and its folder synced. Known limit: a crash may leave a
`.tmp-` file beside it; the next write of the same file removes it.
"""

import os
import pathlib
import stat

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


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
    aside = path.with_name(f".tmp-{path.name}")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        aside.rename(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_private(path: pathlib.Path, content: bytes, *, mode: int = PRIVATE_FILE) -> bool:
    """Writes the file only if there is none yet; says whether it did.

    For keys: two processes that start at once end with one key, and a real key is never replaced.
    """
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    aside.unlink(missing_ok=True)
    write_private_plain(aside, content, mode=mode)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def write_private_plain(path: pathlib.Path, content: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Creates and syncs a new file; raises `FileExistsError` if there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(descriptor, mode)
        _write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: pathlib.Path, *, max_bytes: int) -> bytes:
    """Reads a private file of at most `max_bytes`.

    Raises `FileNotFoundError`, `LaxMode` when group or others have any right to it, and
    `FileTooLarge`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        info = os.fstat(descriptor)
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


def sync_folder(path: pathlib.Path) -> None:
    """Makes a rename or a new name in the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
