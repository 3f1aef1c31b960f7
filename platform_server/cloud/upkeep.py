"""Deletes machines whose orders failed long enough ago, where the operator's setting says so.

Off by default: what failed is kept, for somebody to look at, and costs money meanwhile. With
`[cloud] auto_destroy_failed_after` it is deleted like any other machine, as an operation of its
own, in the Platform's name. One engine does it.
"""

import datetime
import functools
import logging
from collections.abc import Sequence
from typing import Final

from platform_server.audit import actions
from platform_server.cloud import requests
from platform_server.nodes import leading
from platform_server.operations import holding, reconciler
from platform_server.store import contract
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
LEASE: Final = "cloud-upkeep"
TICK_SECONDS: Final = 60.0
MOST_AT_ONCE: Final = 100


class Upkeep:
    """The task."""

    def __init__(
        self,
        store: contract.Store,
        *,
        destroy_after: datetime.timedelta,
        environment: str,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._destroy_after = destroy_after
        self._environment = environment
        self._clock = clock

    async def run(self) -> None:
        """For ever; a store that is away is waited for."""
        lease = leading.Leading(self._store, name=LEASE, clock=self._clock)
        while True:
            await self._clock.sleep(TICK_SECONDS)
            try:
                if await lease.holds():
                    await self.tick()
            except contract.StoreError as fault:
                _LOG.warning("Failed machines wait", extra={"reason": str(fault)})

    async def tick(self) -> int:
        """Has those deleted whose time has come; gives how many."""
        now = self._clock.now()
        due = await self._store.read(functools.partial(_list_due, before=now - self._destroy_after))
        asked = requests.Asked(by=holding.ACTOR, now=now, environment=self._environment)
        for machine_id in due:
            try:
                await self._store.transact(
                    functools.partial(self._delete, machine_id=machine_id, asked=asked)
                )
            except (requests.Busy, requests.WrongState) as fault:
                _LOG.info("A failed machine is somebody's already", extra={"reason": str(fault)})
        if due:
            self._store.signal(reconciler.CHANNEL, "changed")
        return len(due)

    async def _delete(self, tx: contract.Tx, *, machine_id: str, asked: requests.Asked) -> None:
        made = await requests.delete_machine(tx, machine_id=machine_id, asked=asked)
        await actions.append(
            tx,
            action=actions.Action(
                at=asked.now,
                actor=asked.by,
                action="cloud.machines.delete",
                target=made.machine.node_id,
                environment=self._environment,
                infra=made.machine.infra,
                operation=made.operation.operation_id,
                details={"setting": "auto_destroy_failed_after"},
            ),
        )


async def _list_due(tx: contract.Tx, *, before: datetime.datetime) -> Sequence[str]:
    rows = await tx.fetch_all(
        "SELECT m.machine_id FROM cloud_machines m JOIN operations o "
        "ON o.operation_id = m.operation_id WHERE m.gone_at IS NULL AND m.forgotten_at IS NULL "
        "AND m.active_at IS NULL AND o.state = 'failed' AND o.ended_at <= ? AND NOT EXISTS ("
        "SELECT 1 FROM operations p WHERE p.subject = m.node_id AND p.ended_at IS NULL) "
        "ORDER BY o.ended_at, m.machine_id LIMIT ?",
        clock_kit.to_micros(before),
        MOST_AT_ONCE,
    )
    return [row["machine_id"] for row in rows]
