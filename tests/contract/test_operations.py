"""Operations over either store: one node at a time, the first failure stops, nothing half done."""

import pathlib

import pytest

from platform_server.dispatch import states as order_states
from platform_server.nodes import states as node_states
from platform_server.operations import batch, kinds, node_release, records, requests
from platform_server.store import contract
from tests.support import operating
from wire_protocol import orders, updates


async def test_a_node_is_taken_out_updated_heard_and_taken_in_again(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    made = await engine.update("web-1")
    (part,) = made.parts
    await engine.carry_on()
    assert await engine.states(part) == ["staging"]
    assert await web.scheduling() == "maintenance"
    order = await web.order()
    assert order is not None
    content = orders.read_signed(
        order.signed,
        trust_keys=engine.platform.trust.published.statement.trust_keys,
        now=engine.platform.clock.now(),
    ).content
    assert updates.parse_update(content).release == operating.RELEASE
    await web.takes_and_stages()
    await engine.carry_on()
    assert await engine.states(part) == ["restarting"]
    await web.restarts(operating.RELEASE)
    await engine.carry_on()
    assert made.whole is not None
    assert await engine.states(part, made.whole) == ["done", "done"]
    assert await web.scheduling() == "active"
    assert [kind for kind, subject in await operating.events_of(store) if subject == "web-1"] == [
        f"operation.{state}"
        for state in ("requested", "preparing", "staging", "restarting", "resuming", "done")
    ]
    assert [
        action
        for action, _, operation in await operating.actions_of(store)
        if operation == part.operation_id
    ] == ["nodes.maintenance", "nodes.order", "nodes.resume", "operation.done"]


async def test_nodes_are_updated_one_after_the_other_and_the_first_failure_stops(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (one, two, three) = await operating.place(
        store, folder=tmp_path, node_ids=("web-1", "web-2", "web-3")
    )
    made = await engine.update()
    await engine.carry_on()
    assert await engine.states(*made.parts) == ["staging", "requested", "requested"]
    await one.takes_and_stages()
    await engine.carry_on(rounds=2)
    await one.restarts(operating.RELEASE)
    await engine.carry_on()
    assert await engine.states(*made.parts) == ["done", "staging", "requested"]
    await two.answers(order_states.Event.TAKE)
    await two.answers(order_states.Event.FAIL, "The root helper refuses: no room.")
    await engine.carry_on(rounds=6)
    assert await engine.states(*made.parts) == ["done", "failed", "cancelled"]
    assert made.whole is not None
    whole = await engine.stands(made.whole)
    assert whole.state == "failed"
    assert whole.reason is not None
    assert whole.reason.startswith("web-2: The node could not do it: The root helper refuses")
    assert [await node.scheduling() for node in (one, two, three)] == ["active"] * 3
    assert await three.order() is None


async def test_a_machine_that_has_rolled_back_is_a_failure_and_takes_work_again(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    await web.takes_and_stages()
    await web.restarts(operating.OLD_RELEASE)
    await engine.carry_on(rounds=6)
    found = await engine.stands(part)
    assert found.state == "failed"
    assert found.reason is not None
    assert found.reason.endswith(f"has rolled back: it runs {operating.OLD_RELEASE}.")
    assert await web.scheduling() == "active"


async def test_a_node_that_is_not_heard_again_in_time_is_a_failure(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    await web.takes_and_stages()
    await web.is_lost()
    await engine.carry_on()
    engine.platform.clock.advance(121)
    await engine.carry_on()
    found = await engine.stands(part)
    assert found.state == "failed"
    assert found.reason is not None
    assert "was not heard within 120 s" in found.reason
    assert await web.scheduling() == "active"


async def test_an_order_that_nobody_took_is_taken_back_before_the_operation_has_failed(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    engine.platform.clock.advance(601)
    await engine.carry_on()
    assert await engine.states(part) == ["failed"]
    order = await web.order()
    assert order is not None
    assert order.state in (order_states.State.CANCELLED, order_states.State.EXPIRED)


async def test_an_agent_cut_off_while_staging_counts_by_what_is_heard(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    await web.answers(order_states.Event.TAKE)
    await web.answers(order_states.Event.FAIL, orders.INTERRUPTED)
    await engine.carry_on()
    assert await engine.states(part) == ["staging"]
    await web.restarts(operating.RELEASE)
    await engine.carry_on()
    assert await engine.states(part) == ["done"]


async def test_a_node_in_maintenance_before_stays_there(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    await store.transact(lambda tx: tx.execute("UPDATE nodes SET scheduling = 'maintenance'"))
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    await web.takes_and_stages()
    await web.restarts(operating.RELEASE)
    await engine.carry_on()
    assert await engine.states(part) == ["done"]
    assert await web.scheduling() == "maintenance"


async def test_a_roll_back_waits_for_another_release_than_the_present(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    operation = await engine.roll_back("web-1")
    await engine.carry_on()
    order = await web.order()
    assert order is not None
    assert order.kind == orders.Kind.ROLL_BACK
    await web.takes_and_stages()
    await engine.carry_on()
    await web.restarts("0.0.8-aaaaaaaaaaaa")
    await engine.carry_on()
    assert await engine.states(operation) == ["done"]


async def test_of_two_operations_on_a_node_the_second_is_refused(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    await engine.update("web-1")
    with pytest.raises(requests.Busy, match="enlist operations watch"):
        await engine.roll_back("web-1")
    with pytest.raises(requests.Busy):
        await engine.update("web-1")
    assert (await engine.update()).whole is None


async def test_what_cannot_be_updated_is_refused_by_name_and_passed_over_among_all(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (one, two) = await operating.place(store, folder=tmp_path, node_ids=("web-1", "web-2"))
    await two.is_lost()
    with pytest.raises(node_states.WrongState, match="unreachable"):
        await engine.update("web-1", "web-2")
    with pytest.raises(requests.CannotUpdate, match="newer release"):
        await engine.update("web-1", version="99.0.0")
    with pytest.raises(requests.CannotUpdate, match="enlist platform bundles add"):
        await engine.update("web-1", version="0.0.1")
    one.release = operating.RELEASE
    await one.beats()
    made = await engine.update("web-1")
    assert (made.whole, [passed.node_id for passed in made.passed]) == (None, ["web-1"])
    made = await engine.update()
    assert [passed.node_id for passed in made.passed] == ["web-1", "web-2"]


async def test_an_archive_that_is_served_nowhere_is_tried_again_a_few_times_only(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web,) = await operating.place(store, folder=tmp_path)
    engine.archives.is_served = False
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on(rounds=8)
    found = await engine.stands(part)
    assert found.state == "failed"
    assert found.reason is not None
    assert found.reason.endswith("Tried 3 times.")
    assert found.error_class == "transient"
    assert await web.scheduling() == "active"


async def test_a_node_that_claims_an_impossible_uptime_keeps_no_other_from_its_update(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (liar, web) = await operating.place(store, folder=tmp_path, node_ids=("web-1", "web-2"))
    liar.claims_uptime = 2**53
    await liar.beats()
    made = await engine.update()
    assert [part.subject for part in made.parts] == ["web-1", "web-2"]
    await engine.carry_on()
    assert await liar.scheduling() == "maintenance"
    assert await web.scheduling() == "active"


@pytest.mark.parametrize("kind", [node_release.UPDATE, batch.UPDATE_NODES])
async def test_a_fault_of_ours_in_looking_is_tried_a_few_times_only(
    store: contract.Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    made = await engine.update("web-1")

    async def look(*_: object, **__: object) -> kinds.Found:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(engine.reconciler._kinds[kind], "look", look)
    await engine.carry_on(rounds=12)
    assert made.whole is not None
    found = await engine.stands(made.parts[0] if kind == node_release.UPDATE else made.whole)
    assert found.state == "failed"
    assert found.reason is not None
    assert "Tried 3 times." in found.reason


async def test_a_node_whose_first_heartbeat_is_still_to_come_is_not_called_an_old_one(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    await store.transact(lambda tx: tx.execute("DELETE FROM heartbeats"))
    with pytest.raises(requests.CannotUpdate, match=r"no heartbeat yet.*run the command again"):
        await engine.update("web-1")


async def test_an_operation_on_a_removed_node_ends(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, _ = await operating.place(store, folder=tmp_path)
    (part,) = (await engine.update("web-1")).parts
    await engine.carry_on()
    await engine.platform.remove("web-1")
    await engine.carry_on()
    found = await engine.stands(part)
    assert (found.state, found.reason) == ("failed", "The node was removed.")


async def test_old_operations_go_with_their_parts_and_none_that_is_open(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine, (web, _) = await operating.place(store, folder=tmp_path, node_ids=("web-1", "web-2"))
    made = await engine.update()
    await engine.carry_on()
    await web.answers(order_states.Event.FAIL, "No.")
    await engine.carry_on(rounds=6)
    rolled = await engine.roll_back("web-2")
    now = operating.later(engine.platform, 1)
    for _ in range(3):
        await store.transact(lambda tx: records.purge(tx, ended_before=now, limit=2))
    left = await store.read(
        lambda tx: records.list_page(tx, wanted=records.Wanted(), limit=10, before=None)
    )
    assert [one.operation_id for one in left] == [rolled.operation_id]
    assert made.whole is not None
    row = await store.read(lambda tx: tx.fetch_one("SELECT COUNT(*) AS n FROM operation_steps"))
    assert row is not None
    assert row["n"] == 0
