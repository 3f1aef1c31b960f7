"""What every provider's driver offers, how it proves itself, and what it records and never says."""

import dataclasses

import pytest

from provisioning import contract, outcomes
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, ordered, settled
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic


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
