"""Waits of asynchronous tests for what other processes do; all of them are bounded.

What a test can be told of, it waits for by itself. Not for waits in threads: those of `operators`
and `machine`.
"""

import asyncio
from collections.abc import Callable

PACE_SECONDS = 0.02


async def until(true: Callable[[], bool], *, seconds: float = 40.0) -> None:
    """Looks again and again; raises `TimeoutError` when it does not come true in time."""
    async with asyncio.timeout(seconds):
        while not true():
            await pace()


async def pace(*, times: int = 1) -> None:
    """The pause of a steady stream, which is no flood (tests/faults/test_listener_abuse.py)."""
    await asyncio.sleep(times * PACE_SECONDS)
