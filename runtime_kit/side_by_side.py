"""Runs several named pieces of work at once, each within a limit of its own; gives all results.

For: questions to the outside of which some may hang, where one that hangs or breaks must not take
the others with it, and the order of the results is the order of the questions.
Not for: work that shares one fate (``supervise``).
Known limit: a call that blocks inside a thread cannot be ended; ``daemon_threads`` keeps it from
holding up the end of the program.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)  # slots break `Job[str](…)` in Python 3.11
class Job(Generic[T]):
    """One piece of work and how long it may take."""

    name: str
    work: Callable[[], Awaitable[T]]
    seconds: float


async def run(
    jobs: Sequence[Job[T]],
    *,
    late: Callable[[Job[T]], T],
    broken: Callable[[Job[T], Exception], T],
) -> list[T]:
    """The result of each, in the order of the jobs; never raises what a job raises."""

    async def one(job: Job[T]) -> T:
        try:
            async with asyncio.timeout(job.seconds) as limit:
                return await job.work()
        except TimeoutError as error:
            return late(job) if limit.expired() else broken(job, error)
        except Exception as error:  # noqa: BLE001 - the caller says what a broken job means
            return broken(job, error)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(job), name=job.name) for job in jobs]
    return [task.result() for task in tasks]


class DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """A thread a call, none of which holds up the end of the program.

    An event loop waits for its threads at its end, and a name server that does not answer may keep
    one for half a minute.
    """

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[Any]:
        """Runs it in a thread of its own."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                give = functools.partial(future.set_exception, error)
            else:
                give = functools.partial(future.set_result, result)
            with contextlib.suppress(RuntimeError):  # the loop that waited has been closed
                give()

        threading.Thread(target=work, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's own signature
        """Waits for nothing."""
        del wait, cancel_futures


def use_daemon_threads() -> None:
    """For the running loop: whatever blocks in a thread of it no longer holds up its end."""
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
