"""Looking an order up, on either store: what failed settles nothing, and no order has two."""

import pathlib
import random

from platform_server.cloud import means, orphan_kind, resource_steps
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
