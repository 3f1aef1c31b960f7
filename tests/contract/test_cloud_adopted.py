"""What belongs to nothing known, on either store: found, adopted, deleted until confirmed."""

import pathlib

import pytest

from platform_server.cloud import adopting, known, machines, orphans, requests, sweeper
from platform_server.operations import records
from platform_server.store import contract
from provisioning import contract as provider
from provisioning.aws import values
from tests.support import machine_orders
from tests.support.clouds import pocket
from wire_protocol import ids


def _owner(engine: machine_orders.Engine, operation: str) -> provider.Owner:
    return provider.Owner(
        installation=engine.means.installation,
        infra="default",
        operation=operation,
        node="web-1",
        attempt=3,
    )


async def _sweep(engine: machine_orders.Engine) -> None:
    await sweeper.Sweeper(
        engine.store,
        clouds=engine.clouds,
        installation=engine.means.installation,
        environment="test",
        rules=sweeper.Rules(),
        clock=engine.platform.clock,
    ).sweep_all()


async def _adopt(engine: machine_orders.Engine, ref: str, node: str = "web-1") -> requests.Made:
    connection = await engine.connection()
    machine = await engine.store.transact(
        lambda tx: adopting.adopt(
            tx,
            connection=connection,
            provider_ref=ref,
            node_id=ids.parse_node_id(node),
            installation=engine.means.installation,
            asked=engine.asked(),
        )
    )
    operation = await engine.store.read(
        lambda tx: records.find(tx, operation_id=machine.operation_id)
    )
    assert operation is not None
    return requests.Made(operation=operation, machine=machine)


@pytest.mark.parametrize("hangs", [(), ("disk", "address")], ids=["bare", "with-children"])
async def test_an_adopted_machine_is_deleted_at_its_provider_until_that_is_confirmed(
    hangs: tuple[str, ...], store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(children_stay=True)
    )
    ref = engine.cloud.plant(_owner(engine, "op-lost"), name="web-1-lost", hangs=hangs)
    await _sweep(engine)
    made = await _adopt(engine, ref)
    assert not made.operation.is_open
    await engine.viewer.refresh_machine(made.machine, actor="local:0")  # records what hangs on it
    engine.cloud.arm(pocket.DELETE, pocket.lost())
    gone = await engine.delete()
    await engine.carry_on(rounds=1)
    assert await engine.state(gone) == "deleting"
    assert await engine.until(gone, "deleted") == "deleted"
    assert engine.cloud.calls(pocket.DELETE)
    assert not engine.cloud.standing()
    assert not engine.cloud.hanging()
    assert not (await engine.machine(made)).counts


async def test_what_no_attempt_is_recorded_of_is_not_called_gone(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    ref = engine.cloud.plant(_owner(engine, "op-lost"), name="web-1-lost")
    await _sweep(engine)
    made = await _adopt(engine, ref)
    await store.transact(lambda tx: tx.execute("DELETE FROM cloud_attempts"))
    gone = await engine.delete()
    await engine.carry_on(rounds=12)
    assert await engine.state(gone) == "deleting"
    assert "No attempt is recorded" in ((await engine.stands(gone)).waiting or "")
    assert (await engine.machine(made)).counts


async def test_the_order_that_made_an_adopted_machine_still_names_its_own(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    ordered = await engine.order()
    await engine.to_active(ordered)
    ref = engine.cloud.plant(_owner(engine, ordered.operation.operation_id), name="web-1-second")
    await _sweep(engine)
    adopted = await _adopt(engine, ref, "web-2")
    found = await store.read(
        lambda tx: machines.find_of_operation(tx, operation_id=ordered.operation.operation_id)
    )
    assert found is not None
    assert found.machine_id == ordered.machine.machine_id
    gone = await engine.delete("web-2")
    assert await engine.until(gone, "deleted") == "deleted"
    assert [one["ref"] for one in engine.cloud.standing()] == [
        (await engine.machine(ordered)).provider_ref
    ]
    assert not (await engine.machine(adopted)).counts


async def test_what_hung_on_a_forgotten_machine_is_listed_as_an_orphan(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(children_stay=True)
    )
    made = await engine.order()
    guest = await engine.to_active(made)
    engine.cloud.is_away = True
    await engine.delete()
    await engine.carry_on()
    await store.transact(
        lambda tx: requests.forget(tx, machine_id="web-1", reason="Lost.", asked=engine.asked())
    )
    engine.cloud.is_away = False
    engine.cloud.lose(guest.ref)
    await _sweep(engine)
    listed = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    assert sorted(one.kind for one in listed) == ["address", "disk"]


async def test_a_kept_volume_is_no_orphan_whatever_flags_its_attachment_has(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    connection, owner = await engine.connection(), _owner(engine, "op-volume")
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_children(child_id, connection_id, kind, provider_ref, name, "
            "operation_id, keep, written_at, sent_at) "
            "VALUES ('v', ?, 'volume', 'vol-1', 'data', 'op-volume', 1, 0, 0)",
            connection.connection_id,
        )
    )
    present = await store.read(lambda tx: known.read(tx, connection_id=connection.connection_id))
    for kind in (provider.ChildKind.DISK, provider.ChildKind.VOLUME):
        child = provider.Child(kind=kind, ref="vol-1", owner=owner)
        seen = provider.Inventory(machines=(), children=(child,))
        found = known.list_strays(seen, known=present, installation=owner.installation)
        assert not found
    told = values.volume_child(
        {
            "VolumeId": "vol-1",
            "Attachments": [{"InstanceId": "i-1", "DeleteOnTermination": True}],
            "Tags": [{"Key": values.MARK, "Value": "volume"}],
        },
        region="here",
    )
    assert (told.kind, told.keep) == (provider.ChildKind.VOLUME, True)
