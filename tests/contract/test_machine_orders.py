"""Orders of machines over either store: the plain way from an order to a node, and to its end."""

import pathlib

from platform_server.store import contract
from tests.support import machine_orders
from tests.support.clouds import pocket


async def test_an_order_becomes_a_ready_node_and_deleting_it_ends_the_bill(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    guest = await engine.to_active(made)
    machine = await engine.machine(made)
    assert machine.provider_ref == guest.ref
    assert machine.active_at is not None
    events = [step.event.value for step in (await engine.stands(made)).steps]
    assert events == ["validate", "create", "accept", "admit", "succeed"]
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    assert not engine.cloud.standing()
    assert not engine.cloud.hanging()
    assert engine.removed == ["web-1"]
    assert not (await engine.machine(made)).counts
    await machine_orders.require_standard(engine, mutating=2)
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
