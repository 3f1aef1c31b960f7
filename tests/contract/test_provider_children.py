"""Volumes, snapshots and stable addresses at every provider that has them.

Each is made with our tags, seen in the inventory, given and taken, deleted and confirmed gone; none
goes along with a machine.
"""

import dataclasses

import pytest

from provisioning import contract, naming, outcomes
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, ordered, until_child_gone, until_gone
from tests.support.clouds.bench import Bench

KIND = contract.ChildKind
CAPABILITY = {
    KIND.VOLUME: contract.Capability.VOLUMES,
    KIND.SNAPSHOT: contract.Capability.SNAPSHOTS,
    KIND.ADDRESS: contract.Capability.ADDRESSES,
}


def owner_of_child(bench: Bench, kind: contract.ChildKind) -> contract.Owner:
    owner = bench.request(operation=f"op-{kind.value}").owner
    return dataclasses.replace(owner, node="kept")


async def made(
    bench: Bench,
    driver: contract.Driver,
    kind: contract.ChildKind,
    *,
    of: str | None = None,
    region: str | None = None,
) -> contract.Child:
    """One thing of this kind, come to its end."""
    if CAPABILITY[kind] not in driver.capabilities:
        pytest.skip(f"{bench.provider} makes no {kind}")
    owner = owner_of_child(bench, kind)
    child = await driver.create_child(
        kind,
        owner=owner,
        name=naming.child_name(owner, kind),
        region=region or bench.region,
        size_gigabytes=bench.volume_gigabytes if kind is KIND.VOLUME else None,
        of=of,
    )
    bench.settle()
    return await driver.describe_child(child) or child  # some have their id only when finished


@pytest.mark.parametrize("kind", [KIND.VOLUME, KIND.ADDRESS], ids=str)
async def test_what_was_made_is_in_the_inventory_with_its_owner(
    bench: Bench, driver: contract.Driver, kind: contract.ChildKind
) -> None:
    child = await made(bench, driver, kind)
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    seen = [one for one in inventory.children if one.kind is kind]
    if kind is KIND.ADDRESS and not bench.addresses_carry_owner:
        assert seen == []  # whose it is stands in our records alone
        return
    assert [(one.ref, one.owner) for one in seen] == [(child.ref, owner_of_child(bench, kind))]
    assert seen[0].keep
    assert seen[0].attached_to is None


@pytest.mark.parametrize("kind", [KIND.VOLUME, KIND.ADDRESS], ids=str)
async def test_what_was_made_is_deleted_and_confirmed_gone(
    bench: Bench, driver: contract.Driver, kind: contract.ChildKind
) -> None:
    child = await made(bench, driver, kind)
    seen = await driver.describe_child(child)
    assert seen is not None
    if kind is KIND.VOLUME or bench.addresses_carry_owner:
        assert seen.owner == owner_of_child(bench, kind)  # by that alone it is given and deleted
    await until_child_gone(bench, driver, child)
    await driver.delete_child(child)
    assert bench.ledger.living_things() == []


async def test_another_installations_volume_is_not_in_the_inventory(
    bench: Bench, driver: contract.Driver
) -> None:
    await made(bench, driver, KIND.VOLUME)
    inventory = await driver.inventory("in-0000000000ff")
    assert inventory.children == ()
    assert inventory.is_complete


async def test_a_volume_is_given_to_a_machine_and_taken_from_it(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    volume = await made(bench, driver, KIND.VOLUME, of=created.ref)
    await driver.attach(volume, to=created.ref)
    bench.settle()
    await driver.attach(volume, to=created.ref)
    seen = await driver.describe_child(volume)
    assert seen is not None
    assert seen.attached_to == created.ref
    await driver.detach(seen)
    bench.settle()
    await driver.detach(seen)
    seen = await driver.describe_child(volume)
    assert seen is not None
    assert seen.attached_to is None


async def test_a_volume_in_use_is_not_deleted(bench: Bench, driver: contract.Driver) -> None:
    _, created = await ordered(bench, driver)
    volume = await made(bench, driver, KIND.VOLUME, of=created.ref)
    await driver.attach(volume, to=created.ref)
    bench.settle()
    fault = await failing(driver.delete_child(volume))
    assert fault.outcome is outcomes.Outcome.NOT_DONE_RETRYABLE
    assert fault.topic is outcomes.Topic.STATE
    assert await driver.describe_child(volume) is not None


async def test_a_volume_outlives_the_machine_that_it_hung_on(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    volume = await made(bench, driver, KIND.VOLUME, of=created.ref)
    await driver.attach(volume, to=created.ref)
    bench.settle()
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    hanging = {one.ref: one.keep for one in machine.children if one.kind is KIND.VOLUME}
    assert hanging == {volume.ref: True}
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    seen = await driver.describe_child(volume)
    assert seen is not None
    assert seen.attached_to is None


async def test_a_snapshot_of_a_machine_is_made_seen_and_deleted(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    snapshot = await made(bench, driver, KIND.SNAPSHOT, of=created.ref)
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    seen = [one for one in inventory.children if one.kind is KIND.SNAPSHOT]
    assert [(one.ref, one.owner) for one in seen] == [
        (snapshot.ref, owner_of_child(bench, KIND.SNAPSHOT))
    ]
    await until_child_gone(bench, driver, snapshot)


async def test_a_snapshot_outlives_the_machine_it_was_taken_of(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    snapshot = await made(bench, driver, KIND.SNAPSHOT, of=created.ref)
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    seen = await driver.describe_child(snapshot)
    assert seen is not None
    assert (seen.ref, seen.owner) == (snapshot.ref, owner_of_child(bench, KIND.SNAPSHOT))
    assert snapshot.ref in [one.ref for one in bench.ledger.living_things()]


async def test_a_volume_of_another_region_is_refused_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    volume = await made(bench, driver, KIND.VOLUME, region=bench.other_region)
    request = dataclasses.replace(bench.request(), volumes=(volume.ref,))
    plan = await driver.plan(request)
    assert plan.refusals
    assert bench.region in " ".join(plan.refusals)
