"""Hands work functions from the event loop to the threads of the SQLite store and back.

A job waits in a mailbox until a thread takes it. While it waits it can be withdrawn (its caller
was cancelled, or has waited long enough); once taken it runs to its end, because a commit cannot
be called back. So a caller that gives up never disturbs the thread or the other jobs.

Known limit: a job taken by a thread that the disk never lets go of is given up after
STALL_SECONDS with its outcome unknown.
"""

import asyncio
import collections
import contextvars
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, Generic, TypeVar, cast

from platform_server.store import contract

T = TypeVar("T")

MAX_WAITING = 10_000
"""Jobs that may wait; the listener's caps keep far below, so more means that nothing drains."""

STALL_SECONDS = 30.0
"""How long a taken job may go on after its waiting limit: far beyond any healthy disk's sync."""


class Job(Generic[T]):
    """One work function on its way through a thread."""

    __slots__ = (
        "context",
        "error",
        "future",
        "rehearsal",
        "taken",
        "timer",
        "value",
        "withdrawn",
        "work",
    )

    def __init__(
        self, work: contract.Work[T], *, future: "asyncio.Future[T]", rehearsal: bool
    ) -> None:
        self.work = work
        self.future = future
        self.rehearsal = rehearsal
        self.context = contextvars.copy_context()
        self.taken = False
        self.withdrawn = False
        self.timer: asyncio.TimerHandle | None = None
        self.value: T | None = None
        self.error: BaseException | None = None

    def run(self, tx: contract.Tx) -> None:
        """Drive the work function to its end, keeping its value or its error."""
        try:
            self.value = self.context.run(drive, self.work, tx)
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the caller
            self.error = error

    def settle(self) -> None:
        """Give the caller its answer; on the loop's thread."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.value))


def drive(work: contract.Work[T], tx: contract.Tx) -> T:
    """Runs a work function that never really suspends, without a loop."""
    coroutine = cast("Coroutine[Any, Any, T]", work(tx))
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    coroutine.close()
    raise RuntimeError("A work function awaited something other than its transaction.")


class Mailbox:
    """Jobs waiting for the threads of one kind."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, wait_seconds: float) -> None:
        self._loop = loop
        self._wait_seconds = wait_seconds
        self._jobs: collections.deque[Job[Any]] = collections.deque()
        self._arrived = threading.Condition()
        self._closed = False

    async def post(self, work: contract.Work[T], *, rehearsal: bool) -> T:
        """Have a thread run the work; raises StoreBusy when none takes it in time."""
        future: asyncio.Future[T] = self._loop.create_future()
        job = Job(work, future=future, rehearsal=rehearsal)
        with self._arrived:
            if self._closed:
                raise contract.StoreUnreachable("The store is closed; the Platform is stopping.")
            if len(self._jobs) >= MAX_WAITING:
                raise contract.StoreBusy(
                    "The store is busy: too much waits for it; try again soon."
                )
            job.timer = self._loop.call_later(self._wait_seconds, self._give_up, job)
            self._jobs.append(job)
            self._arrived.notify()
        try:
            return await future
        finally:
            job.timer.cancel()
            if not future.done() or future.cancelled():
                self._withdraw(job)

    def wait(self) -> bool:
        """Block a thread until a job waits; False when closed and nothing is left."""
        with self._arrived:
            while not self._jobs:
                if self._closed:
                    return False
                self._arrived.wait()
            return True

    def take(self, limit: int) -> list[Job[Any]]:
        """Take up to so many jobs, oldest first; without the withdrawn ones."""
        taken: list[Job[Any]] = []
        with self._arrived:
            while self._jobs and len(taken) < limit:
                job = self._jobs.popleft()
                if not job.withdrawn:
                    job.taken = True
                    taken.append(job)
        return taken

    def anybody_waits(self) -> bool:
        """Whether a job is left that nobody has withdrawn; forgets the withdrawn ones."""
        with self._arrived:
            while self._jobs and self._jobs[0].withdrawn:
                self._jobs.popleft()
            return bool(self._jobs)

    def settle(self, jobs: Iterable[Job[Any]]) -> None:
        """Give all these callers their answers; from a thread, in one wake-up of the loop."""
        try:
            self._loop.call_soon_threadsafe(_settle_all, list(jobs))
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def close(self) -> None:
        """Take no more jobs; the threads finish what waits and end."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def _withdraw(self, job: Job[Any]) -> bool:
        with self._arrived:
            if job.taken:
                return False
            job.withdrawn = True
            return True

    def _give_up(self, job: Job[Any]) -> None:
        if job.future.done():
            return
        if self._withdraw(job):
            seconds = f"{self._wait_seconds:g}"
            job.error = contract.StoreBusy(
                f"The store is busy: it was not free within {seconds} s; try again soon."
            )
            job.settle()
        else:
            job.timer = self._loop.call_later(STALL_SECONDS, self._stalled, job)

    def _stalled(self, job: Job[Any]) -> None:
        if not job.future.done():
            job.future.set_exception(
                contract.StoreUnreachable(
                    "The store does not answer; whether the change was written is unknown, "
                    "asking again is safe. Check the disk."
                )
            )


def _settle_all(jobs: list[Job[Any]]) -> None:
    for job in jobs:
        job.settle()
