"""The provider's own view of machines: asked for, and written down with its moment.

Enrolling is judged by it, so while a machine is on its way it is kept younger than a minute. One
machine is described by itself; where more are on their way through one connection, one list serves
them all. An idle fleet is listed once in `refresh_seconds`, and more rarely while little is left of
the calls that the provider allows. What a list does not show is asked for by its id before it is
called missing.
"""

import asyncio
import datetime
import functools
import logging
from collections.abc import Sequence
from typing import Final

from platform_server.audit import events
from platform_server.cloud import attempts, children, costs, machines, using
from platform_server.nodes import leading
from platform_server.operations import holding
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
LEASE: Final = "cloud-view"
VANISHED: Final = "cloud-machine.vanished"
"""The event of an active machine that its provider does not know any more."""
FEW: Final = 4
TICK_SECONDS: Final = 15.0
MOST_MACHINES: Final = 2000
MOST_CONNECTIONS: Final = 500
GONE_AFTER: Final = 2
"""After how many looks in a row that did not find it a machine counts as gone at its provider.

Two such looks are at least as far apart as the provider may be behind itself.
"""
SCARCE: Final = 0.2
"""Below this part of the provider's budget of calls an idle fleet waits, so that others have it."""
SPARED: Final = 4
"""So many times as long as usual."""


