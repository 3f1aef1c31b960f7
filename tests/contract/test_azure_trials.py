"""Trials of Azure that its driver alone can show; the numbers are those of the lessons."""

import dataclasses
import datetime
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from provisioning import contract, naming, outcomes
from provisioning.azure import calls, places, reading
from tests.support.clouds import azure_bench, azure_recorded, azure_rules, azure_things, server
from tests.support.clouds import bench as bench_kit
from tests.support.clouds.asking import failing, ordered, settled, until_child_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic, Kind = outcomes.Outcome, outcomes.Topic, contract.ChildKind
PUT_VM = "PUT Microsoft.Compute/virtualMachines"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"
PARTS = (
    "PUT Microsoft.Network/virtualNetworks",
    "PUT Microsoft.Network/networkSecurityGroups",
    "PUT Microsoft.Network/publicIPAddresses",
    "PUT Microsoft.Network/networkInterfaces",
)

Bench = azure_bench.AzureBench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as opened:
        yield opened


@pytest.fixture
async def driver(bench: Bench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


def sent(bench: Bench, name: str) -> list[Any]:
    """The bodies that were sent with this call."""
    return [json.loads(one.body) for one in bench.ledger.seen if one.name == name]


async def ended(bench: Bench, driver: contract.Driver, created: contract.Created) -> None:
    """Has the machine and each recorded part deleted, as whoever owns them does."""
    await driver.delete(created.ref, region=bench.region)
    bench.settle()
    for child in sorted(created.children, key=lambda one: one.kind is not Kind.INTERFACE):
        await until_child_gone(bench, driver, child)


# --- the fake itself ----------------------------------------------------------------------------


async def test_the_fake_is_held_to_recorded_sessions(bench: Bench, driver: contract.Driver) -> None:
    if bench.referee is None:
        pytest.skip("the recorded sessions are not here (ENLIST_PROVIDER_SPECS)")
    _, created = await ordered(bench, driver)
    await driver.describe(created.ref, region=bench.region)
    assert bench.referee.checked > 8
    assert bench.referee.faults == []


def test_recorded_machines_and_their_parts_are_read() -> None:
    if not azure_recorded.is_here():
        pytest.skip("the recorded sessions are not here (ENLIST_PROVIDER_SPECS)")
    seen = [
        reading.instance_of(body, place=_place_of(body))
        for body in azure_recorded.bodies(azure_things.VM)
    ]
    assert {one.power for one in seen} >= {contract.Power.STARTING, contract.Power.RUNNING}
    assert all(one.instance_id and one.size and one.region and one.owner is None for one in seen)
    for body in azure_recorded.bodies(azure_things.ADDRESS):
        child = reading.child_of(body, kind=azure_things.ADDRESS, place=_place_of(body))
        assert (child.kind, child.region) == (Kind.ADDRESS, body["location"])
    assert {reading.text(body, "status") for body in azure_recorded.bodies("operation")} >= {
        "InProgress",
        "Succeeded",
    }


# --- ordering -----------------------------------------------------------------------------------


async def test_first_boot_data_is_encoded_once_and_stays_out_of_what_the_machine_can_read(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    (body,) = sent(bench, PUT_VM)
    assert "userData" not in body["properties"]
    assert bench.ledger.machines[created.ref].user_data == request.first_boot.encode()
    told = await driver.describe(created.ref, region=bench.region)
    assert request.first_boot.splitlines()[2].strip() not in repr(told)


async def test_without_a_key_nobody_can_log_in_and_no_password_exists(
    bench: Bench, driver: contract.Driver
) -> None:
    for number in (1, 2):
        await ordered(bench, driver, operation=f"op-{number}", node=f"n{number}")
    bodies = sent(bench, PUT_VM)
    systems = [body["properties"]["osProfile"] for body in bodies]
    assert all("adminPassword" not in one for one in systems)
    settings = [one["linuxConfiguration"] for one in systems]
    assert all(one["disablePasswordAuthentication"] is True for one in settings)
    keys = [one["ssh"]["publicKeys"][0]["keyData"] for one in settings]
    assert len(set(keys)) == 2
    assert "PRIVATE" not in json.dumps(bodies)


async def test_a_persons_key_is_let_in_from_where_it_was_asked_for_and_nothing_else_is(
    bench: Bench, driver: contract.Driver
) -> None:
    await ordered(bench, driver, operation="op-0", node="closed")
    ssh = contract.Ssh(
        public_key=KEY,
        sources=("198.51.100.0/24",),
        until=datetime.datetime(2026, 12, 2, tzinfo=datetime.UTC),
    )
    request = dataclasses.replace(bench.request(), ssh=ssh)
    await driver.create(request)
    closed, opened = (one["properties"]["securityRules"] for one in sent(bench, PARTS[1]))
    assert closed == []
    about = opened[0]["properties"]
    assert (about["destinationPortRange"], about["sourceAddressPrefixes"]) == (
        "22",
        ["198.51.100.0/24"],
    )
    assert KEY in json.dumps(sent(bench, PUT_VM)[1])


async def test_a_way_in_whose_time_is_up_is_shut_although_its_group_is_in_use(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY, sources=("198.51.100.0/24",))
    request = dataclasses.replace(await settled(driver, bench.request()), ssh=ssh)
    created = await driver.create(request)
    bench.settle()
    (group,) = (one for one in created.children if one.kind is Kind.SECURITY_GROUP)
    for _ in range(2):
        fault = await failing(driver.delete_child(group))
        assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    held = bench.cloud.held[group.ref.lower()]
    assert held.body["properties"]["securityRules"] == []
    assert held.body["tags"] == dict(naming.tags_of(request.owner))
    assert bench.ledger.count(PARTS[1]) == 2  # made, and shut once
    await ended(bench, driver, created)
    assert bench.ledger.living_things() == []


@pytest.mark.parametrize("part", [*PARTS, PUT_VM])
@pytest.mark.parametrize("verb", [Verb.COMMIT_THEN_DROP, Verb.COMMIT_THEN_5XX, Verb.BEFORE_5XX])
async def test_an_answer_lost_at_any_part_is_settled_by_the_same_order_sent_again(
    bench: Bench, driver: contract.Driver, part: str, verb: Verb
) -> None:
    request = bench.request()
    bench.script.arm(Armed(verb=verb), on=part)
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    is_there = part == PUT_VM and verb is not Verb.BEFORE_5XX
    if is_there:
        again = await failing(driver.create(request))
        created = again.ref
        assert again.outcome is Outcome.EXISTS_MINE
    else:
        created = (await driver.create(request)).ref
    bench.settle()
    assert [one.ref for one in bench.ledger.living()] == [created]
    kinds = sorted(one.kind for one in bench.ledger.living_things())
    assert kinds == ["address", "disk", "interface", "security-group"]


async def test_a_clear_refusal_in_the_middle_takes_the_parts_back_and_keeps_its_reason(
    bench: Bench, driver: contract.Driver
) -> None:
    """Also B54: lists that lag by an hour change nothing, since nothing is looked up in one."""
    bench.script.list_lag = 3600
    request = bench.request()
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code="QuotaExceeded"), on=PUT_VM)
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert bench.ledger.living_things() == []
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert (seen.instances, seen.is_complete) == ((), True)


