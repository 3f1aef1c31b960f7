"""The tasks of one session by name: started once, waited for together, ended together.

A task that meets a fault nobody foresaw says so in the log and ends; the session goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

LOGGER = logging.getLogger(__name__)


class Tasks:
    """What runs beside a session's heartbeats."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Starts it, unless one of that name still runs."""
        if name not in self._running:
            self._running[name] = asyncio.create_task(self._run(name, work), name=name)

    async def first(self, *names: str) -> None:
        """Waits until one of these has ended."""
        waited = [self._running[name] for name in names if name in self._running]
        if len(waited) == len(names):
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    async def finish(self, name: str) -> None:
        """Waits until the one of that name has ended, if it runs."""
        if name in self._running:
            await asyncio.wait([self._running[name]])

    async def stop(self, *names: str) -> None:
        """Cancels these and waits for their end; all of them where none is named."""
        tasks = [self._running[name] for name in names or tuple(self._running)
                 if name in self._running]  # fmt: skip
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception:
            LOGGER.exception("A part of the session met a fault of ours", extra={"part": name})
        finally:
            self._running.pop(name, None)
