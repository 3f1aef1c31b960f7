"""One writer a data directory, by the kernel's lock on a file.

`flock` ends with the process, so a `kill -9` leaves nothing to clean up. Known limit: it does not
hold between machines that share a directory over a network.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import AsyncIterator, Iterator

from runtime_kit import clock as clock_kit
from worker_agent.settings import failures, paths

_TRIES = 40
_WAIT_SECONDS = 0.25  # a write takes milliseconds; a join holds the lock for seconds


class Busy(failures.Temporary):
    """Another Enlist program is at work in the same data directory; wait for it to end."""


@contextlib.contextmanager
def held(path: pathlib.Path, *, busy: str) -> Iterator[None]:
    """Holds the lock inside the block.

    Raises `Busy` with that message when another has it, and `Temporary` where the file cannot be
    opened (a disk that is full, read-only or another account's).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise failures.Temporary(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def waited_for(where: paths.Paths, *, clock: clock_kit.Clock) -> AsyncIterator[None]:
    """Holds the worker's lock inside the block, once whoever has it lets go.

    Raises `Busy` when it takes longer than ten seconds, and `Temporary` as `held` does.
    """
    busy = f"Another enlist command is at work in {where.folder}."
    for tries_left in reversed(range(_TRIES)):
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(where.lock, busy=busy))
            except Busy:
                if not tries_left:
                    raise
            else:
                yield
                return
        await clock.sleep(_WAIT_SECONDS)


def is_held(path: pathlib.Path) -> bool:
    """Whether some process holds the lock right now; False where the file does not exist.

    Asked with a shared lock for an instant, so that two who ask do not see each other.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
