"""Trials of UpCloud that its driver alone can show; the numbers are those of the lessons."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from provisioning import contract, credentials, naming, outcomes, providers
from provisioning.upcloud import ordering, policy_text
from tests.support import waits
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import recordings, server, upcloud, upcloud_bench, upcloud_recorded
from tests.support.clouds.asking import failing, ordered, settled, until_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
Bench = upcloud_bench.UpCloudBench
CREATE, GET, DELETE = "POST /1.3/server", "GET /1.3/server/{uuid}", "DELETE /1.3/server/{uuid}"
STOP = "POST /1.3/server/{uuid}/stop"
ZONE = "fi-hel1"


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


def stops(bench: Bench) -> list[str]:
    """How each stop was asked for."""
    return [
        "hard" if b'"hard"' in one.body else "soft" for one in bench.ledger.seen if one.name == STOP
    ]


def _asked(method: str, path: str, *, body: bytes = b"") -> server.Asked:
    return server.Asked(method=method, path=path, query={}, headers={}, body=body)


# --- the fake and the order -----------------------------------------------------------------------


async def test_the_fake_is_held_to_recorded_exchanges(
    bench: Bench, driver: contract.Driver
) -> None:
    assert bench.referee is not None
    request, created = await ordered(bench, driver)
    await found(driver, request)
    await driver.delete(created.ref, region=ZONE)
    assert bench.referee.checked > 8
    assert bench.referee.faults == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"fiction": "yes"}, "servers.server[].fiction was never recorded"),
        ({"host": "5872304771"}, "servers.server[].host is a str, recorded {'int'}"),
        ({"labels": []}, "servers.server[].labels is a list, recorded {'dict'}"),
        ({"state": None}, "servers.server[].state is missing"),
    ],
)
async def test_the_referee_catches_what_no_recorded_answer_shows(
    change: dict[str, object], fault: str
) -> None:
    shown = recordings.first("getserverswithfilters", "GET", "/1.3/server/?")
    row = {**shown["servers"]["server"][0], **change}
    told = {key: value for key, value in row.items() if value is not None or key not in change}
    judge = upcloud_recorded.Referee()
    reply = server.Reply(document={"servers": {"server": [told]}})
    judge.check(_asked("GET", "/1.3/server"), reply, address="")
    assert judge.faults == [f"GET /1.3/server: {fault}"]


async def test_the_referee_catches_a_status_and_a_request_that_were_never_recorded() -> None:
    shown = recordings.first("createdeleteserverandstorage", "POST", "/1.3/server")
    judge = upcloud_recorded.Referee()
    asked = _asked("POST", "/1.3/server", body=b'{"server": {"plan": "x", "size_of_shoes": 42}}')
    judge.check(asked, server.Reply(status=201, document=shown), address="")
    assert judge.faults == [
        "POST /1.3/server, request: server.size_of_shoes was never recorded",
        "POST /1.3/server: answered 201, recorded {202}",
    ]


async def test_an_order_asks_for_what_templates_with_cloud_init_need(bench: Bench) -> None:
    request = bench.request()
    body = ordering.body_of(request, image=bench.image)
    assert body["metadata"] == "yes"
    assert body["user_data"] == request.first_boot
    assert body["remote_access_enabled"] == "no"
    assert body["password_delivery"] == "none"
    keys = [one["key"] for one in body["labels"]["label"]]
    assert keys == list(naming.tags_of(request.owner))
    assert all(2 <= len(key) <= 32 for key in keys)


async def test_the_same_attempt_is_sent_byte_for_byte_the_same(bench: Bench) -> None:
    bodies = [ordering.body_of(bench.request(), image=bench.image) for _ in range(2)]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    "beginning", ["http://example.net/x", "  https://example.net/x", "\n\tHTTP://example.net/x"]
)
async def test_first_boot_data_that_begins_with_an_address_is_never_passed_on(
    bench: Bench, driver: contract.Driver, beginning: str
) -> None:
    request = dataclasses.replace(bench.request(), first_boot=beginning)
    assert any("address" in sentence for sentence in (await driver.plan(request)).refusals)
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    assert bench.ledger.count(CREATE) == 0


async def test_an_image_by_its_distribution_is_settled_to_its_template(
    bench: Bench, driver: contract.Driver
) -> None:
    plan = await driver.plan(dataclasses.replace(bench.request(), image="debian-12"))
    assert plan.settled is not None
    assert (plan.settled.image, plan.settled.disk_gigabytes) == (upcloud.TEMPLATE, 50)


async def test_prices_are_those_that_the_provider_tells_by_zone(
    bench: Bench, driver: contract.Driver
) -> None:
    plan = await driver.plan(bench.request())
    told = recordings.first("getpricezones", "GET", "/1.3/price")["prices"]["zone"]
    cents = next(one for one in told if one["name"] == ZONE)["server_plan_1xCPU-2GB"]["price"]
    assert plan.price == contract.Price(hourly_micros=round(cents * 10_000), currency="EUR")


async def test_b46_a_withdrawn_plan_hurts_only_itself(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.withdrawn.add("2xCPU-4GB")
    assert (await driver.plan(bench.request())).refusals == ()
    gone = await driver.plan(dataclasses.replace(bench.request(), size="2xCPU-4GB"))
    assert any("any more" in sentence for sentence in gone.refusals)


# --- look-ups -------------------------------------------------------------------------------------


async def test_a_server_in_maintenance_is_found_by_its_label(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on=CREATE)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    seen = await found(driver, request)
    assert [(one.owner, one.raw_state) for one in seen.instances] == [
        (request.owner, "maintenance")
    ]
    assert bench.ledger.count(CREATE) == 1
    targets = [one.target for one in bench.ledger.seen if one.name == "GET /1.3/server"]
    assert f"label=enlist-operation%3D{request.owner.operation}" in targets[0]


async def test_a_disk_whose_server_no_list_shows_yet_is_no_clean_answer(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.list_lag = bench.script.describe_lag = 60
    created = await driver.create(request)
    assert await found(driver, request) == contract.Sightings(instances=(), is_complete=False)
    bench.script.describe_lag = 0
    assert [one.ref for one in (await found(driver, request)).instances] == [created.ref]


async def test_a_disk_without_a_server_is_a_half_made_machine_and_can_be_taken_away(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    bench.cloud.children.server_is_gone(
        bench.cloud.servers.pop(created.ref), with_storages=False, backups="keep"
    )
    (half,) = (await found(driver, request)).instances
    assert (half.power, half.owner) == (contract.Power.FAILED, request.owner)
    await driver.delete(half.ref, region=ZONE)
    assert await driver.describe(half.ref, region=ZONE) is None
    for child in half.children:
        await driver.delete_child(child)
    assert bench.ledger.living_things() == []


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut short", "paging ignored"])
async def test_a_list_is_read_to_its_end_however_the_provider_cuts_it(
    bench: Bench,
    driver: contract.Driver,
    is_cut: bool,  # noqa: FBT001
) -> None:
    if is_cut:
        bench.script.page_size = 30
    bench.cloud.ignores_paging = not is_cut
    owner = bench.request().owner
    labels = [{"key": key, "value": value} for key, value in naming.tags_of(owner).items()]
    for number in range(130):
        bench.cloud.plant(name=f"ours-{number}", labels=labels)
    assert len((await driver.inventory(bench_kit.INSTALLATION)).machines) == 130


async def test_absence_is_believed_after_three_clean_answers_over_five_minutes(
    driver: contract.Driver,
) -> None:
    assert driver.lookup.clean_answers == 3
    assert driver.lookup.settle.total_seconds() == 300


# --- B98: endings by the state that is shown ------------------------------------------------------


@pytest.mark.parametrize("state", ["started", "stopped", "error"])
async def test_b98_a_server_in_any_state_reaches_gone_with_its_disk(
    bench: Bench, driver: contract.Driver, state: str
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.servers[created.ref]["state"] = state
    await driver.delete(created.ref, region=ZONE)
    assert await driver.describe(created.ref, region=ZONE) is None
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []
    assert stops(bench) == (["soft"] if state == "started" else [])


async def test_b98_a_server_in_maintenance_is_given_back_and_gone_once_it_is_over(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    fault = await failing(driver.delete(created.ref, region=ZONE))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    assert fault.retry_after is not None
    bench.settle()
    await driver.delete(created.ref, region=ZONE)
    await until_gone(bench, driver, created.ref, ZONE)


async def test_b98_a_server_that_pays_no_heed_to_a_soft_stop_is_stopped_hard(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.heeds_soft_stops = False
    _, created = await ordered(bench, driver)
    async with waits.moving(bench.clock), asyncio.timeout(60):
        await driver.delete(created.ref, region=ZONE)
    assert stops(bench) == ["soft", "hard"]
    assert bench.ledger.living() == []


async def test_b98_a_server_that_would_not_stop_is_given_back_after_two_minutes(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    refusal = Armed(verb=Verb.FAIL_CODE, code="SERVER_STATE_ILLEGAL")
    bench.script.arm_always(refusal, on=STOP)
    async with waits.moving(bench.clock), asyncio.timeout(60):
        fault = await failing(driver.delete(created.ref, region=ZONE))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    assert bench.ledger.count(DELETE) == 0


async def test_b98_what_is_off_is_shown_as_off_and_still_billed(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    bench.cloud.servers[created.ref]["state"] = "stopped"
    machine = await driver.describe(created.ref, region=ZONE)
    assert machine is not None
    assert machine.power is contract.Power.OFF
    assert len(bench.ledger.living()) == 1


async def test_b98_a_delete_cut_off_after_the_stop_is_finished_by_the_same_delete(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=STOP)
    assert (await failing(driver.delete(created.ref, region=ZONE))).outcome is Outcome.UNKNOWN
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, html=True), on=DELETE)
    assert (await failing(driver.delete(created.ref, region=ZONE))).outcome is Outcome.UNKNOWN
    await driver.delete(created.ref, region=ZONE)
    assert bench.ledger.living() == []
    assert bench.ledger.living_things() == []


async def test_b68_data_is_taken_off_a_server_before_all_that_hangs_on_it_is_deleted(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    volume = await driver.create_child(
        contract.ChildKind.VOLUME, owner=request.owner, name="data", region=ZONE
    )
    await driver.attach(volume, to=created.ref)
    await driver.delete(created.ref, region=ZONE)
    assert [one.ref for one in bench.ledger.living_things()] == [volume.ref]
    names = bench.ledger.names()
    assert names.index("POST /1.3/server/{uuid}/storage/detach") < names.index(DELETE)
    (target,) = [one.target for one in bench.ledger.seen if one.name == DELETE]
    assert target.endswith("?storages=1&backups=keep")


async def test_b68_a_volume_that_cannot_be_detached_stops_the_delete(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    volume = await driver.create_child(
        contract.ChildKind.VOLUME, owner=request.owner, name="data", region=ZONE
    )
    await driver.attach(volume, to=created.ref)
    refusal = Armed(verb=Verb.FAIL_CODE, code="STORAGE_STATE_ILLEGAL", status=409)
    bench.script.arm(refusal, on="POST /1.3/server/{uuid}/storage/detach")
    fault = await failing(driver.delete(created.ref, region=ZONE))
    assert fault.topic is Topic.STATE
    assert bench.ledger.count(DELETE) == 0
    await driver.delete(created.ref, region=ZONE)
    assert [one.ref for one in bench.ledger.living_things()] == [volume.ref]


# --- codes, credit, rights ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome", "topic"),
    [
        ("AUTHENTICATION_FAILED", Outcome.AUTH_LOST, Topic.AUTH),
        ("ACTION_FORBIDDEN", Outcome.NOT_DONE_PERMANENT, Topic.RIGHTS),
        ("INSUFFICIENT_CREDITS", Outcome.NOT_DONE_PERMANENT, Topic.MONEY),
        ("TRIAL_PLAN", Outcome.NOT_DONE_PERMANENT, Topic.MONEY),
        ("SERVER_CORE_LIMIT_REACHED", Outcome.NOT_DONE_PERMANENT, Topic.QUOTA),
        ("IP_ADDRESS_LIMIT_REACHED", Outcome.NOT_DONE_PERMANENT, Topic.QUOTA),
        ("SERVER_CREATING_LIMIT_REACHED", Outcome.NOT_DONE_RETRYABLE, Topic.RATE),
        ("SERVER_RESOURCES_UNAVAILABLE", Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY),
        ("STORAGE_STATE_ILLEGAL", Outcome.NOT_DONE_RETRYABLE, Topic.STATE),
        ("ZONE_MISMATCH", Outcome.NOT_DONE_PERMANENT, Topic.CATALOGUE),
        ("USER_DATA_INVALID", Outcome.NOT_DONE_PERMANENT, Topic.INPUT),
        ("SERVICE_ERROR", Outcome.UNKNOWN, Topic.NETWORK),
    ],
)
async def test_b78_a_code_says_what_a_refusal_is_about(
    bench: Bench,
    driver: contract.Driver,
    code: str,
    outcome: outcomes.Outcome,
    topic: outcomes.Topic,
) -> None:
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.FAIL_CODE, code=code), on=CREATE)
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic, fault.code) == (outcome, topic, code)


async def test_a_server_that_ends_in_error_is_a_failed_order_whose_machine_is_named(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL), on=CREATE)
    created = await driver.create(await settled(driver, bench.request()))
    bench.settle()
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.ref) == (Outcome.NOT_DONE_RETRYABLE, created.ref)
    await driver.delete(created.ref, region=ZONE)
    assert bench.ledger.living() == []


async def test_low_credit_is_warned_of_and_room_is_counted_in_cores(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.credits, bench.cloud.core_limit = 420.0, 3
    await ordered(bench, driver)
    validation = await driver.validate()
    assert validation.room == 2
    assert any("4.20 left" in warning for warning in validation.warnings)


async def test_what_a_sub_account_may_not_do_is_named(
    bench: Bench, driver: contract.Driver
) -> None:
    refusal = Armed(verb=Verb.FAIL_CODE, code="ACTION_FORBIDDEN")
    bench.script.arm(refusal, on="GET /1.3/ip_address")
    assert (await driver.validate()).missing == ("IP addresses: list and manage",)
    assert "IP addresses: list and manage" in policy_text.setup_text({})


async def test_a_sub_accounts_password_is_sent_as_it_must_be_and_said_nowhere(
    bench: Bench,
) -> None:
    opening = dataclasses.replace(
        bench.opening(),
        credential=credentials.parse(
            credentials.Kind.UPCLOUD_PASSWORD, {"username": "ops", "password": "hush-hush-hush"}
        ),
    )
    driver = providers.open_driver("upcloud", opening)
    fault = await failing(driver.offer())
    await driver.close()
    assert fault.outcome is Outcome.AUTH_LOST
    assert bench.ledger.seen[0].headers["authorization"] == "Basic b3BzOmh1c2gtaHVzaC1odXNo"
    assert "hush" not in f"{fault} {opening!r}"
