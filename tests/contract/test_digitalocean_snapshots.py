"""Snapshots of machines at DigitalOcean, which have no id before they are finished, over a store.

The Platform's own operations over either store; the fake takes a snapshot until it is settled.
"""

from collections.abc import Iterator

import pytest

from platform_server.cloud import beside, resources
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from tests.support import cloud_desk
from tests.support.clouds import digitalocean, digitalocean_bench

SNAPSHOT = provider.ChildKind.SNAPSHOT


@pytest.fixture
def cloud() -> Iterator[digitalocean_bench.DigitalOceanBench]:
    """A fake DigitalOcean that is running."""
    with digitalocean_bench.DigitalOceanBench() as bench:
        yield bench


@pytest.fixture
async def desk(
    store: contract.Store, cloud: digitalocean_bench.DigitalOceanBench
) -> cloud_desk.Desk:
    """A Platform that is connected to it and has a machine there."""
    made = cloud_desk.place(store, cloud, address=cloud.opening().endpoints[""])
    await made.connecting.save(made.wish(token=digitalocean.TOKEN, provider="digitalocean"))
    owner = provider.Owner(
        installation=made.installation, infra="default", operation="op-1", node="web-1", attempt=1
    )
    ref = cloud.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
    cloud.settle()
    connection = await made.get()
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, ordered_at, ordered_by) "
            "VALUES ('m-1', 'web-1', ?, 'digitalocean', 'op-1', 'nyc3', 's-1vcpu-2gb', "
            "'debian-12-x64', 't', ?, 0, 'x')",
            connection.connection_id,
            ref,
        )
    )
    return made


async def _begun(desk: cloud_desk.Desk) -> resources.Made:
    wish = resources.Wish(kind=SNAPSHOT, name="golden", infra="default", of="web-1")
    made = await desk.store.transact(lambda tx: resources.create(tx, wish=wish, asked=desk.asked))
    await desk.carry_on()
    return made


async def _delete(desk: cloud_desk.Desk) -> resources.Made:
    return await desk.store.transact(
        lambda tx: resources.delete(tx, resource_id="golden", asked=desk.asked)
    )


async def test_a_machines_snapshot_at_digitalocean_gets_its_id_and_is_deleted(
    desk: cloud_desk.Desk, cloud: digitalocean_bench.DigitalOceanBench
) -> None:
    made = await _begun(desk)
    assert (await desk.stands(made.operation)).is_open  # it is still being taken
    cloud.settle()
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    snapshot = await desk.store.read(lambda tx: beside.get(tx, resource_id="golden"))
    (living,) = cloud.ledger.living_things(desk.installation)
    assert (living.kind, living.ref) == ("snapshot", snapshot.provider_ref)
    assert snapshot.price is not None
    deleting = await _delete(desk)
    await desk.carry_on()
    assert (await desk.stands(deleting.operation)).state == "done"
    assert cloud.ledger.living_things() == []
    assert cloud.ledger.count("DELETE /v2/snapshots/{id}") == 1


async def test_a_snapshot_that_is_still_taken_is_not_called_gone(
    desk: cloud_desk.Desk, cloud: digitalocean_bench.DigitalOceanBench
) -> None:
    made = await _begun(desk)
    await desk.carry_on(rounds=60, seconds=300.0)  # longer than is waited for
    assert (await desk.stands(made.operation)).state == "failed"
    deleting = await _delete(desk)
    await desk.carry_on()
    assert (await desk.stands(deleting.operation)).is_open
    cloud.settle()
    await desk.carry_on(rounds=30, seconds=300.0)
    assert (await desk.stands(deleting.operation)).state == "done"
    assert cloud.ledger.count("DELETE /v2/snapshots/{id}") == 1
    assert cloud.ledger.living_things() == []
