"""Trials of Hetzner Cloud that its driver alone can show; the numbers are those of the lessons."""

import asyncio
import dataclasses
import datetime
from collections.abc import AsyncIterator, Iterator

import hcloud
import pytest

from provisioning import contract, naming, outcomes
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench
from tests.support.clouds.asking import failing, ordered, until_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
CREATE = "POST /v1/servers"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4h1k3Wq0Vt2mC5d8f9g0h1i2j3k4l5m6n7o8p9q0r1 person"


@pytest.fixture
def bench() -> Iterator[hetzner_bench.HetznerBench]:
    with hetzner_bench.HetznerBench() as opened:
        yield opened


@pytest.fixture
async def driver(bench: hetzner_bench.HetznerBench) -> AsyncIterator[contract.Driver]:
    opened = bench.driver()
    try:
        yield opened
    finally:
        await opened.close()


Bench = hetzner_bench.HetznerBench


async def test_the_fake_is_held_to_the_providers_own_description(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.referee is None:
        pytest.skip("the providers' descriptions are not here (ENLIST_PROVIDER_SPECS)")
    await driver.offer()
    await ordered(bench, driver)
    assert bench.referee.checked == len(bench.ledger.seen)
    assert bench.referee.faults == []


async def test_the_library_would_send_an_order_again_and_here_does_not(
    bench: Bench, driver: contract.Driver
) -> None:
    """It repeats `conflict`, `rate_limit_exceeded`, `timeout`, 502 and 504, creates too."""
    plain = hcloud.Client(token=hetzner_bench.TOKEN, api_endpoint=bench.address)
    assert plain._client._retry_max_retries == 5
    request = bench.request()
    codes = ["conflict", "rate_limit_exceeded", "timeout", "bad_gateway"]
    for number, code in enumerate(codes, 1):
        bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code, status=409), on=CREATE)
        await failing(driver.create(request))
        assert bench.ledger.count(CREATE) == number
    plain._client._session.close()


# --- B08: a name that is taken ------------------------------------------------------------------


async def test_b08_a_taken_name_that_is_ours_is_said_to_be_ours_with_its_id(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=504), on=CREATE)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.EXISTS_MINE
    assert fault.ref == bench.ledger.living()[0].ref
    assert len(bench.ledger.living()) == 1


async def test_b08_a_taken_name_without_our_labels_is_foreign(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    there = bench.plant(name=request.name, tags={"role": "theirs"})
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.ref) == (Outcome.EXISTS_FOREIGN, there)


