"""Who runs, who holds a lock and who listens on a port, as the kernel's /proc tells it.

For: naming the process that is in the way. Every read is bounded.
Known limit: another account's processes show neither sockets nor environment, so that a holder may
stay unnamed unless root asks.
"""

import contextlib
import os
import pathlib
import stat
import subprocess
from collections.abc import Mapping

_PROC = pathlib.Path("/proc")
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_MOST_PROCESSES = 20_000
_MOST_BYTES = 1_048_576
_JOURNAL_LINES = 1000
_JOURNAL_SECONDS = 5.0


def holder_of_flock(path: pathlib.Path) -> int | None:
    """The process that holds the whole-file lock (flock) on this file."""
    return next(iter(_holders(path, kind="FLOCK")), None)


def holders_of_records(path: pathlib.Path) -> list[int]:
    """The processes that hold a lock on a part of this file (POSIX), as SQLite does."""
    return sorted(_holders(path, kind="POSIX"))


def name_of(pid: int) -> str:
    """Its name and number, as `sqlite3 (pid 4711)`."""
    with contextlib.suppress(OSError):
        return f"{_read(_PROC / str(pid) / 'comm').strip()} (pid {pid})"
    return f"pid {pid}"


def environment_of(pid: int) -> Mapping[str, str] | None:
    """What it was started with; None where we may not look."""
    try:
        content = _read(_PROC / str(pid) / "environ")
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in content.split("\0") if entry)
    return {name: value for name, _, value in pairs}


def log_of(pid: int, *, most_bytes: int) -> bytes | None:
    """The last whole lines of its standard error, where that goes to a file or to the journal.

    The file is opened by way of the process, never by its name, which may lead elsewhere by now.
    """
    try:
        descriptor = os.open(_PROC / str(pid) / "fd" / "2", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a socket, as the journal's, cannot be opened
        return _from_journal(pid, most_bytes=most_bytes)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return None
        start = max(0, info.st_size - most_bytes)
        file.seek(start)
        content = file.read(most_bytes)
    return content.partition(b"\n")[2] if start else content


def _from_journal(pid: int, *, most_bytes: int) -> bytes | None:
    try:
        done = subprocess.run(
            ["journalctl", "--quiet", "--no-pager", f"--lines={_JOURNAL_LINES}", f"_PID={pid}"],  # noqa: S607 - the distribution's, by name
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_JOURNAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[-most_bytes:] or None


def listeners_on(port: int) -> frozenset[str]:
    """The inodes of the sockets that listen on this TCP port."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in _read(_PROC / "net" / name).splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return frozenset(found)


def with_socket(inodes: frozenset[str]) -> int | None:
    """The first process that has one of these sockets open."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    numbers = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names alone
    for number in numbers[:_MOST_PROCESSES]:
        with contextlib.suppress(OSError), os.scandir(_PROC / number / "fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) in wanted:  # noqa: PTH115 - a path from scandir
                        return int(number)
    return None


def _holders(path: pathlib.Path, *, kind: str) -> set[int]:
    try:
        info = path.stat()
        lines = _read(_PROC / "locks").splitlines()
    except OSError:
        return set()
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}"
    found: set[int] = set()
    for line in lines:
        words = line.split()
        if len(words) <= 5 or words[1] != kind or not words[4].isdigit():
            continue
        place, _, inode = words[5].rpartition(":")
        pid = int(words[4])
        # On an overlay the kernel names another device than `stat` does: then the open file tells.
        if inode == str(info.st_ino) and (place == device or _has_open(pid, info)):
            found.add(pid)
    return found


def _has_open(pid: int, info: os.stat_result) -> bool:
    with contextlib.suppress(OSError), os.scandir(_PROC / str(pid) / "fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(entry.path), info):  # noqa: PTH116 - a path from scandir
                    return True
    return False


def _read(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")
