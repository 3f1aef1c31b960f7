"""Trials of Google Compute Engine that its driver alone can show; numbers as in the lessons."""

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from provisioning import contract, naming, outcomes
from provisioning.gcp import bodies, calls, reading
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import gcp_bench, recordings, referee
from tests.support.clouds.asking import failing, is_clean, ordered, settled, until_child_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic, Kind = outcomes.Outcome, outcomes.Topic, contract.ChildKind
INSERT = calls.INSERT.name
ZONE = "us-central1-a"
SHELLCHECK = pathlib.Path(sys.executable).parent / "shellcheck"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"

Bench = gcp_bench.GcpBench


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


def sent(bench: Bench, name: str = INSERT) -> list[Any]:
    """The bodies that were sent with this call."""
    return [json.loads(one.body) for one in bench.ledger.seen if one.name == name]


def metadata(body: Any) -> dict[str, str]:
    """The metadata of an order."""
    return {one["key"]: one["value"] for one in body["metadata"]["items"]}


# --- the fake itself ----------------------------------------------------------------------------


async def test_the_referee_sees_fields_types_and_words_that_google_does_not_have(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    assert bench.referee.faults == []
    odd = {"status": "SLEEPING", "canFly": True, "deletionProtection": "no"}
    bench.cloud.held[created.ref].body |= odd
    await driver.describe(created.ref, region=bench.region)
    assert sorted(bench.referee.faults) == [
        "compute.instances.get: .canFly is not described",
        "compute.instances.get: .deletionProtection is no boolean",
        "compute.instances.get: .status has no word 'SLEEPING'",
    ]
    bench.referee.faults.clear()


def test_recorded_machines_are_read() -> None:
    if not referee.folder().is_dir():
        pytest.skip("the recordings are not here (ENLIST_PROVIDER_SPECS)")
    seen = []
    for path in sorted((recordings.folder() / "custodian-gcp-flights").glob("instance-*/get-*")):
        told = json.loads(path.read_text(encoding="utf-8"))["body"]
        items = told.get("items", [told])
        scopes = items.values() if isinstance(items, dict) else [{"instances": items}]
        seen += [reading.instance_of(one) for scope in scopes for one in scope.get("instances", ())]
    assert len(seen) > 8
    assert all(one.zone and one.size and one.instance_id and one.created_at for one in seen)
    assert {one.power for one in seen} >= {contract.Power.RUNNING, contract.Power.OFF}
    assert any(child.kind is Kind.DISK for one in seen for child in one.children)


# --- ordering -----------------------------------------------------------------------------------


async def test_the_machine_gets_no_service_account_and_a_disk_that_goes_with_it(
    bench: Bench, driver: contract.Driver
) -> None:
    await ordered(bench, driver)
    (body,) = sent(bench)
    assert body["serviceAccounts"] == []
    assert [one["autoDelete"] for one in body["disks"]] == [True]
    assert metadata(body)["block-project-ssh-keys"] == "TRUE"


async def test_first_boot_data_goes_as_it_is_and_once(
    bench: Bench, driver: contract.Driver
) -> None:
    request, _ = await ordered(bench, driver)
    assert metadata(sent(bench)[0])["user-data"] == request.first_boot
    assert "startup-script" not in metadata(sent(bench)[0])


async def test_an_image_without_cloud_init_gets_a_script_that_brings_it_once(
    bench: Bench, driver: contract.Driver
) -> None:
    request = dataclasses.replace(bench.request(), image="debian-cloud/debian-12")
    await driver.create(request)
    told = metadata(sent(bench)[0])
    assert told["user-data"] == request.first_boot
    assert told["startup-script"] == bodies.STARTUP
    script = dataclasses.replace(request, first_boot="#!/bin/sh\nexit 0\n")
    assert bodies.instance(script, zone=ZONE, addresses=())["metadata"]["items"][0] == {
        "key": "startup-script",
        "value": script.first_boot,
    }


def test_the_script_for_images_without_cloud_init_is_sound_shell() -> None:
    found = subprocess.run(
        [SHELLCHECK, "-"], input=bodies.STARTUP, capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
    assert found.returncode == 0


async def test_the_zone_is_settled_before_the_order_and_the_token_with_it(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    plan = await driver.plan(request)
    assert plan.settled is not None
    assert plan.settled.zone == ZONE
    assert plan.settled.client_token == naming.client_token(request.owner, zone=ZONE)


async def test_the_same_order_sent_again_gets_the_same_operation_and_buys_one_machine(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=INSERT)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    again = await driver.create(request)
    once_more = await driver.create(request)
    assert again.progress == once_more.progress
    bench.settle()
    assert len(bench.ledger.machines) == 1


async def test_the_same_name_under_another_token_is_recognised_by_its_labels(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    fault = await failing(driver.create(dataclasses.replace(request, client_token="f" * 64)))
    assert (fault.outcome, fault.ref) == (Outcome.EXISTS_MINE, created.ref)


async def test_b12_an_operation_that_cannot_be_asked_is_not_one_that_failed(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    armed = Armed(verb=Verb.FAIL_CODE, code="backendError", message="Visibility check unavailable")
    bench.script.arm(armed, on=calls.OPERATION.name, times=3)
    for _ in range(3):
        assert (await failing(driver.poll(created))).outcome is Outcome.UNKNOWN
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE
    assert bench.ledger.count(INSERT) == 1
    assert len(bench.ledger.machines) == 1


async def test_a_poll_that_is_throttled_is_no_end_of_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.RATE), on=calls.OPERATION.name)
    fault = await failing(driver.poll(created))
    assert fault.topic is Topic.RATE
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE


async def test_b50_a_sold_out_zone_is_told_by_the_finished_operation_with_zones_that_have_room(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.full[ZONE] = ("us-central1-b", "us-central1-f")
    request, created = await ordered(bench, driver)
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.topic, fault.code) == (
        Outcome.NOT_DONE_RETRYABLE,
        Topic.CAPACITY,
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    )
    assert fault.hints == ("us-central1-b", "us-central1-f")
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    elsewhere = dataclasses.replace(
        request,
        zone=fault.hints[0],
        client_token=naming.client_token(request.owner, zone=fault.hints[0]),
    )
    there = await driver.create(elsewhere)
    bench.settle()
    assert await driver.poll(there) is contract.Progress.DONE
    assert [one.region for one in bench.ledger.living()] == ["us-central1-b"]


@pytest.mark.parametrize("code", ["QUOTA_EXCEEDED", "quotaExceeded"])
async def test_b78_a_quota_is_a_quota_and_no_rate_whatever_its_status(
    bench: Bench, driver: contract.Driver, code: str
) -> None:
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code, status=403), on=INSERT)
    fault = await failing(driver.create(await settled(driver, bench.request())))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert "quotas" in (fault.link or "")


async def test_b78_a_quota_told_by_the_operation_is_permanent_too(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL, code="QUOTA_EXCEEDED"), on=INSERT)
    _, created = await ordered(bench, driver)
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)


