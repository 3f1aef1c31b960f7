"""What every provider's driver promises of an order, whatever becomes of the answer.

Known limit: shown against fakes; what only a live account confirms stands in docs/providers/.
"""

import asyncio
import dataclasses

import pytest

from provisioning import abilities, contract, credentials, naming, outcomes, providers
from tests.support import waits
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import (
    failing,
    is_clean,
    ordered,
    settled,
)
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic


def test_a_driver_can_do_what_is_said_of_its_provider(driver: contract.Driver) -> None:
    assert driver.capabilities == abilities.ALL[driver.provider]
    has_choice = not credentials.LONG_LIVED.isdisjoint(providers.get(driver.provider).kinds)
    assert (contract.Capability.FEDERATION in driver.capabilities) is has_choice


# --- an order -----------------------------------------------------------------------------------


async def test_an_ordered_machine_is_described_with_its_owner_and_its_name(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    machine = await driver.describe(created.ref, region=request.region)
    assert machine is not None
    assert (machine.ref, machine.name, machine.owner) == (created.ref, request.name, request.owner)
    assert machine.power is contract.Power.RUNNING


async def test_first_boot_data_arrives_byte_for_byte(bench: Bench, driver: contract.Driver) -> None:
    request, created = await ordered(bench, driver)
    assert bench.ledger.machines[created.ref].user_data == request.first_boot.encode()


async def test_what_was_accepted_comes_to_its_end(bench: Bench, driver: contract.Driver) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE


async def test_an_order_is_sent_once(bench: Bench, driver: contract.Driver) -> None:
    await ordered(bench, driver)
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_nothing_ordered_is_nothing_found(bench: Bench, driver: contract.Driver) -> None:
    request = bench.request()
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert seen == contract.Sightings(instances=(), is_complete=True)


async def test_a_machine_is_found_by_its_operation(bench: Bench, driver: contract.Driver) -> None:
    request, created = await ordered(bench, driver)
    await ordered(bench, driver, operation="op-2", node="other")
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert [(one.ref, one.owner) for one in seen.instances] == [(created.ref, request.owner)]
    assert seen.is_complete


async def test_a_later_attempt_finds_what_the_former_one_made(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    later = dataclasses.replace(request.owner, attempt=2)
    seen = await driver.find(later, name=naming.name_of(later), region=request.region)
    assert [one.ref for one in seen.instances] == [created.ref]


async def test_a_name_alone_makes_nothing_ours(bench: Bench, driver: contract.Driver) -> None:
    request = bench.request()
    bench.plant(name=request.name, tags={})
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert all(one.owner is None for one in seen.instances)


async def test_another_installations_machine_is_not_ours(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    foreign = dataclasses.replace(request.owner, installation="in-0000000000ff")
    bench.plant(name="demo-0123456789", tags=naming.tags_of(foreign))
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert [one for one in seen.instances if one.owner == request.owner] == []
    assert (await driver.inventory(bench_kit.INSTALLATION)).machines == ()


# --- lost answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "armed",
    [
        pytest.param(Armed(verb=Verb.COMMIT_THEN_DROP), id="the connection is cut"),
        pytest.param(Armed(verb=Verb.COMMIT_THEN_5XX, status=502), id="502"),
        pytest.param(Armed(verb=Verb.COMMIT_THEN_5XX, status=504), id="504"),
        pytest.param(Armed(verb=Verb.COMMIT_THEN_5XX, status=503, html=True), id="a page of HTML"),
    ],
)
async def test_an_order_whose_answer_is_lost_is_unknown_and_then_found(
    bench: Bench, driver: contract.Driver, armed: Armed
) -> None:
    if armed.verb not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to lose")
    request = await settled(driver, bench.request())
    bench.script.arm(armed, on=bench.steps[Step.CREATE])
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1
    bench.settle()
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert [one.owner for one in seen.instances] == [request.owner]


async def test_an_order_that_failed_before_it_was_done_is_unknown_and_not_found(
    bench: Bench, driver: contract.Driver
) -> None:
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to lose")
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=500), on=bench.steps[Step.CREATE])
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1
    assert bench.ledger.living() == []


