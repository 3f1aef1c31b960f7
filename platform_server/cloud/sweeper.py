"""The last net: compares what providers hold of ours with what is known here, cloud first.

Each connection by itself and within a time limit, so that one that hangs or is refused takes
nothing from the others. What is found is listed as an orphan with what it costs; where the settings
say so, an operation deletes it once it has been an orphan, and has been there, for the grace.
Volumes, snapshots and addresses may hold data or a name that others use: they are only listed, and
so is whatever was made between a backup and its restore.

Known limit: it sees what carries our tags; a provider that lost them hides it from everybody.
"""

import asyncio
import dataclasses
import datetime
import logging
from collections.abc import Sequence
from typing import Final, Literal

from platform_server.audit import events
from platform_server.backup import clouds
from platform_server.cloud import (
    beside,
    bounded,
    connections,
    known,
    merging,
    offers,
    orphan_kind,
    orphans,
    requests,
    resource_steps,
    using,
)
from platform_server.nodes import leading
from platform_server.store import contract as store_contract
from platform_server.store import leases
from provisioning import catalogue, contract, providers
from runtime_kit import clock as clock_kit

LEASE: Final = "cloud-sweeper"
ACTOR: Final = "platform:sweeper"
TICK_SECONDS: Final = 5.0
ONE_SECONDS: Final = 600.0
MOST_CONNECTIONS: Final = 500
MOST_ORPHANS: Final = 20_000
_KEPT: Final = frozenset(
    {
        contract.ChildKind.VOLUME.value,
        contract.ChildKind.SNAPSHOT.value,
        contract.ChildKind.ADDRESS.value,
    }
)
_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say ([cloud])."""

    orphans: Literal["report", "delete"] = "report"
    grace: datetime.timedelta = datetime.timedelta(hours=1)
    every_seconds: float = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep of one connection found. `is_complete`: the provider showed all of it."""

    connection: str
    found: Sequence[known.Stray]
    new: int
    gone: int
    deleting: int
    is_complete: bool


