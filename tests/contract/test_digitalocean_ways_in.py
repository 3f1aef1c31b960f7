"""Who gets into a droplet: a person by their key, else nobody; and what is made for that."""

import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from provisioning import contract, outcomes
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import digitalocean_bench
from tests.support.clouds.asking import failing, ordered
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
Bench = digitalocean_bench.DigitalOceanBench
CREATE = "POST /v2/droplets"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"


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


async def found(driver: contract.Driver, request: contract.Request) -> contract.Sightings:
    return await driver.find(request.owner, name=request.name, region=request.region)


# --- a person's key -------------------------------------------------------------------------------


def with_key(request: contract.Request) -> contract.Request:
    return dataclasses.replace(request, ssh=contract.Ssh(public_key=KEY))


async def test_b100_a_key_that_was_answered_with_a_5xx_is_put_there_once(
    bench: Bench, driver: contract.Driver
) -> None:
    request = with_key(bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on="POST /v2/account/keys")
    assert (await failing(driver.create(request))).outcome is Outcome.NOT_DONE_RETRYABLE
    assert bench.ledger.count(CREATE) == 0
    await driver.create(request)
    assert bench.ledger.count("POST /v2/account/keys") == 1
    assert len(bench.ledger.living_things()) == 1
    assert bench.ledger.count(CREATE) == 1


async def test_a_key_that_we_put_there_is_a_child_with_our_name_on_it(
    bench: Bench, driver: contract.Driver
) -> None:
    request = with_key(bench.request())
    created = await driver.create(request)
    assert [(one.kind, one.owner) for one in created.children] == [
        (contract.ChildKind.SSH_KEY, request.owner)
    ]
    seen = await found(driver, request)
    assert seen.instances[0].children == created.children
    await driver.delete_child(created.children[0])
    assert bench.ledger.living_things() == []


async def test_a_key_that_was_there_before_stays_its_owners(
    bench: Bench, driver: contract.Driver
) -> None:
    first = await driver.create(with_key(bench.request()))
    second = await driver.create(with_key(bench.request(operation="op-2", node="other")))
    assert len(first.children) == 1
    assert second.children == ()
    assert bench.ledger.count("POST /v2/account/keys") == 1


async def test_an_order_that_came_no_further_than_its_key_leaves_it_in_sight_of_the_sweeper(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.droplet_limit = 0
    request = with_key(bench.request())
    away = Armed(verb=Verb.BEFORE_5XX, status=503)
    bench.script.arm(away, on="DELETE /v2/account/keys/{id}")
    fault = await failing(driver.create(request))
    assert fault.topic is Topic.QUOTA
    assert "left there" in str(fault)
    seen = await found(driver, request)
    assert seen == contract.Sightings(instances=())
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert [(one.kind, one.owner) for one in inventory.children] == [
        (contract.ChildKind.SSH_KEY, request.owner)
    ]


# --- nobody's key ---------------------------------------------------------------------------------


async def test_a_refused_order_leaves_neither_key_nor_firewall(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.droplet_limit = 0
    assert (await failing(driver.create(bench.request()))).topic is Topic.QUOTA
    assert bench.ledger.count("POST /v2/firewalls") == 1
    assert bench.ledger.living_things() == []


async def test_a_machine_whose_answer_was_lost_is_found_with_its_key_and_firewall(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on="POST /v2/droplets")
    request = bench.request()
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    (seen,) = (await found(driver, request)).instances
    assert {one.kind for one in seen.children} == {
        contract.ChildKind.SSH_KEY,
        contract.ChildKind.SECURITY_GROUP,
    }
    for child in seen.children:
        await driver.delete_child(child)
        assert await driver.describe_child(child) is None
    assert bench.ledger.living_things() == []


async def test_a_firewall_whose_answer_was_lost_is_made_once_and_no_key_stays_behind(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on="POST /v2/firewalls")
    fault = await failing(driver.create(bench.request()))
    assert fault.outcome is Outcome.NOT_DONE_RETRYABLE
    created = await driver.create(bench.request())
    assert {one.ref for one in bench.ledger.living_things()} == {
        one.ref for one in created.children
    }
    assert len(created.children) == 2


async def test_a_token_that_may_make_no_firewall_still_gives_nobody_a_key(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.missing_scopes = {"POST /v2/firewalls", "GET /v2/firewalls"}
    _, created = await ordered(bench, driver)
    machine = bench.ledger.machines[created.ref]
    assert machine.passwords == []
    assert [one.rpartition(" ")[2] for one in machine.keys] == ["enlist-nobody"]
    assert (await driver.inventory(bench_kit.INSTALLATION)).is_complete
