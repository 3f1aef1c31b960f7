"""What Agents refuse or put off, and what is no order at all, on both stores.

The network is in memory and the clock is moved by hand, as in test_order_delivery.py.
"""

import datetime
import errno
import pathlib
from collections.abc import AsyncIterator

import pytest

from platform_server.store import contract
from runtime_kit.mux import link as links
from tests.support import ordering, waits
from wire_protocol import ids, orders
from worker_agent.orders import journal

RENEW = orders.Kind.RENEW


@pytest.fixture
async def place(store: contract.Store, tmp_path: pathlib.Path) -> ordering.Place:
    return await ordering.place(store, folder=tmp_path)


@pytest.fixture
async def engine(place: ordering.Place) -> ordering.Engine:
    return ordering.Engine(place.platform)


@pytest.fixture
async def moving(place: ordering.Place) -> AsyncIterator[None]:
    """The clock goes on."""
    async with waits.moving(place.platform.clock):
        yield


async def test_the_agent_judges_the_end_of_an_order_by_its_own_clock(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    machine.ahead = datetime.timedelta(hours=2)
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        assert await ordering.ended(engine) == [(1, "failed")]
    (order,) = await engine.listed("web-1")
    assert "expired" in str(order.detail)
    assert machine.did == []


@pytest.mark.usefixtures("moving")
async def test_an_order_that_waited_on_the_machine_past_its_end_is_not_begun(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine):
        engine.connect(machine)
        await engine.give("web-1", ttl=datetime.timedelta(minutes=1))
        await ordering.has_state(engine, "accepted")
        machine.ahead = datetime.timedelta(minutes=2)
        async with ordering.running(machine):
            assert await ordering.ended(engine) == [(1, "failed")]
    assert machine.did == []


@pytest.mark.usefixtures("moving")
async def test_after_a_restore_old_orders_are_refused_and_new_ones_taken(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    old = await engine.give("web-1", deliver_it=False)
    async with ordering.running(engine, machine):
        await ordering.raise_epoch(place, machines=[machine])
        engine.connect(machine)
        with pytest.raises(links.Refusal, match="not newer"):
            await machine.work.take(old.signed.to_bytes())
        assert await ordering.ended(engine) == [(1, "expired")]
        await engine.give("web-1", RENEW)
        await ordering.ended(engine)
    found = await engine.listed("web-1")
    assert [(one.number, one.state.value) for one in found] == [
        ((1, 1), "expired"),
        ((2, 1), "failed"),
    ]
    assert "restored" in str(found[0].detail)
    assert machine.did == ["renew"]


async def test_a_platform_without_its_trust_keys_orders_nothing(
    place: ordering.Place, engine: ordering.Engine, tmp_path: pathlib.Path
) -> None:
    machine = await place.machine("web-1")
    machine.trusted.held = await ordering.set_of_another_platform(tmp_path, like=place)
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await waits.until(lambda: machine.trusted.unknown_keys > 0)
        assert await engine.states("web-1") == [(1, "queued")]
    assert machine.did == []
    assert not machine.where.orders.exists()


@pytest.mark.usefixtures("moving")
async def test_an_agent_that_learns_the_new_trust_key_takes_what_it_had_put_off(
    place: ordering.Place, engine: ordering.Engine, tmp_path: pathlib.Path
) -> None:
    machine = await place.machine("web-1")
    known = machine.trusted.held
    machine.trusted.held = await ordering.set_of_another_platform(tmp_path, like=place)
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await waits.until(lambda: machine.trusted.unknown_keys > 0)
        machine.trusted.held = known
        assert await ordering.ended(engine) == [(1, "done")]


async def test_an_order_of_one_node_is_refused_by_another(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine, other = await place.machine("web-1"), await place.machine("web-2")
    order = await engine.give("web-1", deliver_it=False)
    with pytest.raises(links.Refusal, match="another node"):
        await other.work.take(order.signed.to_bytes())
    assert machine.did == other.did == []


async def test_a_captured_agent_answers_for_no_other_node(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    await place.machine("web-1")
    await place.machine("web-2")
    await engine.give("web-1", deliver_it=False)
    forged = orders.Result(epoch=1, sequence=1, is_done=True, detail="done, believe me")
    await engine.deliverer.take_result(ids.parse_node_id("web-2"), forged.to_bytes())
    assert await engine.states("web-1") == [(1, "queued")]


async def test_an_unknown_kind_is_refused_and_that_is_said(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    machine.knows_little()
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1", RENEW)
        assert await ordering.ended(engine) == [(1, "failed")]
    (order,) = await engine.listed("web-1")
    assert "knows no order of the kind renew" in str(order.detail)


@pytest.mark.usefixtures("moving")
async def test_a_machine_whose_disk_is_full_takes_the_order_once_there_is_room(
    place: ordering.Place, engine: ordering.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await place.machine("web-1")
    write, refused = journal.write, 0

    def full(path: pathlib.Path, _journal: journal.Journal) -> None:
        nonlocal refused
        refused += 1
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(journal, "write", full)
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await waits.until(lambda: refused >= 2)
        assert await engine.states("web-1") == [(1, "queued")]
        assert machine.did == []
        monkeypatch.setattr(journal, "write", write)
        assert await ordering.ended(engine) == [(1, "done")]
    assert machine.did == ["refresh-trust"]


async def test_a_damaged_journal_takes_no_order_and_says_what_mends_it(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await ordering.ended(engine)
    machine.where.orders.write_bytes(b"")
    machine.start()
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await ordering.ended(engine)
    assert "rm " in str((await engine.listed("web-1"))[-1].detail)
    assert machine.did == ["refresh-trust"]
