"""The one place that reads the time and the one that waits.

Everything that depends on time takes a `Clock`, so a test moves a `ManualClock` by hand and an
hour passes at once. Known limit: code that hands its waiting to the kernel (socket time-outs)
still waits for real.
"""

import asyncio
import datetime
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Reads wall time and monotonic time, and waits."""

    def now(self) -> datetime.datetime:
        """The present moment in UTC, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever rise; for measuring spans, never for dates."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits that long, or until cancelled."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime.datetime:
        """The machine's wall time in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """The kernel's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits for real."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime.datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("A clock starts at a moment with a time zone.")
        self._now = start.astimezone(datetime.UTC)
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime.datetime:
        """The moment to which the clock was last moved."""
        return self._now

    def monotonic(self) -> float:
        """Seconds by which the clock has been moved in all."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock has been moved far enough."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), waiter))
        await waiter

    def advance(self, seconds: float) -> None:
        """Moves the clock and wakes those whose time has come, earliest first."""
        self._elapsed += seconds
        self._now += datetime.timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)

    def jump(self, seconds: float) -> None:
        """Moves wall time alone, as a person or NTP does; monotonic time stays."""
        self._now += datetime.timedelta(seconds=seconds)


def to_micros(moment: datetime.datetime) -> int:
    """Microseconds since 1970 in UTC, the form in which times are stored."""
    delta = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(micros: int) -> datetime.datetime:
    """The moment that `to_micros` stored."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=micros)
