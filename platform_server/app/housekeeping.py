"""What an engine does by itself: keeps the master key in step and removes what is old.

Each engine follows a change of the master key; old rows are removed by every engine in small
steps that harm nobody when two do them at once.
"""

import datetime
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from platform_server.audit import retention
from platform_server.dispatch import records as orders
from platform_server.endpoints import mutations
from platform_server.operations import records as operations
from platform_server.sealing import key_file, rotation
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
_MASTER_KEY_SECONDS: Final = 5.0  # well within rotation.PRESENCE_SECONDS
_PURGE_SECONDS: Final = 300.0
_ORDERS_AT_ONCE: Final = 500
_OPERATIONS_AT_ONCE: Final = 200


class Housekeeper:
    """The engine's own chores."""

    def __init__(
        self,
        store: contract.Store,
        *,
        clock: clock_kit.Clock,
        settings: groups.Settings,
        engine: rotation.Engine,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._engine = engine

    async def keep_master_key(self) -> None:
        """Runs for ever. Ends with `CannotOpen` when the key was changed without this engine."""
        while True:
            await self._clock.sleep(_MASTER_KEY_SECONDS)
            try:
                await rotation.advance(self._store, engine=self._engine, now=self._clock.now())
            except (contract.StoreError, key_file.Unusable) as fault:
                _LOG.warning("The master key was not looked at", extra={"reason": str(fault)})

    async def keep_purging(self) -> None:
        """Runs for ever."""
        while True:
            await self.purge()
            await self._clock.sleep(_PURGE_SECONDS)

    async def purge(self) -> None:
        """Removes old idempotency keys, events, actions, operations and orders, in batches."""
        now = self._clock.now()
        audit = self._settings.audit
        chores: tuple[Callable[[contract.Tx], Awaitable[object]], ...] = (
            lambda tx: mutations.purge(tx, now_micros=clock_kit.to_micros(now)),
            lambda tx: retention.purge(
                tx, now=now, action_days=audit.action_days, event_days=audit.event_days
            ),
            lambda tx: operations.purge(
                tx,
                ended_before=now - datetime.timedelta(days=audit.event_days),
                limit=_OPERATIONS_AT_ONCE,
            ),
            lambda tx: orders.purge(
                tx,
                ended_before=now - datetime.timedelta(days=audit.event_days),
                limit=_ORDERS_AT_ONCE,
            ),
        )
        for chore in chores:
            try:
                await self._store.transact(chore)
            except contract.StoreError as fault:
                _LOG.warning("Old rows were not removed", extra={"reason": str(fault)})

    async def withdraw(self) -> None:
        """Says that this engine goes, so that nobody waits for it."""
        try:
            await rotation.withdraw(self._store, engine=self._engine)
        except contract.StoreError as fault:
            _LOG.warning("The engine could not sign off", extra={"reason": str(fault)})
