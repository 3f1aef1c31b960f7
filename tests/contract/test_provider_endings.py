"""Deleting at every provider, and the inventory by which it is found out that something is left."""

import pytest

from provisioning import contract, outcomes
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, is_clean, ordered, until_gone
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic


# --- deleting -----------------------------------------------------------------------------------


async def test_a_deleted_machine_is_gone_with_all_that_was_made_for_it(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    hanging = {(one.kind, one.ref): one for one in (*created.children, *machine.children)}
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    for child in hanging.values():
        if not child.keep:
            await driver.delete_child(child)
            bench.settle()
            assert await driver.describe_child(child) is None
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []


async def test_deleting_twice_and_deleting_what_never_was_are_fine(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    await driver.delete(created.ref, region=request.region)
    for child in created.children:
        await driver.delete_child(child)
        await driver.delete_child(child)
    assert await driver.describe(created.ref, region=request.region) is None


async def test_a_locked_machine_is_deleted_later(bench: Bench, driver: contract.Driver) -> None:
    if bench.codes.locked is None:
        pytest.skip(f"{bench.provider} locks nothing")
    request, created = await ordered(bench, driver)
    armed = Armed(verb=Verb.FAIL_CODE, code=bench.codes.locked)
    bench.script.arm(armed, on=bench.steps[Step.DELETE])
    fault = await failing(driver.delete(created.ref, region=request.region))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)


async def test_a_machine_can_be_restarted(bench: Bench, driver: contract.Driver) -> None:
    if contract.Capability.REBOOT not in driver.capabilities:
        pytest.skip(f"{bench.provider} restarts nothing")
    request, created = await ordered(bench, driver)
    await driver.reboot(created.ref, region=request.region)
    bench.settle()
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    assert machine.power is contract.Power.RUNNING


# --- inventory ----------------------------------------------------------------------------------


async def test_the_inventory_reads_every_page(bench: Bench, driver: contract.Driver) -> None:
    bench.script.page_size = 2
    made = {
        (await ordered(bench, driver, operation=f"op-{number}", node=f"node-{number}"))[1].ref
        for number in range(5)
    }
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert {one.ref for one in inventory.machines} == made
    assert len(inventory.machines) == 5
    assert inventory.is_complete


async def test_an_inventory_with_a_page_missing_is_not_complete(
    bench: Bench, driver: contract.Driver
) -> None:
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} has no pages")
    await ordered(bench, driver)
    bench.script.arm_always(Armed(verb=Verb.BEFORE_5XX, status=500), on=bench.steps[Step.LIST])
    assert not await is_clean(driver.inventory(bench_kit.INSTALLATION))
