"""The calls of one connection: signed with what it is now, its lists read to their end.

A session that AWS has ended is renewed, and a reading call asked once more. A call that changes
something is not sent again: it is answered as retryable, since a refused session has done nothing,
and the engine looks up before its next try.
"""

import functools
from collections.abc import AsyncIterator
from typing import Any

from provisioning import contract, outcomes
from provisioning.aws import errors, link
from provisioning.aws import identity as identity_kit


class Account:
    """Whoever calls EC2 for one connection."""

    def __init__(self, *, through: link.Link, identity: identity_kit.Identity) -> None:
        self._link = through
        self.identity = identity

    async def call(
        self,
        row: contract.ApiCall,
        *,
        region: str,
        hide: tuple[str, ...] = (),
        **parameters: Any,
    ) -> dict[str, Any]:
        """Sends one call and gives its answer. Raises `Fault`."""
        keys = await self.identity.keys()
        try:
            return await self._link.call(row, region=region, keys=keys, hide=hide, **parameters)
        except outcomes.Fault as fault:
            if fault.code not in errors.EXPIRED or not self.identity.can_renew:
                raise
            self.identity.end(keys)
            if row.changes:
                raise outcomes.Fault(
                    f"{row.name} was refused since the session had ended; it is renewed.",
                    outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                    topic=outcomes.Topic.AUTH,
                    code=fault.code,
                ) from fault
        keys = await self.identity.keys()
        return await self._link.call(row, region=region, keys=keys, hide=hide, **parameters)

    def pages(
        self, row: contract.ApiCall, *, region: str, items: str, **parameters: Any
    ) -> AsyncIterator[Any]:
        """Every item of every page. Raises `Fault`."""
        ask = functools.partial(self.call, row, region=region)
        return link.pages(ask, items=items, **parameters)

    async def listed(
        self, row: contract.ApiCall, *, region: str, items: str, **parameters: Any
    ) -> list[Any]:
        """The same as a list."""
        found = self.pages(row, region=region, items=items, **parameters)
        return [one async for one in found]

    def close(self) -> None:
        """Gives connections back."""
        self._link.close()
