"""Waits of asynchronous tests for what other processes do; all of them are bounded.

What a test can be told of, it waits for by itself. Not for waits in threads: those of `operators`
and `machine`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from runtime_kit import clock as clock_kit

PACE_SECONDS = 0.02


async def until(true: Callable[[], bool], *, seconds: float = 40.0) -> None:
    """Looks again and again; raises `TimeoutError` when it does not come true in time."""
    async with asyncio.timeout(seconds):
        while not true():
            await pace()


async def looks(*, seconds: float = 40.0) -> AsyncIterator[None]:
    """A step for each look at something that must be asked for; raises `TimeoutError` at the end.

    Leave it by `break` once it is seen.
    """
    async with asyncio.timeout(seconds):
        while True:
            yield
            await pace()


async def pace(*, times: int = 1) -> None:
    """The pause of a steady stream, which is no flood (tests/faults/test_listener_abuse.py)."""
    await asyncio.sleep(times * PACE_SECONDS)


@contextlib.asynccontextmanager
async def moving(clock: clock_kit.ManualClock) -> AsyncIterator[None]:
    """The clock goes on by itself, a second a pace, for the length of an `async with`."""

    async def go_on() -> None:
        while True:
            clock.advance(1)
            await pace()

    going = asyncio.create_task(go_on())
    try:
        yield
    finally:
        going.cancel()
