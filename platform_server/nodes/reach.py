"""The one dial after an enrollment: can the Platform reach the Agent that wants to listen (Z-33)?

The machine holds its port during the join and answers one health question. A no is a warning for
the person at the machine, with the address; the enrollment stands either way, and the probe goes
on asking.
"""

import asyncio
import dataclasses
from typing import Final

from platform_server.nodes import asking

TIMEOUT_SECONDS: Final = 3.0
MOST_AT_ONCE: Final = 32


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Whether the Agent answered, and if not a sentence on why."""

    reachable: bool
    reason: str | None


class Reacher:
    """Tries Agents that have just enrolled; beyond so many at once it does not try."""

    def __init__(self, asker: asking.Asker) -> None:
        self._asker = asker
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def reach(self, target: asking.Target) -> Reached | None:
        """Dials once, within three seconds; None when too many others are being tried."""
        if self._places.locked():
            return None
        async with self._places:
            try:
                heard = await self._asker.ask(target, timeout_s=TIMEOUT_SECONDS)
            except asking.NoAnswer as fault:
                return Reached(
                    reachable=False,
                    reason=f"not reachable from the Platform at {target.url}: {fault}",
                )
        if not heard.is_from(target.node_id):
            return Reached(
                reachable=False,
                reason=f"not reachable from the Platform at {target.url}: "
                "another node answers there",
            )
        return Reached(reachable=True, reason=None)
