"""Trials of deleting, on either store: gone already, never come up, a provider that is away."""

import datetime
import pathlib

import pytest

from platform_server.cloud import machines, means, requests, upkeep
from platform_server.nodes import registry
from platform_server.store import contract
from provisioning import outcomes
from tests.support import machine_orders
from tests.support.clouds import pocket
from wire_protocol import ids


async def test_b58_a_machine_deleted_behind_our_back_while_deleting_is_deleted(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    guest = await engine.to_active(made)

    async def somebody_is_faster() -> None:
        engine.cloud.before.clear()
        engine.cloud.lose(guest.ref)

    engine.cloud.before[pocket.DELETE] = somebody_is_faster
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    assert len(engine.cloud.ever()) == 1
    await machine_orders.require_standard(engine, mutating=2)


async def test_b66_a_machine_that_is_gone_already_is_deleted_and_so_is_one_that_never_enrolled(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store,
        folder=tmp_path,
        limits=means.Limits(enrollment=datetime.timedelta(seconds=60), attempts=1),
    )
    first = await engine.order("web-1")
    guest = await engine.to_active(first)
    engine.cloud.lose(guest.ref)
    gone = await engine.delete("web-1")
    assert await engine.until(gone, "deleted") == "deleted"
    second = await engine.order("web-2")
    assert await engine.until(second, "failed", rounds=30) == "failed"
    assert (await engine.machine(second)).counts
    gone = await engine.delete("web-2")
    assert await engine.until(gone, "deleted") == "deleted"
    assert not engine.cloud.standing()
    await machine_orders.require_standard(engine, mutating=3)


async def test_b66_a_provider_that_is_away_is_said_since_when_and_a_person_may_forget(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    await engine.to_active(made)
    engine.cloud.is_away = True
    gone = await engine.delete()
    since = engine.platform.clock.now()
    await engine.carry_on(rounds=40, seconds=3600.0)
    found = await engine.stands(gone)
    assert found.state.value == "deleting"
    assert found.waiting == "The connection was cut."
    assert found.waiting_since is not None
    assert found.waiting_since - since < datetime.timedelta(hours=2)
    assert (await engine.machine(made)).counts
    said = await store.transact(
        lambda tx: requests.forget(
            tx, machine_id="web-1", reason="It burnt.", asked=engine.asked("alice")
        )
    )
    assert said.operation.state.value == "failed"
    assert said.operation.reason is not None
    assert "alice says that it is gone: It burnt." in said.operation.reason
    assert said.machine.forgotten_by == "alice"
    assert not said.machine.counts
    assert len(engine.cloud.standing()) == 1  # nothing burnt: the word of a person is believed


async def test_deleting_asks_until_every_child_is_confirmed_gone(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(children_stay=True)
    )
    await engine.to_active(await engine.order())
    engine.cloud.arm(
        pocket.DELETE_CHILD,
        *[pocket.refused(outcomes.Topic.STATE, later=True, code="locked") for _ in range(3)],
    )
    gone = await engine.delete()
    await engine.carry_on(rounds=3)
    assert await engine.state(gone) == "deleting"
    assert engine.cloud.hanging()
    assert await engine.until(gone, "deleted") == "deleted"
    assert not engine.cloud.hanging()
    await machine_orders.require_standard(engine, mutating=7)  # two children, one refused thrice


async def test_the_node_is_removed_before_the_provider_is_asked(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    await engine.to_active(await engine.order())
    seen: list[str] = []

    async def look() -> None:
        node = await store.read(lambda tx: registry.get(tx, node_id=ids.NodeId("web-1")))
        seen.append(node.state.value)

    engine.cloud.before[pocket.DELETE] = look
    gone = await engine.delete()
    await engine.until(gone, "deleted")
    assert seen == ["removed"]
    await machine_orders.require_standard(engine, mutating=2)


async def test_an_active_machine_that_vanished_counts_no_more_and_is_told(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    guest = await engine.to_active(made)
    engine.cloud.lose(guest.ref)
    for _ in range(3):
        engine.platform.clock.advance(301)
        await engine.viewer.tick()
    assert not (await engine.machine(made)).counts
    told = await store.read(
        lambda tx: tx.fetch_all(
            "SELECT subject FROM events WHERE kind = 'cloud-machine.vanished' LIMIT 10"
        )
    )
    assert [row["subject"] for row in told] == ["web-1"]
    await machine_orders.require_standard(engine, mutating=1, unseen_seconds=1000.0)


async def test_a_kept_machine_counts_on_and_is_deleted_later(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    await engine.to_active(made)
    kept = await engine.delete(keep_machine=True)
    assert await engine.until(kept, "done") == "done"
    assert len(engine.cloud.standing()) == 1
    assert (await engine.machine(made)).counts
    assert not engine.cloud.calls(pocket.DELETE)
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    await machine_orders.require_standard(engine, mutating=2)


async def test_what_does_not_carry_our_tags_is_never_deleted(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    await engine.to_active(made)
    foreign = engine.cloud.plant(None, name="the-db")
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_attempts SET provider_ref = ? WHERE operation_id = ?",
            foreign,
            made.operation.operation_id,
        )
    )
    gone = await engine.delete()
    await engine.carry_on(rounds=20)
    assert await engine.state(gone) == "deleting"
    assert "does not carry this order's tags" in ((await engine.stands(gone)).waiting or "")
    assert not engine.cloud.calls(pocket.DELETE)
    await machine_orders.require_standard(engine, mutating=1)


async def test_a_machine_reboots_once_and_is_seen_to_run(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    await engine.to_active(await engine.order())
    asked = await store.transact(
        lambda tx: requests.reboot_machine(tx, machine_id="web-1", asked=engine.asked())
    )
    assert await engine.until(asked, "done") == "done"
    assert engine.cloud.calls(pocket.REBOOT) == [pocket.REBOOT]
    await machine_orders.require_standard(engine, mutating=2)


async def test_nothing_is_deleted_twice_and_nothing_that_is_not_there(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    await engine.to_active(await engine.order())
    first = await engine.delete()
    again = await engine.delete()
    assert again.operation.operation_id == first.operation.operation_id
    await engine.until(first, "deleted")
    with pytest.raises(requests.WrongState, match="is gone"):
        await engine.delete()
    with pytest.raises(machines.NoSuchMachine):
        await engine.delete("web-9")
    await machine_orders.require_standard(engine, mutating=2)


async def test_a_failed_machine_is_kept_unless_the_setting_says_for_how_long(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store,
        folder=tmp_path,
        limits=means.Limits(enrollment=datetime.timedelta(seconds=60), attempts=1),
    )
    made = await engine.order()
    await engine.until(made, "failed", rounds=30)
    keeping = upkeep.Upkeep(
        store,
        destroy_after=datetime.timedelta(hours=1),
        environment="test",
        clock=engine.platform.clock,
    )
    assert await keeping.tick() == 0
    engine.platform.clock.advance(3601)
    assert await keeping.tick() == 1
    assert await keeping.tick() == 0
    await engine.carry_on(rounds=6)
    assert not engine.cloud.standing()
    assert not (await engine.machine(made)).counts
    await machine_orders.require_standard(engine, mutating=2)
