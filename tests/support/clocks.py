"""Clocks for tests that need real sockets beside a time of their own."""

import asyncio
import datetime

from runtime_kit import clock as clock_kit


class ShiftedClock(clock_kit.SystemClock):
    """The machine's clock, wrong by a fixed amount, whose waits pass at once.

    What was waited for counts as passed, so that limits on waiting end as they would.
    """

    def __init__(self, ahead: datetime.timedelta = datetime.timedelta(0)) -> None:
        self._ahead = ahead
        self._slept = 0.0
        self.sleeps: list[float] = []

    def now(self) -> datetime.datetime:
        """The wrong time."""
        return super().now() + self._ahead + datetime.timedelta(seconds=self._slept)

    def monotonic(self) -> float:
        """Seconds that rise with the waits."""
        return super().monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        """Passes at once."""
        self.sleeps.append(seconds)
        self._slept += seconds
        await asyncio.sleep(0)
