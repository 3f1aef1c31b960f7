"""An idle fleet, and one provider among several that hangs: what that costs the others."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

from platform_server.cloud import (
    catalogue,
    children,
    machines,
    offers,
    orphans,
    policy,
    sweeper,
    using,
    view,
    ways_in,
)
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from tests.support import cloud_desk, waits
from tests.support.clouds import hetzner_bench, hetzner_project

MACHINES = 40
HOUR = 3600


async def _connected(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, **more: Any
) -> cloud_desk.Desk:
    desk = cloud_desk.place(store, hetzner, address=hetzner.address, **more)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN))
    return desk


async def _active(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench, *, number: int
) -> None:
    node = f"web-{number}"
    owner = provider.Owner(
        installation=desk.installation,
        infra="default",
        operation=f"op-{number}",
        node=node,
        attempt=1,
    )
    ref = hetzner.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
    connection = await desk.get()
    await desk.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, ordered_at, ordered_by, "
            "present_at, active_at) VALUES (?, ?, ?, 'hetzner', ?, 'fsn1', 'cx23', 'debian-12', "
            "'t', ?, 0, 'x', 1, 1)",
            f"m-{number}",
            node,
            connection.connection_id,
            owner.operation,
            ref,
        )
    )


async def test_b26_forty_idle_machines_use_less_than_a_tenth_of_the_hours_calls(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    for number in range(MACHINES):
        await _active(desk, hetzner, number=number)
    hetzner.settle()
    viewer = view.Viewer(
        store, clouds=desk.clouds, installation=desk.installation, clock=desk.clock
    )
    sweeping = desk.sweeper()
    before = len(hetzner.ledger.seen)
    for second in range(0, HOUR, int(view.TICK_SECONDS)):
        await viewer.tick()
        if second == HOUR // 2:
            await sweeping.sweep_all()
        await desk.reconciler().round()
        desk.clock.advance(view.TICK_SECONDS)
    calls = len(hetzner.ledger.seen) - before
    assert 0 < calls <= hetzner_project.HOURLY_CALLS // 10
    assert hetzner.ledger.count("GET /v1/servers/{id}") == 0  # one list, not one look a machine
    rows = await store.read(
        lambda tx: tx.fetch_all("SELECT power, missed FROM cloud_machines LIMIT 100")
    )
    assert {(row["power"], row["missed"]) for row in rows} == {("running", 0)}


async def test_b26_an_idle_fleet_is_looked_at_more_rarely_while_little_is_left_of_the_budget(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await _active(desk, hetzner, number=1)
    hetzner.settle()
    viewer = view.Viewer(
        store, clouds=desk.clouds, installation=desk.installation, clock=desk.clock
    )

    async def lists_of_an_hour(budget: float) -> int:
        before = hetzner.ledger.count("GET /v1/servers")
        for _ in range(0, HOUR, int(view.TICK_SECONDS)):
            hetzner.fake.take_budget()
            hetzner.fake.budget = budget  # somebody else in the project takes the rest
            await viewer.tick()
            desk.clock.advance(view.TICK_SECONDS)
        return hetzner.ledger.count("GET /v1/servers") - before

    fifth = hetzner_project.HOURLY_CALLS / 5
    assert await lists_of_an_hour(2 * fifth) == 12
    assert await lists_of_an_hour(fifth / 2) == 3
    assert await lists_of_an_hour(2 * fifth) == 12


class _Hanging:
    """A cloud whose drivers never answer a list."""

    def __init__(self, clouds: using.Clouds, *, connection_id: str) -> None:
        self._clouds = clouds
        self._connection_id = connection_id
        self.asked = asyncio.Event()

    @contextlib.asynccontextmanager
    async def driver(
        self,
        connection_id: str,
        *,
        purpose: str,
        actor: str,
        operation_id: str | None = None,
        changes: bool,
    ) -> AsyncIterator[provider.Driver]:
        """The driver, unless it is the one that hangs."""
        if connection_id == self._connection_id:
            self.asked.set()
            await asyncio.Event().wait()
        async with self._clouds.driver(
            connection_id,
            purpose=purpose,
            actor=actor,
            operation_id=operation_id,
            changes=changes,
        ) as driver:
            yield driver


async def test_b62_a_provider_that_hangs_keeps_no_other_from_being_swept(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN, name="hangs"))
    owner = provider.Owner(
        installation=desk.installation, infra="default", operation="op", node="web-1", attempt=1
    )
    ref = hetzner.plant(name="lost", tags=naming.tags_of(owner))
    hanging = _Hanging(desk.clouds, connection_id=(await desk.get("hangs")).connection_id)
    sweeping = sweeper.Sweeper(
        store,
        clouds=hanging,
        installation=desk.installation,
        environment=cloud_desk.ENVIRONMENT,
        rules=sweeper.Rules(),
        clock=desk.clock,
    )
    task = asyncio.ensure_future(sweeping.sweep_all())

    async def listed() -> list[str]:
        found = await store.read(lambda tx: orphans.list_page(tx, limit=10))
        return [one.provider_ref for one in found]

    await hanging.asked.wait()
    async for _ in waits.looks():
        if await listed():
            break
    assert await listed() == [ref]
    assert not task.done()
    desk.clock.advance(sweeper.ONE_SECONDS)
    swept = await task
    assert [one.connection for one in swept] == ["main"]


async def test_b62_a_provider_that_hangs_keeps_nobody_from_the_catalogue(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _connected(store, hetzner)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN, name="hangs"))
    hanging = _Hanging(desk.clouds, connection_id=(await desk.get("hangs")).connection_id)
    shown = catalogue.Catalogue(
        store,
        clouds=hanging,
        policies=policy.Source(cloud_desk.write_policy(tmp_path)),
        clock=desk.clock,
    )
    listing = asyncio.ensure_future(
        shown.list(catalogue.Wanted(provider="hetzner"), actor=cloud_desk.ACTOR)
    )
    await hanging.asked.wait()
    async for _ in waits.looks():
        if (await desk.get()).offer_at is not None:  # the other one was heard
            break
    desk.clock.advance(offers.LONGEST_SECONDS)
    rows = (await listing).rows
    assert {row.connection for row in rows if row.offered.is_available} == {"main", "hangs"}
    estimated = [row.offered.price for row in rows if row.connection == "hangs"]
    assert all(price is not None and price.as_of is not None for price in estimated)


class _Broken:
    """A cloud one of whose connections ends in what no driver should raise."""

    def __init__(self, clouds: using.Clouds, *, connection_id: str) -> None:
        self._clouds = clouds
        self._connection_id = connection_id
        self.trips = 0

    @contextlib.asynccontextmanager
    async def driver(
        self,
        connection_id: str,
        *,
        purpose: str,
        actor: str,
        operation_id: str | None = None,
        changes: bool,
    ) -> AsyncIterator[provider.Driver]:
        """The driver; a fault of ours where it is the broken one."""
        if connection_id == self._connection_id:
            self.trips += 1
            raise ValueError("'my-vm' is no reference of a resource.")
        async with self._clouds.driver(
            connection_id,
            purpose=purpose,
            actor=actor,
            operation_id=operation_id,
            changes=changes,
        ) as driver:
            yield driver


async def _let_in(desk: cloud_desk.Desk, *, machine_id: str) -> None:
    """A way in whose time is up, and the group that opens it."""
    await desk.store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_machines SET wish = ? WHERE machine_id = ?",
            '{"ssh": {"public_key": "k", "sources": [], "until": "2026-01-01T00:00:00Z"}}',
            machine_id,
        )
    )
    group = provider.Child(kind=provider.ChildKind.SECURITY_GROUP, ref="1")

    async def record(tx: contract.Tx) -> None:
        machine = await machines.get(tx, machine_id=machine_id)
        await children.record(tx, machine=machine, found=[group], now=desk.clock.now())

    await desk.store.transact(record)


async def _looks(desk: cloud_desk.Desk) -> dict[str, int | None]:
    rows = await desk.store.read(
        lambda tx: tx.fetch_all("SELECT machine_id, seen_at FROM cloud_machines LIMIT 100")
    )
    return {row["machine_id"]: row["seen_at"] for row in rows}


async def test_one_providers_unreadable_ref_ends_neither_view_nor_sweeper_nor_engine(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN, name="broken"))
    await _active(desk, hetzner, number=1)
    await _active(desk, hetzner, number=2)
    hetzner.settle()
    broken_id = (await desk.get("broken")).connection_id
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_machines SET connection_id = ? WHERE machine_id = 'm-2'", broken_id
        )
    )
    await _let_in(desk, machine_id="m-2")
    broken = _Broken(desk.clouds, connection_id=broken_id)
    viewer = view.Viewer(store, clouds=broken, installation=desk.installation, clock=desk.clock)
    sweeping = sweeper.Sweeper(
        store,
        clouds=broken,
        installation=desk.installation,
        environment=cloud_desk.ENVIRONMENT,
        rules=sweeper.Rules(),
        clock=desk.clock,
    )
    shutting = ways_in.WaysIn(
        store, clouds=broken, environment=cloud_desk.ENVIRONMENT, clock=desk.clock
    )
    await viewer.tick()
    assert broken.trips == 1
    looks = await _looks(desk)
    assert looks["m-1"] is not None
    assert looks["m-2"] is None
    await viewer.tick()
    assert broken.trips == 1  # put off as any other, not asked at each tick
    assert [one.connection for one in await sweeping.sweep_all()] == ["main"]
    assert broken.trips == 2
    assert await shutting.tick() == 0
    assert broken.trips == 3


async def test_a_machine_whose_id_cannot_be_read_keeps_no_other_from_being_seen(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await _active(desk, hetzner, number=1)
    await _active(desk, hetzner, number=2)
    hetzner.settle()
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_machines SET provider_ref = 'my vm' WHERE machine_id = 'm-2'"
        )
    )
    viewer = view.Viewer(
        store, clouds=desk.clouds, installation=desk.installation, clock=desk.clock
    )
    await viewer.tick()
    looks = await _looks(desk)
    assert looks["m-1"] is not None
    assert looks["m-2"] is None
    rows = await store.read(lambda tx: tx.fetch_all("SELECT missed FROM cloud_machines LIMIT 100"))
    assert {row["missed"] for row in rows} == {0}  # "cannot be asked for" is not "is not there"


async def test_two_looks_at_one_moment_are_one(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await _active(desk, hetzner, number=1)
    await store.transact(lambda tx: tx.execute("UPDATE cloud_machines SET provider_ref = '4242'"))
    viewer = view.Viewer(
        store, clouds=desk.clouds, installation=desk.installation, clock=desk.clock
    )

    async def look() -> tuple[int, bool]:
        machine = await store.read(lambda tx: machines.get(tx, machine_id="m-1"))
        if machine.gone_at is None:
            machine = await viewer.refresh_machine(machine, actor=cloud_desk.ACTOR)
        assert machine.looked_at == desk.clock.now()  # by which a reader's next look is judged
        return machine.missed, machine.gone_at is not None

    assert await look() == (1, False)
    assert await look() == (1, False)
    desk.clock.advance(29)
    assert await look() == (1, False)
    await viewer.tick()  # the task's own look is no second one either
    assert await look() == (1, False)
    desk.clock.advance(1)  # by now Hetzner shows whatever is there
    assert await look() == (2, True)
