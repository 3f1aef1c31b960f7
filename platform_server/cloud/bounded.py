"""A wait for one provider that never keeps the others waiting: by the clock, then cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from runtime_kit import clock as clock_kit

T = TypeVar("T")


async def within(work: Coroutine[Any, Any, T], *, seconds: float, clock: clock_kit.Clock) -> T:
    """What the work gives; raises `TimeoutError` once the time is up, and what the work raises."""
    working = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, limit}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError(f"It took longer than {seconds:.0f} s.")
    finally:
        for task in (working, limit):
            task.cancel()
        await asyncio.gather(working, limit, return_exceptions=True)
