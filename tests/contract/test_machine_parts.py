"""What hung on a machine is deleted with it only where it is the order's, on either store.

Lent, taken back, made by the order without a tag, of another order: each is told apart by what the
provider says of it at the end, and by what the create call itself has named.
"""

import dataclasses
import json
import pathlib
from typing import Any

from platform_server.cloud import parting
from platform_server.store import contract
from provisioning import contract as provider
from tests.support import machine_orders
from tests.support.clouds import pocket

STAYS = pocket.Rules(children_stay=True)


def _of(engine: machine_orders.Engine, operation: str, **more: str) -> provider.Owner:
    owner = provider.Owner(
        installation=engine.means.installation,
        infra="default",
        operation=operation,
        node="db-1",
        attempt=1,
    )
    return dataclasses.replace(owner, **more)  # type: ignore[arg-type]


async def _left(engine: machine_orders.Engine) -> list[dict[str, Any]]:
    """The events of parts that were let go."""
    rows = await engine.store.read(
        lambda tx: tx.fetch_all(
            "SELECT data FROM events WHERE kind = ? ORDER BY seq LIMIT 20",
            parting.PART_LEFT,
        )
    )
    return [json.loads(row["data"]) for row in rows]


async def _see(engine: machine_orders.Engine, made: Any) -> None:
    """The Platform looks at the machine and writes down what hangs on it."""
    await engine.viewer.refresh_machine(await engine.machine(made), actor="local:0")


async def test_what_was_lent_to_a_machine_and_taken_back_is_not_deleted_with_it(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=STAYS)
    made = await engine.order()
    guest = await engine.to_active(made)
    lent = [
        engine.cloud.hang("disk", of=guest.ref, owner=None),
        engine.cloud.hang("disk", of=guest.ref, owner=_of(engine, "op-9", installation="in-9")),
        engine.cloud.hang("address", of=guest.ref, owner=_of(engine, "op-9")),
    ]
    await _see(engine, made)
    for one in lent:
        engine.cloud.take_back(one)
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    assert sorted(one["ref"] for one in engine.cloud.hanging()) == sorted(lent)
    assert len(engine.cloud.calls(pocket.DELETE_CHILD)) == 2  # its own disk and address
    assert sorted(one["provider_ref"] for one in await _left(engine)) == sorted(lent)
    assert {one["operation_id"] for one in await _left(engine)} == {None, "op-9"}
    assert await engine.platform.count("cloud_children", "gone_at IS NULL") == 0
    engine.cloud.end_child(lent[2])  # an orphan of ours, which is the sweeper's to list
    await machine_orders.require_standard(engine, mutating=4)


async def test_what_carries_no_tags_is_waited_for_since_it_may_be_going_with_its_machine(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=STAYS)
    made = await engine.order()
    guest = await engine.to_active(made)
    slow = engine.cloud.hang("address", of=guest.ref, owner=None)
    await _see(engine, made)
    gone = await engine.delete()
    while engine.cloud.standing():
        await engine.carry_on(rounds=1)
    await engine.carry_on(rounds=4)
    assert await engine.state(gone) == "deleting"
    assert await _left(engine) == []
    engine.cloud.end_child(slow)
    assert await engine.until(gone, "deleted") == "deleted"
    assert await _left(engine) == []


async def test_what_the_create_call_named_is_deleted_though_it_carries_no_tags(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(children_stay=True, children_are_bare=True)
    )
    made = await engine.order()
    await engine.to_active(made)
    assert len(engine.cloud.hanging()) == 2
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    assert engine.cloud.hanging() == []
    assert await _left(engine) == []


async def test_what_is_let_go_and_given_to_another_machine_is_not_deleted_with_that_either(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=STAYS)
    for node in ("web-1", "web-2"):
        made = await engine.order(node)
        guest = await engine.to_active(made)
        if node == "web-1":
            lent = engine.cloud.hang("disk", of=guest.ref, owner=None)
        else:
            engine.cloud.give(lent, to=guest.ref)
        await _see(engine, made)
        engine.cloud.take_back(lent)
        gone = await engine.delete(node)
        assert await engine.until(gone, "deleted") == "deleted"
    assert [one["ref"] for one in engine.cloud.hanging()] == [lent]
    assert len(await _left(engine)) == 2


async def test_what_another_machines_create_call_named_and_that_was_lent_here_is_not_deleted_here(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(children_stay=True, children_are_bare=True)
    )
    await engine.to_active(await engine.order("web-1"))
    (disk,) = [one["ref"] for one in engine.cloud.hanging() if one["kind"] == "disk"]
    made = await engine.order("web-2")
    guest = await engine.to_active(made)
    engine.cloud.give(disk, to=guest.ref)
    await _see(engine, made)
    engine.cloud.take_back(disk)
    gone = await engine.delete("web-2")
    assert await engine.until(gone, "deleted") == "deleted"
    assert disk in [one["ref"] for one in engine.cloud.hanging()]
    assert [one["provider_ref"] for one in await _left(engine)] == [disk]