async def test_a_throttled_order_is_not_undone_since_it_goes_on_later(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    bench.script.arm(Armed(verb=Verb.RATE), on=PUT_VM)
    assert (await failing(driver.create(request))).topic is Topic.RATE
    assert len(bench.ledger.living_things()) == 3
    await driver.create(request)
    assert len(bench.ledger.things) == 4  # group, address, card, disk: each made once


async def test_what_a_kill_between_two_parts_leaves_is_found_by_name_and_ended(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.list_lag = 3600
    request = bench.request()
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX), on=PUT_VM)  # as if nobody had gone on
    await failing(driver.create(request))
    (half,) = (await driver.find(request.owner, name=request.name, region=request.region)).instances
    assert (half.power, half.owner) == (contract.Power.FAILED, request.owner)
    assert {one.kind for one in half.children} == {
        Kind.SECURITY_GROUP,
        Kind.ADDRESS,
        Kind.INTERFACE,
    }
    await driver.delete(half.ref, region=request.region)  # of a machine that never was
    bench.settle()
    for kind in (Kind.INTERFACE, Kind.ADDRESS, Kind.SECURITY_GROUP):
        (child,) = (one for one in half.children if one.kind is kind)
        await driver.delete_child(child)
        bench.settle()
    assert bench.ledger.living_things() == []
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert (seen.instances, seen.is_complete) == ((), True)


