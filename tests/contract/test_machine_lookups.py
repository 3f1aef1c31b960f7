"""Looking an order up, on either store: what failed settles nothing, and no order has two."""

import datetime
import pathlib
import random

import pytest

from platform_server.cloud import lookup, means, orphan_kind, requests, resource_steps
from platform_server.operations import reconciler
from platform_server.store import contract
from tests.support import machine_orders
from tests.support.clouds import pocket


async def test_a_look_up_that_failed_never_settles_a_refused_order_as_absent(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, limits=means.Limits(attempts=1))
    engine.cloud.arm(pocket.CREATE, pocket.refused(), done=True)  # refused, and half of it is there
    engine.cloud.arm(pocket.FIND, pocket.lost())
    made = await engine.order()
    while not engine.cloud.calls(pocket.FIND):
        await engine.carry_on(rounds=1)
    (tried,) = await engine.tried(made)
    assert tried.state.value == "sent"
    await engine.until(made, "booting")
    (there,) = engine.cloud.standing()
    assert (await engine.machine(made)).provider_ref == there["ref"]
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]


async def test_a_refusal_that_was_looked_up_later_fails_the_order_with_what_was_said(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.refused(code="limit"))
    engine.cloud.arm(pocket.FIND, pocket.lost())
    made = await engine.order()
    assert await engine.until(made, "failed") == "failed"
    assert "limit" in ((await engine.stands(made)).reason or "")
    assert len(engine.cloud.calls(pocket.FIND)) > 1


async def test_a_second_machine_of_one_order_is_recorded_and_deleted_until_that_is_confirmed(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
    engine.cloud.arm(pocket.DELETE, pocket.lost(), pocket.lost())
    made = await engine.order()

    async def another() -> None:
        (attempt,) = await engine.tried(made)
        engine.cloud.before.clear()
        engine.cloud.plant(attempt.request.owner, name="another")

    engine.cloud.before[pocket.FIND] = another
    await engine.until(made, "booting")
    assert len(engine.cloud.standing()) == 2
    beside = resource_steps.Means(
        store=store,
        clouds=engine.clouds,
        installation=engine.means.installation,
        environment="test",
        clock=engine.platform.clock,
    )
    others = reconciler.Reconciler(
        store,
        known=[orphan_kind.DeleteOrphan(beside)],
        clock=engine.platform.clock,
        chance=random.Random(1),
        tries=machine_orders.TRIES,
    )
    for _ in range(8):
        engine.platform.clock.advance(30)
        await others.round()
    (left,) = engine.cloud.standing()
    assert left["ref"] == (await engine.machine(made)).provider_ref
    rows = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT state FROM operations WHERE kind = ? LIMIT 5", orphan_kind.DELETE
        )
    )
    assert [row["state"] for row in rows] == ["done"]


@pytest.mark.parametrize("wish", ["m-1", "1/../../volumes/7"], ids=["anothers", "path"])
async def test_an_adopted_ref_that_is_not_this_orders_changes_nothing(
    wish: str, store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, pocket.lost())
    engine.cloud.arm(pocket.FIND, *[pocket.lost() for _ in range(200)])
    made = await engine.order()
    await engine.until(made, "unresolved", rounds=120)
    foreign = engine.cloud.plant(None, name="the-db")
    assert foreign == "m-1"
    await store.transact(
        lambda tx: requests.resolve(
            tx,
            operation_id=made.operation.operation_id,
            choice="adopt",
            provider_ref=wish,
            asked=engine.asked(),
        )
    )
    await engine.carry_on(rounds=2)
    found = await engine.stands(made)
    assert found.state.value == "unresolved"
    assert f"no machine {wish} that carries this order's tags" in (found.waiting or "")
    (tried,) = await engine.tried(made)
    assert (tried.state.value, tried.provider_ref) == ("sent", None)
    assert (await engine.machine(made)).provider_ref is None
    await engine.delete()
    await engine.carry_on(rounds=5)
    assert [one["ref"] for one in engine.cloud.standing()] == [foreign]
    assert not engine.cloud.calls(pocket.DELETE)


async def test_an_engine_that_lost_an_order_between_two_calls_of_it_sends_no_second_one(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(prepares=True, names_are_unique=False)
    )
    made = await engine.order()

    async def another_takes_it() -> None:
        engine.cloud.before.clear()
        await store.transact(
            lambda tx: tx.execute(
                "UPDATE operations SET holder = 'another', fence = fence + 1 "
                "WHERE operation_id = ?",
                made.operation.operation_id,
            )
        )

    engine.cloud.before[pocket.PREPARE] = another_takes_it
    await engine.carry_on(rounds=3)
    assert engine.cloud.calls(pocket.PREPARE)
    assert not engine.cloud.calls(pocket.CREATE)
    assert await engine.platform.count("action_log", f"details LIKE '%{pocket.CREATE}%'") == 0
    assert await engine.until(made, "booting") == "booting"
    assert len(engine.cloud.ever()) == 1


async def test_no_absence_is_believed_while_the_last_of_an_orders_calls_may_still_run(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(prepares=True))
    made = await engine.order()

    async def takes_minutes() -> None:
        engine.platform.clock.advance(300)

    engine.cloud.before[pocket.PREPARE] = takes_minutes
    engine.cloud.arm(pocket.CREATE, pocket.lost())
    await engine.carry_on(rounds=3)
    engine.cloud.before.clear()
    (tried,) = await engine.tried(made)
    assert tried.sent_at is not None
    asked = engine.platform.clock.now() - tried.sent_at
    assert asked < datetime.timedelta(seconds=60)  # of the call that buys, not of the first one
    while engine.platform.clock.now() - tried.sent_at < lookup.CALL - datetime.timedelta(
        seconds=11
    ):
        await engine.carry_on(rounds=1)
        assert len(await engine.tried(made)) == 1
    assert await engine.until(made, "booting") == "booting"
    assert len(await engine.tried(made)) == 2


async def test_no_absence_is_believed_while_a_repeat_of_the_order_may_still_run(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    """Each repeat may come late as well, so where none is answered a person decides."""
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(replays=True))
    made = await engine.order()
    engine.cloud.arm(pocket.CREATE, *[pocket.lost()] * 500)
    assert await engine.until(made, "unresolved", rounds=200) == "unresolved"
    (tried,) = await engine.tried(made)
    assert engine.cloud.calls().count(pocket.CREATE) > 2
    assert tried.sent_at is not None
    assert tried.doubted_at is not None
    assert tried.sent_at > tried.doubted_at  # of the last repeat