class Viewer:
    """Asks providers how machines are. Used from one event loop."""

    def __init__(
        self,
        store: contract.Store,
        *,
        clouds: using.Clouds,
        installation: str,
        clock: clock_kit.Clock,
        refresh_seconds: float = 300.0,
    ) -> None:
        self._store = store
        self._clouds = clouds
        self._installation = installation
        self._clock = clock
        self._refresh = datetime.timedelta(seconds=refresh_seconds)
        self._turns: dict[str, asyncio.Lock] = {}
        self._spared: dict[str, datetime.datetime] = {}  # connections, and until when they wait

    async def refresh_machine(
        self, machine: machines.Machine, *, actor: str, operation_id: str | None = None
    ) -> machines.Machine:
        """Asks for one machine and everything that hangs on it; gives it as it stands then.

        Raises `outcomes.Fault`, `using.Paused`, `StoreError`.
        """
        if machine.provider_ref is None:
            return machine
        async with self._clouds.driver(
            machine.connection_id,
            purpose="view",
            actor=actor,
            operation_id=operation_id,
            changes=False,
        ) as driver:
            found = await driver.describe(machine.provider_ref, region=machine.region)
            apart = _apart(driver.lookup)
        now = self._clock.now()
        await self._store.transact(
            lambda tx: write(tx, machine=machine, found=found, apart=apart, now=now)
        )
        return await self._store.read(lambda tx: machines.get(tx, machine_id=machine.machine_id))

    async def refresh_pending(
        self, machine: machines.Machine, *, actor: str, operation_id: str
    ) -> None:
        """As `refresh_machine`, and where others are on their way as well, by one list for all.

        Of those that ask at one moment the first asks the provider, and the others see its answer.
        """
        turn = self._turns.setdefault(machine.connection_id, asyncio.Lock())
        async with turn:
            present = await self._store.read(
                lambda tx: machines.get(tx, machine_id=machine.machine_id)
            )
            if present.looked_at == machine.looked_at:
                await self._refresh_pending(present, actor=actor, operation_id=operation_id)

    async def _refresh_pending(
        self, machine: machines.Machine, *, actor: str, operation_id: str
    ) -> None:
        pending = await self._store.read(
            lambda tx: _list_pending(tx, connection_id=machine.connection_id)
        )
        if len(pending) <= FEW:
            await self.refresh_machine(machine, actor=actor, operation_id=operation_id)
            return
        await self.refresh_connection(machine.connection_id, actor=actor)

    async def refresh_connection(self, connection_id: str, *, actor: str) -> provider.Inventory:
        """One list for everything that counts at this connection; gives what it showed."""
        async with self._clouds.driver(
            connection_id, purpose="view", actor=actor, changes=False
        ) as driver:
            inventory = await driver.inventory(self._installation)
            live = await self._store.read(
                lambda tx: machines.list_live(tx, connection_id=connection_id, limit=MOST_MACHINES)
            )
            shown = {one.ref: one for one in inventory.machines}
            missing = [
                one
                for one in live
                if one.provider_ref is not None and one.provider_ref not in shown
            ]
            asked: dict[str, provider.Instance | None] = {}
            for one in missing:
                if not await self._ask_for(one, driver=driver, into=asked):
                    continue
                if asked[one.machine_id] is None and one.missed + 1 >= GONE_AFTER:
                    await self._look_at_children(one, driver=driver)
            apart = _apart(driver.lookup)
            unasked = {one.machine_id for one in missing} - asked.keys()
        now = self._clock.now()
        for one in live:
            if one.provider_ref is None or one.machine_id in unasked:
                continue
            found = shown.get(one.provider_ref) or asked.get(one.machine_id)
            await self._store.transact(
                functools.partial(write, machine=one, found=found, apart=apart, now=now)
            )
        await self._store.transact(
            lambda tx: tx.execute(
                "UPDATE cloud_connections SET refreshed_at = ? WHERE connection_id = ?",
                clock_kit.to_micros(now),
                connection_id,
            )
        )
        if _is_scarce(inventory):
            self._spared[connection_id] = now + SPARED * self._refresh
        else:
            self._spared.pop(connection_id, None)
        return inventory

    async def _ask_for(
        self,
        machine: machines.Machine,
        *,
        driver: provider.Driver,
        into: dict[str, provider.Instance | None],
    ) -> bool:
        """Asks for one that the list did not show; False where it cannot be asked for at all.

        What is wrong with one machine's id keeps no other from being seen.
        """
        try:
            into[machine.machine_id] = await driver.describe(
                machine.provider_ref or "", region=machine.region
            )
        except outcomes.Fault as fault:
            if fault.outcome is not outcomes.Outcome.NOT_DONE_PERMANENT:
                raise
            _LOG.warning(
                "A machine cannot be looked at",
                extra={"node": machine.node_id, "reason": str(fault)},
            )
            return False
        return True

    async def _look_at_children(
        self, machine: machines.Machine, *, driver: provider.Driver
    ) -> None:
        """A machine that is not there may have left something, which then still costs."""
        hanging = await self._store.read(
            lambda tx: children.list_hanging(tx, machine_id=machine.machine_id)
        )
        for one in hanging:
            if await driver.describe_child(one.child) is None:
                await self._store.transact(
                    functools.partial(
                        children.set_gone, child_id=one.child_id, now=self._clock.now()
                    )
                )

    async def run(self) -> None:
        """Keeps the view of what is idle, by one list a connection, for ever; one engine does."""
        lease = leading.Leading(self._store, name=LEASE, clock=self._clock)
        while True:
            await self._clock.sleep(TICK_SECONDS)
            try:
                if await lease.holds():
                    await self.tick()
            except contract.StoreError as fault:
                _LOG.warning("Machines cannot be looked at", extra={"reason": str(fault)})

    async def tick(self) -> None:
        """Lists every connection whose time has come; one that fails is nobody else's matter."""
        now = self._clock.now()
        due = await self._store.read(
            functools.partial(_list_due, before=now - self._refresh, now=now)
        )
        due = [one for one in due if self._spared.get(one, now) <= now]
        await asyncio.gather(*(self._refresh_idle(one, now=now) for one in due))

    async def _refresh_idle(self, connection_id: str, *, now: datetime.datetime) -> None:
        try:
            await self.refresh_connection(connection_id, actor=holding.ACTOR)
        except contract.StoreError:
            raise
        except Exception as fault:  # noqa: BLE001 - one driver's fault is not to end all others
            using.tell_unusable(
                _LOG, "A connection cannot be looked at", connection=connection_id, fault=fault
            )
            await self._store.transact(
                functools.partial(_put_off, connection_id=connection_id, now=now)
            )


