"""The same node ordered again: the same order is found, another wish is refused; both stores."""

import datetime
import pathlib
from typing import Any

import pytest

from platform_server.cloud import means, requests
from platform_server.nodes import registry
from platform_server.store import contract
from provisioning import contract as provider
from tests.support import machine_orders
from tests.support.clouds import pocket
from wire_protocol import ids

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9"


def _ssh(engine: machine_orders.Engine, *, hours: int = 1) -> provider.Ssh:
    until = engine.platform.clock.now() + datetime.timedelta(hours=hours)
    return provider.Ssh(public_key=KEY, sources=("192.0.2.0/24",), until=until)


async def _order(
    engine: machine_orders.Engine, node_id: str = "web-1", **more: Any
) -> requests.Made:
    """Asks for it as another command does, so without the first one's key."""
    order = requests.Order(
        node_id=ids.parse_node_id(node_id),
        infra="default",
        connection=await engine.connection(),
        region="here",
        size="small",
        image="debian-12",
        price=pocket.PRICE,
        **more,
    )
    return await engine.store.transact(
        lambda tx: requests.create_machine(
            tx, order=order, operators=engine.platform.operators, asked=engine.asked()
        )
    )


async def test_the_same_wish_for_the_same_node_is_the_same_order_and_one_machine(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    first = await _order(
        engine, ssh=_ssh(engine), purpose="trial", warnings=("No net is default.",)
    )
    await engine.carry_on(rounds=1)
    again = await _order(engine, ssh=_ssh(engine))
    assert (first.is_found, again.is_found) == (False, True)
    assert again.operation.operation_id == first.operation.operation_id
    assert again.machine.machine_id == first.machine.machine_id
    await engine.to_active(first)
    active = await _order(engine, ssh=_ssh(engine))
    assert (active.is_found, active.operation.state.value) == (True, "active")
    await machine_orders.require_standard(engine, mutating=1)


async def test_another_wish_for_the_node_is_refused_with_both_values(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    await _order(engine, ssh=_ssh(engine))
    wishes: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, ": that one has ssh {"),
        ({"ssh": _ssh(engine), "role": "build"}, "has role general, not build. How it stands: "),
        ({"ssh": _ssh(engine), "network": "net-1"}, "has network none, not net-1. How"),
        ({"ssh": _ssh(engine, hours=2)}, "has SSH for 1:00:00, not 2:00:00. How it stands: "),
        (
            {"ssh": _ssh(engine), "labels": {"tier": "web"}, "role": "build"},
            'has labels none, not {"tier": "web"}; role general, not build. How it stands: ',
        ),
    )
    for other, said in wishes:
        with pytest.raises(requests.NodeTaken, match="operations watch") as refused:
            await _order(engine, **other)
        assert said in str(refused.value)


async def test_an_order_that_failed_or_is_being_ended_is_not_found_by_its_wish(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store,
        folder=tmp_path,
        limits=means.Limits(enrollment=datetime.timedelta(seconds=60), attempts=1),
    )
    made = await _order(engine)
    assert await engine.until(made, "failed") == "failed"
    with pytest.raises(requests.NodeTaken):
        await _order(engine)
    other = await _order(engine, "web-2")
    await engine.cancel(other)
    with pytest.raises(requests.NodeTaken):
        await _order(engine, "web-2")


async def test_a_deleted_machines_name_is_ordered_again_without_a_word_more(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    first = await _order(engine)
    await engine.to_active(first)
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    second = await _order(engine)
    assert (second.is_found, second.is_freed) == (False, True)
    await engine.to_active(second)
    assert len(engine.cloud.standing()) == 1
    await machine_orders.require_standard(engine, mutating=3)


async def test_a_node_that_a_person_removed_stays_removed_until_he_allows_it(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    await engine.to_active(await _order(engine))
    node_id = ids.parse_node_id("web-1")
    await store.transact(
        lambda tx: registry.remove(
            tx,
            node_id=node_id,
            operators=engine.platform.operators,
            now=engine.platform.clock.now(),
        )
    )
    engine.platform.clock.advance(1.0)
    gone = await engine.delete()
    assert await engine.until(gone, "deleted") == "deleted"
    with pytest.raises(requests.NodeTaken, match="nodes allow web-1"):
        await _order(engine)