async def test_an_order_that_is_never_answered_is_unknown_within_its_time(
    bench: Bench, hasty: contract.Driver
) -> None:
    if Verb.HANG not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to wait for")
    request = await settled(hasty, bench.request())
    bench.script.arm(Armed(verb=Verb.HANG), on=bench.steps[Step.CREATE])
    async with asyncio.timeout(20):
        fault = await failing(hasty.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_a_slow_order_is_waited_for(bench: Bench, driver: contract.Driver) -> None:
    if Verb.DELAY not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to wait for")
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.DELAY, seconds=20), on=bench.steps[Step.CREATE])
    creating = asyncio.create_task(driver.create(request))
    await waits.until(lambda: bench.ledger.count(bench.steps[Step.CREATE]) == 1, seconds=20)
    assert not creating.done()
    bench.clock.advance(20)
    created = await creating
    assert [one.ref for one in bench.ledger.living()] == [created.ref]


async def test_a_look_up_that_fails_is_no_answer(bench: Bench, driver: contract.Driver) -> None:
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answer to lose")
    request = bench.request()
    bench.script.arm_always(Armed(verb=Verb.BEFORE_5XX, status=500), on=bench.steps[Step.FIND])
    asking = driver.find(request.owner, name=request.name, region=request.region)
    assert not await is_clean(asking)


async def test_a_failed_poll_is_no_end_of_the_order(bench: Bench, driver: contract.Driver) -> None:
    if Step.POLL not in bench.steps or Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} has nothing to poll")
    created = await driver.create(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=503), on=bench.steps[Step.POLL], times=3)
    for _ in range(3):
        assert (await failing(driver.poll(created))).outcome is Outcome.UNKNOWN
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_a_poll_that_cannot_be_made_is_no_end_of_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    """B12: neither a network that is away nor a right that was taken says what became of it."""
    if Step.POLL not in bench.steps or Verb.FAIL_CODE not in bench.verbs:
        pytest.skip(f"{bench.provider} has nothing to poll")
    created = await driver.create(await settled(driver, bench.request()))
    armed = Armed(verb=Verb.FAIL_CODE, code="SomethingNewRefused", status=403)
    bench.script.arm_always(armed, on=bench.steps[Step.POLL])
    ended = {Outcome.NOT_DONE_PERMANENT, Outcome.NOT_DONE_RETRYABLE}
    assert (await failing(driver.poll(created))).outcome not in ended
    opening = bench.opening()
    nowhere = dict.fromkeys(opening.endpoints or {"": ""}, "http://127.0.0.1:9")
    lost = providers.open_driver(
        bench.provider,
        dataclasses.replace(opening, endpoints=nowhere, limits=bench_kit.SHORT),
    )
    try:
        assert (await failing(lost.poll(created))).outcome not in ended
    finally:
        await lost.close()
    bench.script.disarm(on=bench.steps[Step.POLL])
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE


async def test_what_fails_after_it_was_accepted_is_told_with_its_class(
    bench: Bench, driver: contract.Driver
) -> None:
    code = bench.codes.async_capacity
    if code is None:
        pytest.skip(f"{bench.provider} says at once whether there is room")
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL, code=code), on=bench.steps[Step.CREATE])
    created = await driver.create(request)
    bench.settle()
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert fault.code == code


async def test_a_machine_not_visible_yet_is_seen_once_the_lag_is_over(
    bench: Bench, driver: contract.Driver
) -> None:
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} shows everything at once")
    bench.script.list_lag = bench.script.describe_lag = 300
    request = await settled(driver, bench.request())
    created = await driver.create(request)
    for _ in range(6):
        bench.settle()
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert [one.ref for one in seen.instances] == [created.ref]
    assert await driver.describe(created.ref, region=request.region) is not None
