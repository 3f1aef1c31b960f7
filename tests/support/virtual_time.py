"""An event loop whose time jumps to the next timer when nothing is left to do.

Five years of waiting pass in minutes: every wait of asyncio, and every `VirtualClock`, goes by this
loop's time. Work that is done in a thread (the store's writer) is real, so time stands still while
any is under way: whoever starts such work counts it with `Loop.outside`.

Known limit: what waits for a socket of another process would see time rush by; no such thing is
used here.
"""

import asyncio
import contextlib
import datetime
import selectors
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from platform_server.store import contract

_T = TypeVar("_T")
_RESOLUTION_SECONDS = 1e-6
_REAL_WAIT_SECONDS = 5.0  # for a thread that should have been done long ago


class _Selector(selectors.DefaultSelector):
    """Waits for real only while work is under way elsewhere; else the time is moved on."""

    loop: "Loop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.loop.is_waiting_outside:
            return super().select(_REAL_WAIT_SECONDS)
        if timeout is None:
            raise RuntimeError("Nothing is left that could ever happen: the simulation hangs.")
        self.loop.skip(timeout)
        return ready


class Loop(asyncio.SelectorEventLoop):
    """The loop. `time()` are seconds since its start."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        # After years, a float of seconds no longer tells nanoseconds apart.
        self._clock_resolution = _RESOLUTION_SECONDS
        self._seconds = 0.0
        self._outside = 0

    def time(self) -> float:
        """Seconds that have passed in the simulation."""
        return self._seconds

    def skip(self, seconds: float) -> None:
        """Nobody has anything to do for that long."""
        self._seconds += max(seconds, _RESOLUTION_SECONDS)

    @property
    def is_waiting_outside(self) -> bool:
        """Whether a thread is at work, whose result is still to come."""
        return self._outside > 0

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Time stands still for the length of the `with`."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1


class VirtualClock:
    """A clock by the loop's time. `jump` moves the wall time alone, as a person or NTP does."""

    def __init__(self, loop: Loop, *, start: datetime.datetime) -> None:
        self._loop = loop
        self._start = start
        self._ahead = datetime.timedelta(0)

    def now(self) -> datetime.datetime:
        """The wall time."""
        return self._start + datetime.timedelta(seconds=self._loop.time()) + self._ahead

    def monotonic(self) -> float:
        """Seconds that only rise."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Waits in the simulation."""
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """The wall time is another from now on."""
        self._ahead += datetime.timedelta(seconds=seconds)


async def passing(seconds: float) -> None:
    """So much time passes in the simulation."""
    await asyncio.sleep(seconds)


class OutsideStore:
    """A store whose work, done in a thread, holds the simulated time still meanwhile."""

    def __init__(self, store: contract.Store, *, loop: Loop) -> None:
        self._store = store
        self._loop = loop

    @property
    def dialect(self) -> contract.Dialect:
        """The real store's."""
        return self._store.dialect

    async def transact(self, work: Callable[[contract.Tx], Awaitable[_T]]) -> _T:
        """One transaction of the real store."""
        with self._loop.outside():
            return await self._store.transact(work)

    async def rehearse(self, work: Callable[[contract.Tx], Awaitable[_T]]) -> _T:
        """One rolled back."""
        with self._loop.outside():
            return await self._store.rehearse(work)

    async def read(self, work: Callable[[contract.Tx], Awaitable[_T]]) -> _T:
        """One that only reads."""
        with self._loop.outside():
            return await self._store.read(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
