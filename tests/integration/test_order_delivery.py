"""Orders between real engines' delivery and a real Agent's journal, on both stores.

The network is in memory and the clock is moved by hand, so that what is lost, late or doubled is
said by the test; sockets, TLS and processes are in test_several_engines.py.
"""

import asyncio
import datetime
import pathlib
from collections.abc import AsyncIterator

import pytest

from platform_server.dispatch import giving
from platform_server.nodes import states as node_states
from platform_server.store import contract
from tests.support import ordering, waits
from wire_protocol import ids, orders

REFRESH, RENEW = orders.Kind.REFRESH_TRUST, orders.Kind.RENEW


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


async def test_an_order_is_carried_out_and_its_result_is_kept(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        assert await ordering.ended(engine) == [(1, "done")]
        await engine.give("web-1", RENEW)
        assert await ordering.ended(engine) == [(1, "done"), (2, "failed")]
    found = await engine.listed("web-1")
    assert [one.detail for one in found] == [
        "The trust set is current.",
        "No session with the Platform is open.",
    ]
    assert machine.did == ["refresh-trust", "renew"]
    assert [one.tries for one in found] == [1, 1]


async def test_that_an_order_was_taken_and_what_came_of_it_may_be_told_at_one_moment(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    """The clock stands, so what got lost between the two would stay lost."""
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        for _ in range(3):
            await asyncio.gather(*[engine.give("web-1") for _ in range(8)])
            assert {state for _, state in await ordering.ended(engine)} == {"done"}
    assert machine.did == ["refresh-trust"] * 24


async def test_orders_arrive_in_the_order_of_their_numbers(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    kinds = [REFRESH, RENEW, RENEW, REFRESH, RENEW, REFRESH]
    async with ordering.running(engine, machine):
        for kind in kinds[:4]:
            await engine.give("web-1", kind)
        engine.connect(machine)
        for kind in kinds[4:]:
            await engine.give("web-1", kind)
        await ordering.ended(engine)
    assert machine.did == [kind.value for kind in kinds]
    assert sorted(set(machine.heard)) == [(1, number) for number in range(1, 7)]
    first_heard = list(dict.fromkeys(machine.heard))
    assert first_heard == sorted(first_heard)


async def test_an_order_given_at_one_engine_reaches_the_node_through_another(
    place: ordering.Place, tmp_path: pathlib.Path, store_url: str, store_kind: str
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    machine = await place.machine("web-1")
    async with ordering.second(place, url=store_url, folder=tmp_path) as other:
        here, there = ordering.Engine(place.platform), ordering.Engine(other)
        async with ordering.running(here, there, machine):
            there.connect(machine)
            await ordering.is_heard(here, there)
            await here.give("web-1")
            assert await ordering.ended(here) == [(1, "done")]
    assert machine.did == ["refresh-trust"]


@pytest.mark.usefixtures("moving")
async def test_an_order_whose_signal_was_lost_is_found_by_looking(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1", deliver_it=False)
        assert await ordering.ended(engine) == [(1, "done")]


@pytest.mark.usefixtures("moving")
async def test_an_order_waits_for_a_node_that_is_away(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        await engine.give("web-1")
        pair = engine.connect(machine)
        assert await ordering.ended(engine) == [(1, "done")]
        pair.cut()
        await engine.give("web-1")
        await waits.pace(times=3)
        engine.connect(machine)
        assert await ordering.ended(engine) == [(1, "done"), (2, "done")]
    assert machine.did == ["refresh-trust"] * 2


@pytest.mark.usefixtures("moving")
async def test_an_answer_that_is_lost_leads_to_a_second_delivery_and_to_no_second_deed(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        pair = engine.connect(machine)
        machine.on_heard = pair.cut  # the order has arrived, its answer will not
        await engine.give("web-1")
        await waits.until(lambda: len(machine.heard) == 1)
        machine.on_heard = None
        await waits.until(lambda: machine.did == ["refresh-trust"])
        engine.connect(machine)
        assert await ordering.ended(engine) == [(1, "done")]
    assert len(machine.heard) >= 1
    assert machine.did == ["refresh-trust"]


@pytest.mark.usefixtures("moving")
async def test_a_result_that_is_lost_is_told_again(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        pair = engine.connect(machine)
        machine.gate.clear()
        await engine.give("web-1")
        await ordering.has_state(engine, "accepted")
        pair.cut()
        machine.gate.set()
        await waits.pace(times=3)
        assert (await engine.states("web-1"))[0][1] == "accepted"
        engine.connect(machine)
        assert await ordering.ended(engine) == [(1, "done")]
    assert machine.did == ["refresh-trust"]


@pytest.mark.usefixtures("moving")
async def test_an_agent_killed_before_it_began_carries_the_order_out_after_its_start(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine):
        pair = engine.connect(machine)  # its Agent takes and does nothing: it is not running
        await engine.give("web-1")
        await ordering.has_state(engine, "accepted")
        pair.cut()
        machine.start()
        async with ordering.running(machine):
            engine.connect(machine)
            assert await ordering.ended(engine) == [(1, "done")]
    assert machine.did == ["refresh-trust"]


@pytest.mark.usefixtures("moving")
async def test_an_agent_killed_in_the_middle_never_begins_again_and_says_so(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    machine.gate.clear()
    async with ordering.running(engine):
        async with ordering.running(machine):
            pair = engine.connect(machine)
            await engine.give("web-1")
            await waits.until(lambda: machine.did == ["refresh-trust"])
        pair.cut()
        machine.start()
        async with ordering.running(machine):
            engine.connect(machine)
            assert await ordering.ended(engine) == [(1, "failed")]
    (order,) = await engine.listed("web-1")
    assert "whether it took effect is not known" in str(order.detail)
    assert machine.did == ["refresh-trust"]


@pytest.mark.usefixtures("moving")
async def test_an_order_nobody_takes_in_time_expires_and_is_never_delivered(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        await engine.give("web-1", ttl=datetime.timedelta(seconds=30))
        assert await ordering.ended(engine) == [(1, "expired")]
        engine.connect(machine)
        await engine.give("web-1", RENEW)
        await ordering.ended(engine)
    assert machine.heard[0] == (1, 2)
    assert machine.did == ["renew"]
    assert await kinds_of_events(place) == ["queued", "expired", "queued", "accepted", "failed"]


@pytest.mark.usefixtures("moving")
async def test_a_cancelled_order_is_not_delivered_and_one_taken_cannot_be_cancelled(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    first = await engine.give("web-1", deliver_it=False)
    await cancel(place, first.order_id)
    async with ordering.running(engine, machine):
        engine.connect(machine)
        second = await engine.give("web-1")
        assert await ordering.ended(engine) == [(1, "cancelled"), (2, "done")]
        with pytest.raises(giving.NotQueued, match="done"):
            await cancel(place, second.order_id)
    assert set(machine.heard) == {(1, 2)}


@pytest.mark.usefixtures("moving")
async def test_the_nodes_word_counts_of_an_order_that_was_taken_and_then_cancelled(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        pair = engine.connect(machine)
        machine.on_heard = pair.cut
        order = await engine.give("web-1")
        await waits.until(lambda: machine.did == ["refresh-trust"])
        machine.on_heard = None
        await cancel(place, order.order_id)
        engine.connect(machine)
        await ordering.has_state(engine, "done")


@pytest.mark.usefixtures("moving")
async def test_a_removed_node_gets_no_order_and_neither_does_its_next_machine(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    await place.machine("web-1")
    await engine.give("web-1", deliver_it=False)
    await place.platform.remove("web-1")
    with pytest.raises(node_states.WrongState):
        await engine.give("web-1")
    async with ordering.running(engine):
        assert await ordering.ended(engine) == [(1, "cancelled")]
        await place.platform.allow("web-1")
        following = await place.machine("web-1")
        async with ordering.running(following):
            engine.connect(following)
            await engine.give("web-1")
            assert await ordering.ended(engine) == [(1, "cancelled"), (2, "done")]
    assert set(following.heard) == {(1, 2)}


@pytest.mark.usefixtures("moving")
async def test_a_machine_that_enrolls_anew_carries_out_nothing_that_the_former_one_was_given(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    former = await place.machine("web-1")
    former.gate.clear()
    async with ordering.running(engine, former):
        pair = engine.connect(former)
        await engine.give("web-1")
        await waits.until(lambda: former.did == ["refresh-trust"])
        await ordering.has_state(engine, "accepted")
        pair.cut()
        await engine.give("web-1", RENEW)
        place.platform.clock.advance(1)
        following = await place.machine("web-1", folder="following", replace=True)
        async with ordering.running(following):
            engine.connect(following)
            await engine.give("web-1")
            assert await ordering.ended(engine) == [(1, "failed"), (2, "expired"), (3, "done")]
    assert set(following.heard) == {(1, 3)}


async def test_a_node_takes_so_many_open_orders_and_no_more(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    await place.machine("web-1")
    for _ in range(32):
        await engine.give("web-1", deliver_it=False)
    with pytest.raises(giving.TooMany, match="32 orders open"):
        await engine.give("web-1", deliver_it=False)


async def test_numbers_go_on_after_old_orders_were_removed(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        for _ in range(3):
            await engine.give("web-1")
        await ordering.ended(engine)
    place.platform.clock.advance(100 * 86_400)
    await ordering.purge(place)
    assert await engine.states("web-1") == [(3, "done")]
    await engine.give("web-1", deliver_it=False)
    assert await engine.states("web-1") == [(3, "done"), (4, "queued")]


async def test_each_end_stands_in_the_action_log_with_who_said_it(
    place: ordering.Place, engine: ordering.Engine
) -> None:
    machine = await place.machine("web-1")
    async with ordering.running(engine, machine):
        engine.connect(machine)
        await engine.give("web-1")
        await ordering.ended(engine)
        await engine.give("web-1", RENEW)
        await ordering.ended(engine)
    rows = await place.platform.store.read(
        lambda tx: tx.fetch_all(
            "SELECT actor, action FROM action_log WHERE action LIKE 'order.%' ORDER BY seq LIMIT 9"
        )
    )
    assert [(row["actor"], row["action"]) for row in rows] == [
        ("agent-web-1", "order.done"),
        ("agent-web-1", "order.failed"),
    ]


async def cancel(place: ordering.Place, order_id: str) -> None:
    """As the route does."""
    await place.platform.store.transact(
        lambda tx: giving.cancel(
            tx,
            node_id=ids.parse_node_id("web-1"),
            order_id=order_id,
            environment="test",
            now=place.platform.clock.now(),
        )
    )


async def kinds_of_events(place: ordering.Place) -> list[str]:
    """What happened to orders, in order."""
    rows = await place.platform.store.read(
        lambda tx: tx.fetch_all(
            "SELECT kind FROM events WHERE kind LIKE 'order.%' ORDER BY seq LIMIT 100"
        )
    )
    return [str(row["kind"]).removeprefix("order.") for row in rows]
