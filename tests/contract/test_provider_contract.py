"""What every provider's driver promises, shown against its fake: one suite, a row a provider.

The rows are `tests.support.clouds.bench.BENCHES`. What only one provider has is tested beside its
driver.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Iterator

import pytest

from provisioning import contract, naming, outcomes, providers
from tests.support import waits
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic


@pytest.fixture(params=sorted(bench_kit.BENCHES))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with bench_kit.open_bench(request.param) as opened:
        yield opened


@pytest.fixture
async def driver(bench: Bench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
async def hasty(bench: Bench) -> AsyncIterator[contract.Driver]:
    """A driver that waits for answers no longer than a second."""
    opened = bench.driver(limits=bench_kit.SHORT)
    try:
        yield opened
    finally:
        bench.script.release()
        await opened.close()


async def ordered(
    bench: Bench, driver: contract.Driver, **wanted: str
) -> tuple[contract.Request, contract.Created]:
    """One machine, ordered and come to its end."""
    request = await settled(driver, bench.request(**wanted))  # type: ignore[arg-type]
    created = await driver.create(request)
    bench.settle()
    return request, created


async def settled(driver: contract.Driver, request: contract.Request) -> contract.Request:
    """The request as it is sent: what it left open made exact."""
    plan = await driver.plan(request)
    assert plan.refusals == ()
    return plan.settled or request


async def failing(doing: Awaitable[object]) -> outcomes.Fault:
    """The fault that this call raises."""
    with pytest.raises(outcomes.Fault) as caught:
        await doing
    return caught.value


async def is_clean(asking: Awaitable[contract.Sightings | contract.Inventory]) -> bool:
    """Whether this was a clean answer; any fault but an unknown outcome is the test's own."""
    try:
        return (await asking).is_complete
    except outcomes.Fault as fault:
        if fault.outcome is not Outcome.UNKNOWN:
            raise
        return False


async def until_gone(bench: Bench, driver: contract.Driver, ref: str, region: str) -> None:
    """Asks until the provider says that it is gone."""
    for _ in range(20):
        bench.settle()
        if await driver.describe(ref, region=region) is None:
            return
    raise AssertionError("The provider never says that it is gone.")


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


# --- refusals -----------------------------------------------------------------------------------


async def refused(bench: Bench, driver: contract.Driver, armed: Armed) -> outcomes.Fault:
    """How an order fails that is answered like this."""
    if armed.verb not in bench.verbs:
        pytest.skip(f"{bench.provider} answers no codes")
    request = await settled(driver, bench.request())
    bench.script.arm_always(armed, on=bench.steps[Step.CREATE])
    return await failing(driver.create(request))


async def test_an_unknown_code_below_500_is_permanent_and_kept(
    bench: Bench, driver: contract.Driver
) -> None:
    armed = Armed(verb=Verb.FAIL_CODE, code="SomethingNewExceeded", status=400)
    fault = await refused(bench, driver, armed)
    assert (fault.outcome, fault.code) == (Outcome.NOT_DONE_PERMANENT, "SomethingNewExceeded")
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_an_unknown_code_from_500_on_is_unknown(
    bench: Bench, driver: contract.Driver
) -> None:
    armed = Armed(verb=Verb.FAIL_CODE, code="SomethingNewFailed", status=500)
    fault = await refused(bench, driver, armed)
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_a_limit_of_the_account_is_a_quota_and_permanent(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.codes.quota is None:
        pytest.skip(f"{bench.provider} has no limits")
    fault = await refused(bench, driver, Armed(verb=Verb.FAIL_CODE, code=bench.codes.quota))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert fault.link is not None
    assert fault.link.startswith("https://")


async def test_sold_out_is_capacity_and_may_work_later(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.codes.capacity is None:
        pytest.skip(f"{bench.provider} is never sold out")
    fault = await refused(bench, driver, Armed(verb=Verb.FAIL_CODE, code=bench.codes.capacity))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_what_is_no_longer_offered_is_permanent(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.codes.catalogue is None:
        pytest.skip(f"{bench.provider} has no code for it")
    fault = await refused(bench, driver, Armed(verb=Verb.FAIL_CODE, code=bench.codes.catalogue))
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT
    assert fault.topic in {Topic.CATALOGUE, Topic.INPUT}


async def test_one_call_too_many_says_how_long_to_wait(
    bench: Bench, driver: contract.Driver
) -> None:
    armed = Armed(verb=Verb.RATE, headers={"retry-after": "17"})
    fault = await refused(bench, driver, armed)
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.RATE)
    assert fault.retry_after is not None
    assert fault.retry_after.total_seconds() == 17
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 1


async def test_a_revoked_credential_is_lost_whatever_is_asked(
    bench: Bench, driver: contract.Driver
) -> None:
    if Verb.FAIL_CODE not in bench.verbs:
        pytest.skip(f"{bench.provider} has no credential")
    request, created = await ordered(bench, driver)
    bench.script.is_token_revoked = True
    asked = [
        driver.describe(created.ref, region=request.region),
        driver.delete(created.ref, region=request.region),
        driver.inventory(bench_kit.INSTALLATION),
        driver.create(dataclasses.replace(request, name=f"{request.name}-2")),
    ]
    found = [await failing(one) for one in asked]
    assert [one.outcome for one in found] == [Outcome.AUTH_LOST] * 4


async def test_what_cannot_be_reached_was_not_done(bench: Bench) -> None:
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} is always reached")
    opening = bench.opening()
    nowhere = dict.fromkeys(opening.endpoints or {"": ""}, "http://127.0.0.1:9")
    lost = providers.open_driver(
        bench.provider,
        dataclasses.replace(opening, endpoints=nowhere, limits=bench_kit.SHORT),
    )
    try:
        fault = await failing(lost.inventory(bench_kit.INSTALLATION))
    finally:
        await lost.close()
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.NETWORK)


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