async def test_b12_an_operation_that_cannot_be_asked_is_not_one_that_failed(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    created = await driver.create(request)
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=503), on="GET operations", times=3)
    for _ in range(3):
        assert (await failing(driver.poll(created))).outcome is Outcome.UNKNOWN
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE
    assert bench.ledger.count(PUT_VM) == 1


async def test_an_operation_that_azure_has_forgotten_is_read_off_the_machine(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.cloud.operations.clear()
    assert await driver.poll(created) is contract.Progress.RUNNING
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE


async def test_slow_to_boot_is_no_failure_since_enrolling_decides(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL, code="OSProvisioningTimedOut"), on=PUT_VM)
    _, created = await ordered(bench, driver)
    assert await driver.poll(created) is contract.Progress.DONE
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    assert seen.power is contract.Power.STARTING


@pytest.mark.parametrize("code", ["AllocationFailed", "ZonalAllocationFailed"])
async def test_b52_what_a_failed_allocation_leaves_is_ended_part_by_part(
    bench: Bench, driver: contract.Driver, code: str
) -> None:
    bench.cloud.nic_reserved = 180
    bench.cloud.cascades = False
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL, code=code, message="no room"), on=PUT_VM)
    request, created = await ordered(bench, driver)
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    assert (seen.power, seen.failure_code) == (contract.Power.FAILED, code)
    before = len(bench.ledger.seen)
    await driver.delete(created.ref, region=bench.region)
    bench.cloud.settle()
    (card,) = (one for one in created.children if one.kind is Kind.INTERFACE)
    held = await failing(driver.delete_child(card))  # Azure keeps it for three minutes
    assert (held.outcome, held.topic, held.code) == (
        Outcome.NOT_DONE_RETRYABLE,
        Topic.STATE,
        "NicReservedForAnotherVm",
    )
    bench.clock.advance(200)
    await ended(bench, driver, created)
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    asked = [one.name for one in bench.ledger.seen[before:]]
    assert "GET operations" not in asked
    assert "GET Microsoft.Network/networkInterfaces" in asked
    assert await driver.describe(created.ref, region=request.region) is None


# --- ending -------------------------------------------------------------------------------------


async def test_gap_l21_parts_that_azure_forgets_to_delete_are_seen_and_ended(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.cascades = False
    _, created = await ordered(bench, driver)
    for child in created.children:
        fault = await failing(driver.delete_child(child))
        assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    await driver.delete(created.ref, region=bench.region)
    bench.settle()
    assert bench.ledger.living() == []
    left = sorted(one.kind for one in bench.ledger.living_things())
    assert left == ["address", "disk", "interface", "security-group"]
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert sorted(one.kind for one in inventory.children) == left
    await ended(bench, driver, created)
    assert bench.ledger.living_things() == []


@pytest.mark.parametrize(
    ("power", "told"), [("stopped", "stopped"), ("deallocated", "deallocated")]
)
async def test_b98_off_is_told_in_azures_word_and_reaches_gone(
    bench: Bench, driver: contract.Driver, power: str, told: str
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.held[created.ref.lower()].power = power
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    assert (seen.power, seen.raw_state) == (contract.Power.OFF, told)
    await ended(bench, driver, created)
    assert (bench.ledger.living(), bench.ledger.living_things()) == ([], [])


async def test_a_reference_that_leads_out_of_the_resource_group_is_refused_unasked(
    bench: Bench, driver: contract.Driver
) -> None:
    elsewhere = (
        f"/subscriptions/{azure_things.SUBSCRIPTION}/resourceGroups/production"
        "/providers/Microsoft.Compute/virtualMachines/db-1"
    )
    with pytest.raises(ValueError, match="is not in the resource group"):
        await driver.delete(elsewhere, region=bench.region)
    assert bench.ledger.seen == []


# --- lists --------------------------------------------------------------------------------------


async def test_b72_all_of_1001_are_found_over_all_pages(
    bench: Bench, driver: contract.Driver
) -> None:
    tags = dict(naming.tags_of(bench.request().owner))
    for number in range(1001):
        body = {"location": "eastus", "tags": tags, "properties": {"ipAddress": "192.0.2.1"}}
        bench.cloud.add(azure_things.ADDRESS, f"a-{number:04d}", body)
    bench.script.page_size = 100
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert len({one.ref for one in inventory.children}) == 1001
    assert inventory.is_complete


async def test_a_page_elsewhere_is_not_followed_and_gets_no_token(
    bench: Bench, driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = bench.cloud._list

    def lying(kind: str, asked: server.Asked) -> server.Reply:
        reply = honest(kind, asked)
        link = "http://127.0.0.2:9/next?api-version=1"
        return dataclasses.replace(reply, document={**reply.document, "nextLink": link})

    monkeypatch.setattr(bench.cloud, "_list", lying)
    fault = await failing(driver.inventory(bench_kit.INSTALLATION))
    assert fault.outcome is Outcome.UNKNOWN


async def test_a_list_that_may_not_be_read_makes_an_inventory_that_is_not_whole(
    bench: Bench, driver: contract.Driver
) -> None:
    await ordered(bench, driver)
    bench.cloud.grants[0]["notActions"] = ["Microsoft.Network/publicIPAddresses/read"]
    assert not (await driver.inventory(bench_kit.INSTALLATION)).is_complete


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["QuotaExceeded", "OperationNotAllowed", "PublicIPCountLimitReached"]
)
async def test_b78_a_quota_is_a_quota_and_says_where_to_raise_it(
    bench: Bench, driver: contract.Driver, code: str
) -> None:
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code, status=409), on=PUT_VM)
    fault = await failing(driver.create(await settled(driver, bench.request())))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert "Quota" in (fault.link or "")


