"""One engine at a time on one SQLite file, whoever starts it.

A flock beside the file, held for the engine's life and gone with it. A replaced engine may take a
moment to let go, so the new one waits, bounded. On PostgreSQL any number of engines may run and
nothing is locked.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final

from platform_server.app import failures
from platform_server.store import opening
from wire_protocol import problems

_WAIT_SECONDS: Final = 6.0  # an engine that is told to stop is gone by then
_STEP_SECONDS: Final = 0.05


@contextlib.contextmanager
def held(url: str) -> Iterator[None]:
    """Holds the lock of this store; raises `CannotStart` when another engine keeps it."""
    if not url.startswith("sqlite:"):
        yield
        return
    try:
        path = opening.sqlite_path(url)
    except ValueError as fault:
        raise failures.CannotStart(str(fault), exit_code=problems.Exit.INVALID) from None
    try:
        descriptor = os.open(
            path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except OSError as fault:
        raise failures.CannotStart(
            f"The folder of the store {path} cannot be written: {fault.strerror}. Start the "
            "Platform as its owner.",
            exit_code=problems.Exit.INVALID,
        ) from None
    try:
        if not _take(descriptor):
            raise failures.CannotStart(
                f"Another engine works on the store {path}. On SQLite one may run: stop the other "
                "Platform, or use PostgreSQL (--database-url postgresql://…).",
                exit_code=problems.Exit.CONFLICT,
            )
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_STEP_SECONDS)  # nothing else runs in this process yet
        else:
            return True