class Sweeper:
    """One engine's part. Used from its event loop."""

    def __init__(
        self,
        store: store_contract.Store,
        *,
        clouds: using.Clouds,
        installation: str,
        environment: str,
        rules: Rules,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._clouds = clouds
        self._installation = installation
        self._environment = environment
        self._rules = rules
        self._clock = clock
        self._leading = leading.Leading(store, name=LEASE, clock=clock)

    async def run(self) -> None:
        """Sweeps for ever, in one engine at a time. For a supervised task."""
        due = self._clock.monotonic() + TICK_SECONDS  # an engine that starts has better to do
        try:
            while True:
                await self._clock.sleep(TICK_SECONDS)
                try:
                    if not await self._leading.holds() or self._clock.monotonic() < due:
                        continue
                    await self.sweep_all()
                except (store_contract.StoreError, leases.LeaseLost) as fault:
                    _LOG.warning("Providers were not swept", extra={"reason": str(fault)})
                    continue
                due = self._clock.monotonic() + self._rules.every_seconds
        finally:
            await self._leading.release()

    async def sweep_all(self) -> Sequence[Swept]:
        """Every connection that is not paused, side by side; what could not be swept is logged."""
        present = await self._store.read(
            lambda tx: connections.list_page(tx, limit=MOST_CONNECTIONS)
        )
        swept = await asyncio.gather(
            *(self._sweep_bounded(one) for one in present if one.pause is None)
        )
        return [one for one in swept if one is not None]

    async def sweep(self, connection: connections.Connection) -> Swept:
        """One connection, cloud first; raises `outcomes.Fault`, `using.Paused`, `StoreError`."""
        async with self._clouds.driver(
            connection.connection_id, purpose="sweep", actor=ACTOR, changes=False
        ) as driver:
            inventory = await driver.inventory(self._installation)
        offer = await self._store.read(
            lambda tx: offers.read(tx, connection_id=connection.connection_id)
        )
        return await self._store.transact(
            lambda tx: self._compare(tx, connection=connection, inventory=inventory, offer=offer)
        )

    # Inside.

    async def _sweep_bounded(self, connection: connections.Connection) -> Swept | None:
        try:
            return await bounded.within(
                self.sweep(connection), seconds=ONE_SECONDS, clock=self._clock
            )
        except leases.LeaseLost:
            raise
        except Exception as fault:  # noqa: BLE001 - one driver's fault is not to end all others
            using.tell_unusable(
                _LOG, "A provider was not swept", connection=connection.name, fault=fault
            )
        return None

    async def _compare(
        self,
        tx: store_contract.Tx,
        *,
        connection: connections.Connection,
        inventory: contract.Inventory,
        offer: contract.Offer | None,
    ) -> Swept:
        await self._leading.fence(tx)
        now = self._clock.now()
        present = await known.read(tx, connection_id=connection.connection_id)
        strays = known.list_strays(inventory, known=present, installation=self._installation)
        blind = await clouds.find_blind_spot(tx)
        fresh: list[orphans.Orphan] = []
        deleting = 0
        for stray in strays:
            orphan = _orphan_of(
                stray, connection=connection, price=price_of(connection, stray, offer), now=now
            )
            if await orphans.put(tx, orphan=orphan):
                fresh.append(orphan)
            if blind is None or not blind.holds(orphan.made_at):
                deleting += await self._delete_by_rule(
                    tx, connection=connection, stray=stray, now=now
                )
        await _reprice(tx, connection=connection, inventory=inventory, now=now)
        gone: Sequence[orphans.Key] = ()
        if inventory.is_complete:
            gone = await orphans.list_unseen(
                tx,
                connection_id=connection.connection_id,
                seen={stray.key for stray in strays},
                limit=MOST_ORPHANS,
            )
        for key in gone:
            await orphans.set_gone(tx, connection_id=connection.connection_id, key=key, now=now)
        await _tell(tx, connection=connection, fresh=fresh, gone=len(gone), now=now)
        return Swept(
            connection=connection.name,
            found=strays,
            new=len(fresh),
            gone=len(gone),
            deleting=deleting,
            is_complete=inventory.is_complete,
        )

    async def _delete_by_rule(
        self,
        tx: store_contract.Tx,
        *,
        connection: connections.Connection,
        stray: known.Stray,
        now: datetime.datetime,
    ) -> int:
        if self._rules.orphans != "delete" or stray.kind in _KEPT:
            return 0
        listed = await orphans.find(
            tx,
            connection_id=connection.connection_id,
            kind=stray.kind,
            provider_ref=stray.ref,
        )
        if listed is None or listed.delete_asked_at is not None:
            return 0
        if await _is_of_a_node(tx, connection=connection, stray=stray):
            return 0
        oldest = max(listed.first_seen_at, listed.made_at or listed.first_seen_at)
        if now - oldest < self._rules.grace:
            return 0
        asked = requests.Asked(by=ACTOR, now=now, environment=self._environment)
        await orphan_kind.delete(tx, orphan=listed, asked=asked)
        return 1


async def _is_of_a_node(
    tx: store_contract.Tx, *, connection: connections.Connection, stray: known.Stray
) -> bool:
    """Whether it is, or hangs on, a machine whose node is registered: a person decides then."""
    ref = stray.ref if stray.child is None else stray.child.attached_to
    row = await tx.fetch_one(
        "SELECT m.machine_id FROM cloud_machines m JOIN nodes n ON n.node_id = m.node_id "
        "WHERE m.connection_id = ? AND n.state <> 'removed' "
        "AND m.provider_ref = ? LIMIT 1",
        connection.connection_id,
        ref,
    )
    return row is not None


def price_of(
    connection: connections.Connection, stray: known.Stray, offer: contract.Offer | None
) -> contract.Price | None:
    """What it costs by the hour, as far as anybody has said."""
    if stray.child is not None:
        return stray.child.hourly
    try:
        tested = catalogue.tested(connection.provider)
    except (catalogue.Malformed, providers.Unknown, OSError):
        return None
    sides = merging.Sides(tested=tested, rules=None, offer=offer)
    size = merging.find_size(sides, stray.size)
    return None if size is None else merging.price_of(sides, size=size, region=stray.region)


async def _reprice(
    tx: store_contract.Tx,
    *,
    connection: connections.Connection,
    inventory: contract.Inventory,
    now: datetime.datetime,
) -> None:
    """What is kept beside machines costs what its provider says now."""
    told = {(one.kind, one.ref): one.hourly for one in inventory.children}
    for kind in beside.KINDS:
        for resource in await beside.list_page(
            tx, kind=kind, limit=MOST_ORPHANS, connection_id=connection.connection_id
        ):
            price = told.get((kind, resource.provider_ref or ""))
            if price is None or resource.delete_asked_at is not None:
                continue
            if resource.price is None or price.hourly_micros != resource.price.hourly_micros:
                await beside.set_price(tx, child_id=resource.child_id, price=price)
                await resource_steps.charge(tx, resource=resource, price=price, now=now)


def _orphan_of(
    stray: known.Stray,
    *,
    connection: connections.Connection,
    price: contract.Price | None,
    now: datetime.datetime,
) -> orphans.Orphan:
    made_at = stray.instance.created_at if stray.instance is not None else None
    if stray.child is not None:
        made_at = stray.child.created_at
    return orphans.Orphan(
        connection_id=connection.connection_id,
        kind=stray.kind,
        provider_ref=stray.ref,
        infra=stray.owner.infra,
        name=stray.name,
        region=stray.region,
        operation_id=stray.owner.operation,
        price=price,
        made_at=made_at,
        first_seen_at=now,
        last_seen_at=now,
    )


async def _tell(
    tx: store_contract.Tx,
    *,
    connection: connections.Connection,
    fresh: Sequence[orphans.Orphan],
    gone: int,
    now: datetime.datetime,
) -> None:
    """One event a sweep and connection, and only where something changed."""
    if not fresh and not gone:
        return
    named = [f"{one.kind} {one.provider_ref}" for one in fresh[:20]]
    await events.append(
        tx,
        at=now,
        kind="cloud-orphans.changed",
        subject=connection.name,
        infra=connection.infra,
        data={"found": len(fresh), "gone": gone, "some": named, "provider": connection.provider},
    )