async def test_cores_that_do_not_fit_are_refused_before_anything_is_made(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.subscription.cores = 1
    azure_rules.cores_left(bench.cloud, bench.region)
    plan = await driver.plan(bench.request())
    assert "The quota cores in eastus leaves 1" in plan.refusals[0]


async def test_a_race_between_our_own_calls_is_no_throttling(
    bench: Bench, driver: contract.Driver
) -> None:
    code = "RetryableErrorDueToAnotherOperation"
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code, status=429), on=PARTS[3])
    fault = await failing(driver.create(bench.request()))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)


async def test_a_throttling_without_a_time_is_still_one(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.RATE), on=PARTS[1])
    fault = await failing(driver.create(bench.request()))
    assert (fault.outcome, fault.topic, fault.retry_after) == (
        Outcome.NOT_DONE_RETRYABLE,
        Topic.RATE,
        None,
    )


async def test_b56_a_volume_of_another_region_is_refused_with_both_facts(
    bench: Bench, driver: contract.Driver
) -> None:
    body = {"location": "westeurope", "properties": {"diskSizeGB": 32}}
    volume = bench.cloud.add(azure_things.DISK, "data", body)
    plan = await driver.plan(dataclasses.replace(bench.request(), volumes=(volume.ref,)))
    assert plan.refusals == ("data is in westeurope, and the order is for eastus.",)


async def test_machines_of_an_installation_share_one_network_in_a_region(
    bench: Bench, driver: contract.Driver
) -> None:
    for number in (1, 2, 3):
        await ordered(bench, driver, operation=f"op-{number}", node=f"n{number}")
    assert bench.ledger.count(PARTS[0]) == 1


async def test_a_network_that_is_not_there_is_said_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    plan = await driver.plan(dataclasses.replace(bench.request(), network="backbone"))
    assert plan.refusals == ("There is no network backbone in enlist-machines.",)


async def test_b62_a_call_that_hangs_ends_by_its_own_limit(bench: Bench) -> None:
    hasty = bench.driver(limits=bench_kit.SHORT)
    bench.script.arm(Armed(verb=Verb.HANG), on=calls.GET_VM.name)
    try:
        fault = await failing(hasty.describe(bench.cloud.plant(name="x", tags={}), region="eastus"))
        assert (fault.outcome, fault.topic) == (Outcome.UNKNOWN, Topic.NETWORK)
    finally:
        bench.script.release()
        await hasty.close()


def _place_of(body: dict[str, str]) -> places.Place:
    parts = body["id"].split("/")
    return places.Place(subscription=parts[2], group=parts[4])