async def test_quota_that_does_not_fit_is_refused_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.quotas["CPUS"] = (8.0, 7.0)
    assert (await driver.validate()).room == 0
    plan = await driver.plan(bench.request())
    assert "The quota CPUS in us-central1 leaves 1, and this needs 2." in plan.refusals[0]


# --- looking up ---------------------------------------------------------------------------------


async def test_a_zone_that_cannot_be_reached_makes_no_clean_answer(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    bench.cloud.unreachable = {"europe-west3-a"}
    found = driver.find(request.owner, name=request.name, region=request.region)
    assert not await is_clean(found)
    assert not await is_clean(driver.inventory(bench_kit.INSTALLATION))
    bench.cloud.unreachable = set()
    found = driver.find(request.owner, name=request.name, region=request.region)
    assert await is_clean(found)


async def test_an_order_under_way_makes_no_clean_answer(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.describe_lag = bench.script.list_lag = 3600
    await driver.create(request)
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    assert not seen.is_complete


async def test_b72_all_pages_over_all_zones_are_read(bench: Bench, driver: contract.Driver) -> None:
    labels = dict(naming.tags_of(bench.request().owner))
    for number in range(1001):
        zone = ("us-central1-a", "europe-west1-b", "europe-west3-a")[number % 3]
        bench.cloud.put(f"zones/{zone}/disks/d-{number:04d}", {"labels": labels, "sizeGb": "10"})
    bench.script.page_size = 100
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert len({one.ref for one in inventory.children}) == 1001
    assert inventory.is_complete


# --- ending -------------------------------------------------------------------------------------


async def test_b90_deleting_what_is_being_made_waits_for_it(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.crossing_is_refused = True
    created = await driver.create(await settled(driver, bench.request()))
    fault = await failing(driver.delete(created.ref, region=bench.region))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    bench.settle()
    await driver.delete(created.ref, region=bench.region)
    bench.settle()
    assert (bench.ledger.living(), bench.ledger.living_things()) == ([], [])


@pytest.mark.parametrize("status", ["TERMINATED", "SUSPENDED", "STOPPED"])
async def test_b98_off_is_told_as_off_and_reaches_gone(
    bench: Bench, driver: contract.Driver, status: str
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.held[created.ref].body["status"] = status
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    assert (seen.power, seen.raw_state) == (contract.Power.OFF, status)
    await driver.delete(created.ref, region=bench.region)
    bench.settle()
    assert await driver.describe(created.ref, region=bench.region) is None


async def test_a_protected_machine_is_said_to_be_protected_with_the_command(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.held[created.ref].body["deletionProtection"] = True
    fault = await failing(driver.delete(created.ref, region=bench.region))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.PROTECTED)
    assert "--no-deletion-protection" in str(fault)


async def test_a_rule_for_ssh_is_the_machines_own_and_is_ended_with_it(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY, sources=("198.51.100.0/24",))
    request = dataclasses.replace(await settled(driver, bench.request()), ssh=ssh)
    created = await driver.create(request)
    bench.settle()
    (rule,) = sent(bench, calls.INSERT_RULE.name)
    assert (rule["sourceRanges"], rule["targetTags"]) == (["198.51.100.0/24"], [request.name])
    assert metadata(sent(bench)[0])["ssh-keys"] == f"enlist:{KEY}"
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    kinds = {one.kind for one in seen.children}
    assert kinds == {one.kind for one in created.children} == {Kind.DISK, Kind.SECURITY_GROUP}
    (listed,) = (
        one
        for one in (await driver.inventory(bench_kit.INSTALLATION)).children
        if one.kind is Kind.SECURITY_GROUP
    )
    assert listed.attached_to == created.ref
    await driver.delete(created.ref, region=bench.region)
    bench.settle()
    for child in created.children:
        await until_child_gone(bench, driver, child)
    assert bench.ledger.living_things() == []


async def test_a_rule_without_its_machine_is_found_as_half_made(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY, sources=("198.51.100.0/24",))
    request = dataclasses.replace(await settled(driver, bench.request()), ssh=ssh)
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code="quotaExceeded"), on=INSERT)
    await failing(driver.create(request))
    bench.settle()
    (half,) = (await driver.find(request.owner, name=request.name, region=request.region)).instances
    assert (half.power, half.owner) == (contract.Power.FAILED, request.owner)
    assert [one.kind for one in half.children] == [Kind.SECURITY_GROUP]
    await driver.delete(half.ref, region=request.region)


async def test_a_stable_address_given_and_taken_leaves_the_machine_reachable(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    owner = dataclasses.replace(bench.request().owner, operation="op-2")
    child = await driver.create_child(Kind.ADDRESS, owner=owner, name="front", region=bench.region)
    bench.settle()
    await driver.attach(child, to=created.ref)
    bench.settle()
    told = await driver.describe_child(child)
    seen = await driver.describe(created.ref, region=bench.region)
    assert told is not None
    assert seen is not None
    assert (told.attached_to, seen.addresses) == (created.ref, (told.address,))
    await driver.detach(child)
    bench.settle()
    seen = await driver.describe(created.ref, region=bench.region)
    assert seen is not None
    assert seen.addresses not in {(), (told.address,)}


async def test_the_console_shows_the_end_of_what_the_serial_port_wrote(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.held[created.ref].console = "x" * 100_000 + "enlist: cannot reach platform\n"
    told = await driver.console(created.ref, region=bench.region)
    assert told is not None
    assert told.endswith("cannot reach platform\n")
    assert len(told) < 70_000


async def test_b62_a_call_that_hangs_ends_by_its_own_limit(bench: Bench) -> None:
    hasty = bench.driver(limits=bench_kit.SHORT)
    bench.script.arm(Armed(verb=Verb.HANG), on=calls.GET.name)
    try:
        fault = await failing(hasty.describe(f"zones/{ZONE}/instances/x", region="us-central1"))
        assert (fault.outcome, fault.topic) == (Outcome.UNKNOWN, Topic.NETWORK)
    finally:
        bench.script.release()
        await hasty.close()