# --- the credential, the record, the secrets ----------------------------------------------------


async def test_a_good_credential_is_proved_without_making_anything(
    bench: Bench, driver: contract.Driver
) -> None:
    validation = await driver.validate()
    assert validation.missing == ()
    assert validation.account
    assert validation.principal
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    assert [call.name for call in bench.told.calls if call.changes] == []


async def test_every_call_is_announced_and_stands_in_the_table(
    bench: Bench, driver: contract.Driver
) -> None:
    await driver.validate()
    request, created = await ordered(bench, driver)
    await driver.find(request.owner, name=request.name, region=request.region)
    await driver.describe(created.ref, region=request.region)
    await driver.inventory(bench_kit.INSTALLATION)
    await driver.delete(created.ref, region=request.region)
    assert sorted(bench.told.names()) == sorted(bench.ledger.names())
    assert set(bench.told.names()) <= {call.name for call in driver.calls}
    changing = {call.name for call in bench.told.calls if call.changes}
    assert {bench.steps[Step.CREATE], bench.steps[Step.DELETE]} <= changing


async def test_what_cannot_be_recorded_is_not_sent(bench: Bench, driver: contract.Driver) -> None:
    request = await settled(driver, bench.request())
    before = len(bench.ledger.seen)
    bench.told.refuse = OSError("no space left on device")
    with pytest.raises(OSError, match="no space left"):
        await driver.create(request)
    assert len(bench.ledger.seen) == before
    assert bench.ledger.living() == []


async def test_neither_token_nor_first_boot_data_stand_in_a_fault(
    bench: Bench, driver: contract.Driver
) -> None:
    if Verb.FAIL_CODE not in bench.verbs:
        pytest.skip(f"{bench.provider} answers no codes")
    request = await settled(driver, bench.request())
    ticket = "t-0123456789abcdef"
    words = " ".join([*bench.secrets, *request.first_boot.splitlines()])
    armed = Armed(verb=Verb.FAIL_CODE, code="SomethingNew", status=400, message=words)
    bench.script.arm(armed, on=bench.steps[Step.CREATE])
    fault = await failing(driver.create(request))
    for secret in (ticket, *bench.secrets):
        assert secret not in str(fault)
        assert secret not in repr(fault)
        assert secret not in repr(request)


async def test_closing_may_be_repeated(driver: contract.Driver) -> None:
    await driver.close()
    await driver.close()


# --- what can be ordered ------------------------------------------------------------------------


async def test_the_offer_names_regions_and_sizes_with_prices(
    bench: Bench, driver: contract.Driver
) -> None:
    offer = await driver.offer()
    size = next(one for one in offer.sizes if one.name == bench.size)
    assert bench.region in offer.regions
    assert bench.region in size.regions
    assert size.cores > 0
    assert size.memory_bytes > 0
    if contract.Capability.PRICE in driver.capabilities:
        price = size.prices.get(bench.region) or size.prices[""]
        assert price.hourly_micros > 0
        assert price.as_of is None


async def test_a_good_order_has_nothing_against_it(bench: Bench, driver: contract.Driver) -> None:
    plan = await driver.plan(bench.request())
    assert plan.refusals == ()
    if plan.settled is not None:
        assert await driver.plan(plan.settled) == dataclasses.replace(
            plan, settled=(await driver.plan(plan.settled)).settled
        )
    assert bench.ledger.living() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("size", "no-such-size", id="a size that does not exist"),
        pytest.param("image", "no-such-image-9", id="an image that does not exist"),
    ],
)
async def test_an_order_that_cannot_work_is_refused_before_it_is_sent(
    bench: Bench, driver: contract.Driver, field: str, value: str
) -> None:
    changed: dict[str, str] = {field: value}
    plan = await driver.plan(dataclasses.replace(bench.request(), **changed))  # type: ignore[arg-type]
    assert plan.refusals
    assert bench.ledger.count(bench.steps[Step.CREATE]) == 0
