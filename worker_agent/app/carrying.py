"""What each kind of order does on this machine. Who takes and keeps orders is `orders`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from wire_protocol import orders as wire
from worker_agent.app import keeper
from worker_agent.orders import work
from worker_agent.settings import failures

Renew = Callable[[bool], Awaitable[None]]
"""Renews the certificate, with a new key or not; raises a `Failure`."""


class Carrying:
    """The kinds that this Agent knows. How it renews follows from its mode and is set later."""

    def __init__(self, keeping: keeper.Keeper) -> None:
        self._keeping = keeping
        self.renew: Renew | None = None

    def kinds(self) -> dict[str, work.Carry]:
        """The work of each kind by its name."""
        return {wire.Kind.REFRESH_TRUST: self._refresh_trust, wire.Kind.RENEW: self._renew}

    async def _refresh_trust(self, _content: Mapping[str, Any]) -> str:
        await self._keeping.ask()
        epoch, serial = self._keeping.held.statement.number
        return f"The trust set {epoch}.{serial} is held."

    async def _renew(self, content: Mapping[str, Any]) -> str:
        if self.renew is None:
            raise failures.Temporary("The Agent is still starting. Give the order again.")
        new_key = content.get("new_key") is True
        await self.renew(new_key)
        what = "with a new key" if new_key else "with the key it had"
        return f"The Platform knows the next certificate, {what}."
