"""Named tasks with one fate: an unexpected end of one ends the program.

A program that goes on without one of its parts lies about its health; one that stops is started
again by systemd. Not for: restarting anything. Known limit: a task that swallows cancellation
keeps the others waiting until the caller's own limit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

_LOG = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


class UnexpectedEnd(Exception):
    """A part of the program ended by itself: its name, and what it died of, stand in the log."""


async def run(parts: Mapping[str, Work], *, stop: asyncio.Event) -> None:
    """Runs all parts until `stop` is set, then cancels them and waits for their end.

    Raises `UnexpectedEnd` when one returns or raises before that; the others are cancelled first.
    """
    fault: UnexpectedEnd | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_watch(name, work, stop=stop), name=name)
                for name, work in parts.items()
            ]
            await stop.wait()
            for task in tasks:
                task.cancel()
    except* UnexpectedEnd as several:
        fault = _first(several)
    if fault is not None:
        raise fault


async def _watch(name: str, work: Work, *, stop: asyncio.Event) -> None:
    try:
        await work()
    except asyncio.CancelledError:
        raise
    except Exception as fault:
        if stop.is_set():
            _LOG.warning("A part met a fault while stopping", extra={"part": name}, exc_info=True)
            return
        _LOG.exception("A part of the program died", extra={"part": name})
        raise UnexpectedEnd(f"The part {name} died: {fault}") from fault
    if not stop.is_set():
        raise UnexpectedEnd(f"The part {name} ended by itself.")


def _first(several: BaseExceptionGroup[UnexpectedEnd]) -> UnexpectedEnd:
    for one in several.exceptions:
        return _first(one) if isinstance(one, BaseExceptionGroup) else one
    raise ValueError("An exception group is never empty.")