async def write(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    found: provider.Instance | None,
    apart: datetime.timedelta,
    now: datetime.datetime,
) -> None:
    """Writes down what was seen, or that it was not; wakes the operation that waits for it.

    Looks that miss it count once in `apart`: how long this provider takes to show what is there.
    """
    missed = 0
    if found is None:
        missed = await machines.miss(tx, machine_id=machine.machine_id, apart=apart, now=now)
    else:
        await machines.see(tx, machine_id=machine.machine_id, instance=found, now=now)
        await children.record(tx, machine=machine, found=found.children, now=now)
    if machine.active_at is None:
        await holding.wake(tx, operation_id=machine.operation_id, now=now)
    elif missed >= GONE_AFTER and machine.gone_at is None:
        await _settle_gone(tx, machine=machine, now=now)


def _is_scarce(told: provider.Inventory) -> bool:
    left, most = told.calls_left, told.calls_most
    return left is not None and most is not None and left < SCARCE * most


def _apart(rules: provider.LookupRules) -> datetime.timedelta:
    return max(rules.settle, datetime.timedelta(seconds=TICK_SECONDS))


async def _settle_gone(
    tx: contract.Tx, *, machine: machines.Machine, now: datetime.datetime
) -> None:
    """Somebody has deleted an active machine at its provider: it stops counting once nothing hangs.

    Its node is an operator's to remove: it is unreachable, which it says by itself.
    """
    if await children.list_hanging(tx, machine_id=machine.machine_id):
        return
    for attempt in await attempts.list_of(tx, machine_id=machine.machine_id):
        if attempt.state is attempts.State.PRESENT:
            await attempts.set_settled(tx, attempt=attempt, state=attempts.State.GONE, now=now)
    await machines.set_gone(tx, machine_id=machine.machine_id, now=now)
    await children.let_go(tx, machine_id=machine.machine_id)
    await costs.end(tx, subject_id=machine.machine_id, until=now)
    await events.append(
        tx,
        at=now,
        kind=VANISHED,
        subject=machine.node_id,
        infra=machine.infra,
        data={"machine_id": machine.machine_id, "provider_ref": machine.provider_ref},
    )


async def _list_pending(tx: contract.Tx, *, connection_id: str) -> Sequence[machines.Machine]:
    live = await machines.list_live(tx, connection_id=connection_id, limit=MOST_MACHINES)
    return [
        one
        for one in live
        if one.provider_ref is not None and one.active_at is None and one.delete_asked_at is None
    ]


async def _list_due(
    tx: contract.Tx, *, before: datetime.datetime, now: datetime.datetime
) -> Sequence[str]:
    rows = await tx.fetch_all(
        "SELECT c.connection_id FROM cloud_connections c WHERE EXISTS ("
        "SELECT 1 FROM cloud_machines m WHERE m.connection_id = c.connection_id "
        "AND m.gone_at IS NULL AND m.forgotten_at IS NULL AND m.provider_ref IS NOT NULL) "
        "AND (c.refreshed_at IS NULL OR c.refreshed_at <= ?) "
        "AND (c.paused_at IS NULL OR c.probe_at IS NULL OR c.probe_at <= ?) "
        "ORDER BY c.connection_id LIMIT ?",
        clock_kit.to_micros(before),
        clock_kit.to_micros(now),
        MOST_CONNECTIONS,
    )
    return [row["connection_id"] for row in rows]


async def _put_off(tx: contract.Tx, *, connection_id: str, now: datetime.datetime) -> None:
    """One that cannot be asked is asked again at its usual pace."""
    await tx.execute(
        "UPDATE cloud_connections SET refreshed_at = ? WHERE connection_id = ?",
        clock_kit.to_micros(now),
        connection_id,
    )