async def test_b08_a_taken_name_of_another_installation_is_foreign(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    other = dataclasses.replace(request.owner, installation="in-0000000000ff")
    bench.plant(name=request.name, tags=naming.tags_of(other))
    assert (await failing(driver.create(request))).outcome is Outcome.EXISTS_FOREIGN


async def test_b88_a_name_that_lingers_after_its_deletion_may_be_tried_later(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.name_busy = 60
    request, created = await ordered(bench, driver)
    await driver.delete(created.ref, region="fsn1")
    bench.clock.advance(10)
    bench.fake.settle()
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)


async def test_b88_the_next_attempt_has_a_name_of_its_own_and_does_not_clash(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.name_busy = 3600
    _, created = await ordered(bench, driver)
    await driver.delete(created.ref, region="fsn1")
    await until_gone(bench, driver, created.ref, "fsn1")
    again = await driver.create(bench.request(attempt=2))
    assert [one.ref for one in bench.ledger.living()] == [again.ref]


# --- B26, B94: what it costs in calls -----------------------------------------------------------


async def test_b26_an_idle_fleet_of_forty_takes_less_than_a_tenth_of_the_hours_calls(
    bench: Bench, driver: contract.Driver
) -> None:
    for number in range(40):
        owner = bench.request(operation=f"op-{number}", node=f"node-{number}").owner
        bench.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
    bench.settle()
    before = len(bench.ledger.seen)
    for _ in range(3600 // 300):  # the refresh of an idle connection: every five minutes
        inventory = await driver.inventory(bench_kit.INSTALLATION)
        assert len(inventory.machines) == 40
        bench.clock.advance(300)
    assert len(bench.ledger.seen) - before <= 360


async def test_b26_the_inventory_tells_how_many_calls_are_left(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.budget = 700
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert inventory.calls_left is not None
    assert 600 < inventory.calls_left < 700


async def test_b26_a_check_warns_when_most_of_the_hours_calls_are_spent(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.budget = 500
    assert "499 are left" in " ".join((await driver.validate()).warnings)


async def test_b26_a_spent_budget_says_when_calls_are_allowed_again(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.budget = 0
    fault = await failing(driver.inventory(bench_kit.INSTALLATION))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.RATE)
    assert fault.retry_after == datetime.timedelta(hours=1)


async def test_b94_twenty_slow_orders_are_polled_with_one_call(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.action_seconds = 600
    created = [
        await driver.create(bench.request(operation=f"op-{number}", node=f"node-{number}"))
        for number in range(20)
    ]
    for _ in range(10):
        found = await asyncio.gather(*(driver.poll(one) for one in created))
        assert found == [contract.Progress.RUNNING] * 20
        bench.clock.advance(30)
    assert bench.ledger.count("GET /v1/actions") <= 2 * 10
    assert len(bench.ledger.seen) <= 400
    bench.clock.advance(600)
    found = await asyncio.gather(*(driver.poll(one) for one in created))
    assert found == [contract.Progress.DONE] * 20


async def test_b94_a_poll_that_fails_fails_for_each_who_asked_and_for_nobody_later(
    bench: Bench, driver: contract.Driver
) -> None:
    created = [
        await driver.create(bench.request(operation=f"op-{number}", node=f"node-{number}"))
        for number in range(3)
    ]
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=502), on="GET /v1/actions")
    found = await asyncio.gather(*(driver.poll(one) for one in created), return_exceptions=True)
    assert [type(one) for one in found] == [outcomes.Fault] * 3
    bench.settle()
    assert await driver.poll(created[0]) is contract.Progress.DONE


# --- B32: lists that move -----------------------------------------------------------------------


async def test_b32_a_list_that_moves_between_pages_gives_each_machine_once(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.page_size = 2
    made = [
        (await ordered(bench, driver, operation=f"op-{number}", node=f"node-{number}"))[1].ref
        for number in range(5)
    ]

    def one_more_in_front(page: int) -> None:
        if page == 2:
            bench.fake.on_list = None
            owner = bench.request(operation="op-new", node="new").owner
            bench.plant(name=naming.name_of(owner), tags=naming.tags_of(owner))
            newest = list(bench.fake.servers)[-1]
            bench.fake.servers = {newest: bench.fake.servers.pop(newest), **bench.fake.servers}

    bench.fake.on_list = one_more_in_front
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    refs = [one.ref for one in inventory.machines]
    assert len(refs) == len(set(refs))
    assert set(made) <= set(refs)


async def test_b32_a_list_that_grew_or_shrank_while_it_was_read_is_read_anew(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.page_size = 2
    made = [
        (await ordered(bench, driver, operation=f"op-{number}", node=f"node-{number}"))[1].ref
        for number in range(5)
    ]

    def first_one_goes(page: int) -> None:
        if page == 2:
            bench.fake.on_list = None
            bench.fake.vanish(made[0])

    bench.fake.on_list = first_one_goes
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert {one.ref for one in inventory.machines} == set(made[1:])


async def test_b32_a_list_that_never_stands_still_is_no_answer(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.page_size = 1
    for number in range(8):
        await ordered(bench, driver, operation=f"op-{number}", node=f"node-{number}")

    def one_goes(page: int) -> None:
        if page == 2:
            bench.fake.vanish(str(next(iter(bench.fake.servers))))

    bench.fake.on_list = one_goes
    fault = await failing(driver.inventory(bench_kit.INSTALLATION))
    assert fault.outcome is Outcome.UNKNOWN


async def test_b32_one_that_a_list_missed_is_there_when_asked_for_by_its_id(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    bench.script.list_lag = 3600
    assert (await driver.inventory(bench_kit.INSTALLATION)).machines == ()
    assert await driver.describe(created.ref, region="fsn1") is not None


# --- B36: selectors -----------------------------------------------------------------------------


async def test_b36_no_text_of_a_persons_reaches_a_selector(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request(operation="a,b=c")
    fault = await failing(driver.find(request.owner, name=request.name, region="fsn1"))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    assert bench.ledger.seen == []


async def test_b36_an_infra_that_no_label_can_carry_is_refused_before_the_order(
    bench: Bench, driver: contract.Driver
) -> None:
    request = bench.request()
    owner = dataclasses.replace(request.owner, infra="a,b=c")
    plan = await driver.plan(dataclasses.replace(request, owner=owner))
    assert "No label can carry: enlist-infra." in plan.refusals


# --- B28, B44, B46, B78: what is not to be had ---------------------------------------------------


async def test_b44_sold_out_in_one_location_is_none_of_the_other_ones_business(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.sold_out = {("cx23", "nbg1")}
    request = dataclasses.replace(bench.request(), region="nbg1")
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert fault.code == "resource_unavailable"
    created = await driver.create(bench.request())
    assert [one.ref for one in bench.ledger.living()] == [created.ref]


async def test_b46_a_withdrawn_type_hurts_itself_alone(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.gone_types = {"cx23"}
    plan = await driver.plan(bench.request())
    assert plan.refusals == ("There is no server type cx23 (any more).",)
    other = dataclasses.replace(bench.request(), size="cx33")
    assert (await driver.plan(other)).refusals == ()


async def test_b46_a_type_that_will_be_withdrawn_warns_and_one_that_is_refuses(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.ends = {
        "cx23": bench_kit.START + datetime.timedelta(days=40),
        "cx33": bench_kit.START - datetime.timedelta(days=1),
    }
    plan = await driver.plan(bench.request())
    assert (plan.refusals, plan.warnings) == ((), ("cx23 is withdrawn after 2027-01-10.",))
    gone = await driver.plan(dataclasses.replace(bench.request(), size="cx33"))
    assert gone.refusals == ("The server type cx33 is withdrawn.",)


async def test_b78_a_403_for_the_projects_limit_is_a_quota_and_no_rate_limit(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.server_limit = 0
    fault = await failing(driver.create(bench.request()))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert fault.retry_after is None
    assert fault.link == "https://console.hetzner.com/limits"


# --- B56, B68, B70: what hangs on a machine -----------------------------------------------------


async def test_b56_an_address_and_a_volume_of_elsewhere_are_both_named(
    bench: Bench, driver: contract.Driver
) -> None:
    owner = bench.request().owner
    kind = contract.ChildKind
    address = await driver.create_child(kind.ADDRESS, owner=owner, name="ip", region="hel1")
    volume = await driver.create_child(kind.VOLUME, owner=owner, name="vol", region="nbg1")
    request = dataclasses.replace(bench.request(), addresses=(address.ref,), volumes=(volume.ref,))
    plan = await driver.plan(request)
    assert plan.refusals == (
        "The volume vol is in nbg1, the machine is asked for in fsn1.",
        "The address ip is in hel1, the machine is asked for in fsn1.",
    )


async def test_b68_what_is_locked_may_be_tried_later(bench: Bench, driver: contract.Driver) -> None:
    owner = bench.request().owner
    _, created = await ordered(bench, driver)
    volume = await driver.create_child(
        contract.ChildKind.VOLUME, owner=owner, name="vol", region="fsn1"
    )
    await driver.attach(volume, to=created.ref)
    bench.script.arm(
        Armed(verb=Verb.FAIL_CODE, code="locked"), on="POST /v1/volumes/{id}/actions/detach"
    )
    fault = await failing(driver.detach(volume))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    await driver.detach(volume)


async def test_b70_an_address_made_with_the_machine_goes_and_a_stable_one_stays(
    bench: Bench, driver: contract.Driver
) -> None:
    owner = bench.request(operation="op-ip").owner
    stable = await driver.create_child(
        contract.ChildKind.ADDRESS, owner=owner, name="ip", region="fsn1"
    )
    request = dataclasses.replace(bench.request(), addresses=(stable.ref,))
    created = await driver.create(request)
    bench.settle()
    assert {one.ref: one.keep for one in created.children}[stable.ref]
    machine = await driver.describe(created.ref, region="fsn1")
    assert machine is not None
    assert sorted(one.keep for one in machine.children) == [False, True]
    await driver.delete(created.ref, region="fsn1")
    await until_gone(bench, driver, created.ref, "fsn1")
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    kind = contract.ChildKind.ADDRESS
    left = [(one.ref, one.attached_to) for one in inventory.children if one.kind is kind]
    assert left == [(stable.ref, None)]
    assert inventory.children[0].hourly == contract.Price(
        hourly_micros=800, currency="EUR", monthly_cap_micros=500_000
    )
    for child in created.children:
        if not child.keep:
            await driver.delete_child(child)
    assert [one.ref for one in bench.ledger.living_things()] == [stable.ref]


async def test_a_protected_machine_needs_a_person(bench: Bench, driver: contract.Driver) -> None:
    _, created = await ordered(bench, driver)
    bench.fake.servers[int(created.ref)]["protection"]["delete"] = True
    fault = await failing(driver.delete(created.ref, region="fsn1"))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.PROTECTED)


# --- B80: clocks --------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_b80_a_clock_that_is_off_is_said_by_how_much_and_blames_no_token(
    bench: Bench, driver: contract.Driver, minutes: int
) -> None:
    bench.script.clock = minutes * 60
    validation = await driver.validate()
    side = "behind" if minutes > 0 else "ahead"
    assert f"10 minutes {side}" in " ".join(validation.warnings)
    assert validation.missing == ()
