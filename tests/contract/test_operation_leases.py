"""Who carries an operation on: one engine at a time, and a stale one can change nothing."""

import asyncio
import datetime
import pathlib
import random

import pytest

from platform_server.operations import holding, kinds, reconciler, records, states
from platform_server.store import contract
from tests.support import operating, ordering, waits


async def _claim(
    engine: operating.Engine, operation: records.Operation, *, holder: str
) -> holding.Held | None:
    return await engine.platform.store.transact(
        lambda tx: holding.claim(
            tx,
            operation_id=operation.operation_id,
            holder=holder,
            now=engine.platform.clock.now(),
        )
    )


async def test_an_operation_has_one_holder_until_the_lease_ends(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    first = await _claim(engine, part, holder="a")
    assert first is not None
    assert await _claim(engine, part, holder="b") is None
    engine.platform.clock.advance(holding.TTL_SECONDS - 1)
    await store.transact(lambda tx: holding.renew(tx, held=first, now=engine.platform.clock.now()))
    engine.platform.clock.advance(holding.TTL_SECONDS - 1)
    assert await _claim(engine, part, holder="b") is None
    engine.platform.clock.advance(1)
    second = await _claim(engine, part, holder="b")
    assert second is not None
    assert second.fence == first.fence + 1


async def test_a_stale_holder_can_change_nothing_at_all(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    stale = await _claim(engine, part, holder="a")
    assert stale is not None
    engine.platform.clock.advance(holding.TTL_SECONDS)
    assert await _claim(engine, part, holder="b") is not None
    before = await operating.events_of(store, kind="")
    kind = engine.reconciler._kinds[part.kind]
    with pytest.raises(holding.LeaseLost):
        await kind.advance(stale)
    with pytest.raises(holding.LeaseLost):
        await store.transact(
            lambda tx: holding.renew(tx, held=stale, now=engine.platform.clock.now())
        )
    with pytest.raises(holding.LeaseLost):
        await store.transact(lambda tx: holding.release(tx, held=stale))
    assert await web.scheduling() == "active"
    assert await operating.events_of(store, kind="") == before
    assert (await engine.stands(part)).state is states.State.REQUESTED


async def test_a_stale_holder_under_the_same_name_is_told_by_its_number(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    former = await _claim(engine, part, holder="a")
    assert former is not None
    engine.platform.clock.advance(holding.TTL_SECONDS)
    assert await _claim(engine, part, holder="a") is not None
    with pytest.raises(holding.LeaseLost):
        await store.transact(lambda tx: holding.release(tx, held=former))


async def test_what_has_ended_is_held_by_nobody(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.platform.remove("web-1")
    await engine.carry_on()
    assert await engine.states(part) == ["failed"]
    assert await _claim(engine, part, holder="a") is None


async def test_a_lease_of_an_engine_that_is_gone_ends_and_another_goes_on(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    assert await _claim(engine, part, holder="gone") is not None
    await engine.carry_on()
    assert await engine.states(part) == ["requested"]
    engine.platform.clock.advance(holding.TTL_SECONDS)
    await web.beats()
    await engine.carry_on()
    assert await engine.states(part) == ["staging"]


class Slow:
    """A kind whose one step takes as long as a test lets it."""

    name = "roll-back-node"

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = ""

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        del tx, operation, now
        return kinds.Wait() if self.ended else kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        del held
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended = "stopped"
            raise
        self.ended = "done"

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        raise AssertionError(held, failure)


def _slow(engine: operating.Engine) -> tuple[Slow, reconciler.Reconciler]:
    slow, clock = Slow(), engine.platform.clock
    made = reconciler.Reconciler(
        engine.platform.store, known=[slow], clock=clock, chance=random.Random(1)
    )
    return slow, made


async def test_long_work_keeps_its_lease(store: contract.Store, tmp_path: pathlib.Path) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    operation = await engine.roll_back("web-1")
    slow, carrying = _slow(engine)
    working = asyncio.create_task(carrying.round())
    await slow.begun.wait()
    for _ in range(8):
        until = await _lease_until(store)
        engine.platform.clock.advance(reconciler.RENEW_SECONDS)
        async for _ in waits.looks():
            if await _lease_until(store) > until:
                break
    assert await _claim(engine, operation, holder="other") is None
    slow.go_on.set()
    await working
    assert slow.ended == "done"
    assert await _claim(engine, operation, holder="other") is not None


async def test_work_is_stopped_once_its_lease_is_lost(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    await engine.roll_back("web-1")
    slow, carrying = _slow(engine)
    working = asyncio.create_task(carrying.round())
    await slow.begun.wait()
    await store.transact(
        lambda tx: tx.execute("UPDATE operations SET holder = 'other', fence = fence + 1")
    )
    engine.platform.clock.advance(reconciler.RENEW_SECONDS)
    async with asyncio.timeout(20):
        await working
    assert slow.ended == "stopped"


async def _lease_until(store: contract.Store) -> int:
    row = await store.read(lambda tx: tx.fetch_one("SELECT lease_until FROM operations"))
    assert row is not None
    return int(row["lease_until"])


async def test_engines_at_once_give_each_node_one_order_and_end_each_operation_once(
    store: contract.Store, store_url: str, tmp_path: pathlib.Path
) -> None:
    if store.dialect is contract.Dialect.SQLITE:
        pytest.skip("one engine runs on SQLite")
    place = await ordering.place(store, folder=tmp_path)
    engine = operating.Engine(place.platform)
    nodes = [await operating.node(place.platform, f"web-{one}") for one in range(6)]
    rolled = [await engine.roll_back(node.node_id) for node in nodes]
    async with ordering.second(place, url=store_url, folder=tmp_path) as second:
        engines = [engine, operating.Engine(second), operating.Engine(second)]
        for _ in range(6):
            place.platform.clock.advance(1.5)
            await asyncio.gather(*(one.reconciler.round() for one in engines))
        assert await engine.states(*rolled) == ["staging"] * 6
        for node in nodes:
            await node.takes_and_stages()
        for node in nodes:
            await node.restarts("0.0.8-aaaaaaaaaaaa")
        for _ in range(6):
            place.platform.clock.advance(1.5)
            await asyncio.gather(*(one.reconciler.round() for one in engines))
        assert await engine.states(*rolled) == ["done"] * 6
    done = [one for one in await operating.actions_of(store) if one[0] == "operation.done"]
    assert len(done) == 6
    row = await store.read(lambda tx: tx.fetch_one("SELECT COUNT(*) AS n FROM orders"))
    assert row is not None
    assert row["n"] == 6
    assert sum(len(one.given) for one in engines) == 6
