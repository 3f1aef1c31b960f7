"""How every provider's driver reads a refusal, by outcome and never by status."""

import contextlib
import dataclasses

import pytest

from provisioning import contract, outcomes, providers
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, is_clean, ordered, refused
from tests.support.clouds.bench import Bench, Step
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic


# --- refusals -----------------------------------------------------------------------------------


async def test_an_unknown_code_below_500_is_permanent_and_kept(
    bench: Bench, driver: contract.Driver
) -> None:
    armed = Armed(verb=Verb.FAIL_CODE, code="SomethingNewExceeded", status=400)
    fault = await refused(bench, driver, armed)
    assert fault.outcome is Outcome.NOT_DONE_PERMANENT
    assert fault.code == ("SomethingNewExceeded" if bench.tells_codes else "400")
    assert "SomethingNewExceeded" in str(fault)
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


@pytest.mark.parametrize("raw", [b"{}", b"[]", b"null", b'"done"', b"0", b""], ids=repr)
async def test_a_success_without_what_it_should_hold_is_no_answer(
    bench: Bench, driver: contract.Driver, raw: bytes
) -> None:
    """An order may have been done; a list like this is not an empty one."""
    if Verb.BEFORE_5XX not in bench.verbs:
        pytest.skip(f"{bench.provider} has no answers out of shape")
    request, created = await ordered(bench, driver)
    armed = Armed(verb=Verb.BEFORE_5XX, status=200, raw=raw)
    other = bench.request(operation="op-2", node="other")
    for step in (Step.CREATE, Step.DESCRIBE, Step.FIND, Step.LIST):
        bench.script.arm_always(armed, on=bench.steps[step])
    fault = await failing(driver.create(other))
    assert fault.outcome is Outcome.UNKNOWN
    fault = await failing(driver.describe(created.ref, region=request.region))
    assert fault.outcome is Outcome.UNKNOWN
    assert not await is_clean(driver.find(request.owner, name=request.name, region=request.region))
    assert not await is_clean(driver.inventory(bench_kit.INSTALLATION))


@pytest.mark.parametrize("ref", ["1/../../volumes/7", "my vm", "..", "?all=1", ""], ids=repr)
async def test_a_ref_that_is_none_is_a_fault_and_no_crash(
    bench: Bench, driver: contract.Driver, ref: str
) -> None:
    """Typed by a person, or stored before a connection was saved anew; it is in no address."""
    asked = len(bench.ledger.seen)
    for doing in (driver.describe, driver.delete, driver.reboot):
        fault = await failing(doing(ref, region=bench.region))
        assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    assert len(bench.ledger.seen) == asked


async def test_a_ref_of_another_providers_shape_is_a_fault_or_is_not_there(
    bench: Bench, driver: contract.Driver
) -> None:
    for ref in ("my-vm", "999999999", "zones/us-central1-a/instances/x"):
        try:
            assert await driver.describe(ref, region=bench.region) is None
        except outcomes.Fault as fault:
            assert fault.outcome is Outcome.NOT_DONE_PERMANENT  # noqa: PT017 - either will do


CLIMBS = (
    "1/../../volumes/7",
    "../volumes/7",
    "%2e%2e/7",
    "7?force=true",
    "7#7",
    "7%2f..%2f8",
    "7;x=1",
    "*",
    "..",
)


@pytest.mark.parametrize("climb", CLIMBS, ids=repr)
async def test_a_ref_never_leaves_its_collection(
    bench: Bench, driver: contract.Driver, climb: str
) -> None:
    """Whatever stands where an id belongs: nothing is asked, of this collection or another."""
    asked = len(bench.ledger.seen)
    there = [
        contract.Child(kind=kind, ref=climb, region=bench.region) for kind in contract.ChildKind
    ]
    owner = bench.request().owner
    machines = [driver.describe, driver.delete, driver.reboot]
    tried = [
        *(doing(climb, region=bench.region) for doing in machines),
        *(driver.describe_child(one) for one in there),
        *(driver.delete_child(one) for one in there),
        *(driver.attach(one, to=climb) for one in there),
        *(driver.detach(one) for one in there),
        driver.create_child(
            contract.ChildKind.SNAPSHOT, owner=owner, name="s", region=bench.region, of=climb
        ),
    ]
    for doing in tried:
        fault = await failing(doing)
        assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    with contextlib.suppress(outcomes.Fault):
        await driver.poll(contract.Created(ref=climb))
    assert len(bench.ledger.seen) == asked


@pytest.mark.parametrize("climb", CLIMBS, ids=repr)
async def test_a_good_thing_is_given_to_no_machine_by_a_ref_that_is_none(
    bench: Bench, driver: contract.Driver, climb: str
) -> None:
    kinds = {
        contract.ChildKind.VOLUME: contract.Capability.VOLUMES,
        contract.ChildKind.ADDRESS: contract.Capability.ADDRESSES,
    }
    offered = [kind for kind, what in kinds.items() if what in driver.capabilities]
    if not offered:
        pytest.skip(f"{bench.provider} gives nothing")
    made = [
        await driver.create_child(
            kind,
            owner=bench.request().owner,
            name=f"a-{kind.value}",
            region=bench.region,
            size_gigabytes=bench.volume_gigabytes if kind is contract.ChildKind.VOLUME else None,
        )
        for kind in offered
    ]
    bench.settle()
    asked = len(bench.ledger.seen)
    for one in made:
        fault = await failing(driver.attach(one, to=climb))
        assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    assert len(bench.ledger.seen) == asked


async def test_a_ref_of_one_kind_is_none_of_another(bench: Bench, driver: contract.Driver) -> None:
    """A machine's id given as a volume's deletes no machine, and the other way round."""
    _, created = await ordered(bench, driver)
    asked = len(bench.ledger.seen)
    if "/" not in created.ref:
        pytest.skip(f"an id of {bench.provider} stands in the path of its own kind alone")
    for kind in contract.ChildKind:
        child = contract.Child(kind=kind, ref=created.ref, region=bench.region)
        assert (await failing(driver.delete_child(child))).topic is Topic.INPUT
    for one in created.children:
        assert (await failing(driver.delete(one.ref, region=bench.region))).topic is Topic.INPUT
    assert len(bench.ledger.seen) == asked
    assert [one.ref for one in bench.ledger.living()] == [created.ref]
