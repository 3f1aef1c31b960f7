"""Trials of DigitalOcean that its driver alone can show; the numbers are those of the lessons."""

import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest
from libcloud.compute.drivers import digitalocean as library

from provisioning import contract, naming, outcomes, packed_owner
from provisioning.digitalocean import calls, policy_text
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import digitalocean_bench
from tests.support.clouds.asking import failing, ordered, settled, until_gone
from tests.support.clouds.script import Armed, Verb

Outcome, Topic = outcomes.Outcome, outcomes.Topic
Bench = digitalocean_bench.DigitalOceanBench
CREATE, ACTION, LIST = "POST /v2/droplets", "GET /v2/actions/{id}", "GET /v2/droplets"


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


async def test_the_fake_is_held_to_the_providers_own_description(
    bench: Bench, driver: contract.Driver
) -> None:
    if bench.referee is None:
        pytest.skip("the providers' descriptions are not here (ENLIST_PROVIDER_SPECS)")
    await driver.offer()
    await ordered(bench, driver)
    await driver.inventory(bench_kit.INSTALLATION)
    assert bench.referee.checked == len(bench.ledger.seen)


# --- orders ---------------------------------------------------------------------------------------


def test_the_library_would_drop_first_boot_data_among_its_attributes() -> None:
    """Its docstring promises them, its list of what it passes on does not hold them."""
    assert "user_data" not in library.DigitalOcean_v2_NodeDriver.EX_CREATE_ATTRIBUTES


async def test_b100_an_order_answered_with_a_5xx_is_sent_once_and_then_adopted(
    bench: Bench, driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on=CREATE, times=3)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    assert bench.ledger.count(CREATE) == 1
    seen = await found(driver, request)
    assert [one.owner for one in seen.instances] == [request.owner]
    assert bench.ledger.count(CREATE) == 1


@pytest.mark.parametrize(
    ("kind", "post"),
    [
        (contract.ChildKind.VOLUME, "POST /v2/volumes"),
        (contract.ChildKind.SNAPSHOT, "POST /v2/droplets/{id}/actions"),
    ],
)
async def test_b100_what_is_kept_and_was_answered_with_a_5xx_is_found_and_not_asked_for_again(
    bench: Bench, driver: contract.Driver, kind: contract.ChildKind, post: str
) -> None:
    request, created = await ordered(bench, driver)
    before = bench.ledger.count(post)
    wish = {"owner": request.owner, "name": "data", "region": "fra1", "of": None}
    wish |= {"size_gigabytes": 10} if kind is contract.ChildKind.VOLUME else {"of": created.ref}
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on=post, times=3)
    fault = await failing(driver.create_child(kind, **wish))  # type: ignore[arg-type]
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(post) == before + 1
    bench.settle()
    seen = await driver.inventory(bench_kit.INSTALLATION)
    (shown,) = [one for one in seen.children if one.kind is kind]
    assert shown.owner == request.owner
    again = await driver.create_child(kind, **wish)  # type: ignore[arg-type]
    assert again.ref == shown.ref
    assert bench.ledger.count(post) == before + 1


async def test_b30_a_machine_on_page_3_of_230_is_found_by_its_tag_without_reading_all(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.droplet_limit = 500
    for number in range(230):
        bench.cloud.plant(name=f"theirs-{number}", tags=[])
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on=CREATE)
    assert (await failing(driver.create(request))).outcome is Outcome.UNKNOWN
    before = len(bench.ledger.seen)
    seen = await found(driver, request)
    asked = [one.target for one in bench.ledger.seen[before:] if one.name == LIST]
    assert [one.owner for one in seen.instances] == [request.owner]
    assert len(asked) == 3
    assert "tag_name=enlist-operation" in asked[0]
    assert len(bench.ledger.living(bench_kit.INSTALLATION)) == 1


async def test_b30_every_page_of_the_inventory_is_read_however_short(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.page_size = 20
    tags = packed_owner.as_tags(bench.request().owner)
    for number in range(50):
        bench.cloud.plant(name=f"ours-{number}", tags=tags)
    assert len((await driver.inventory(bench_kit.INSTALLATION)).machines) == 50


async def test_b32_a_list_that_shifts_between_two_pages_gives_nothing_twice(bench: Bench) -> None:
    bench.script.page_size = 2
    tags = packed_owner.as_tags(bench.request().owner)
    refs = {str(bench.cloud.plant(name=f"ours-{number}", tags=tags)) for number in range(4)}

    class Shifting(bench_kit.Announcements):
        async def __call__(self, call: contract.ApiCall, /) -> None:
            await super().__call__(call)
            if len(self.calls) == 2:  # one more at the front, so that page 2 begins with an old one
                ref = bench.cloud.plant(name="newcomer", tags=tags)
                bench.cloud.droplets = {
                    ref: bench.cloud.droplets.pop(ref),
                    **bench.cloud.droplets,
                }

    bench.told = Shifting()
    other = bench.driver()
    seen = await other.inventory(bench_kit.INSTALLATION)
    await other.close()
    found_refs = [one.ref for one in seen.machines]
    assert sorted(found_refs) == sorted(set(found_refs))
    assert refs <= set(found_refs)


# --- what is accepted and what becomes of it ------------------------------------------------------


async def test_b12_a_failing_look_at_the_action_ends_nothing(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=500), on=ACTION, times=2)
    bench.script.arm(Armed(verb=Verb.RATE), on=ACTION)
    for _ in range(2):
        assert (await failing(driver.poll(created))).outcome is Outcome.UNKNOWN
    throttled = await failing(driver.poll(created))  # a call too many stays one, and ends nothing
    assert (throttled.outcome, throttled.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.RATE)
    bench.settle()
    assert await driver.poll(created) is contract.Progress.DONE
    assert bench.ledger.count(CREATE) == 1


async def test_b16_what_was_accepted_and_never_placed_is_capacity_and_leaves_nothing(
    bench: Bench, driver: contract.Driver
) -> None:
    request = await settled(driver, bench.request())
    bench.script.arm(Armed(verb=Verb.ASYNC_FAIL), on=CREATE)
    created = await driver.create(request)
    bench.settle()
    fault = await failing(driver.poll(created))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert await driver.describe(created.ref, region=request.region) is None
    assert bench.ledger.living() == []
    for child in created.children:
        await driver.delete_child(child)
    assert bench.ledger.living_things() == []


async def test_a_droplet_that_vanished_without_an_action_is_no_end_of_its_order(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(await settled(driver, bench.request()))
    bench.script.describe_lag = 3600
    unnamed = dataclasses.replace(created, progress=None)
    assert await driver.poll(unnamed) is contract.Progress.RUNNING


async def test_tags_that_arrive_late_make_a_look_up_incomplete_and_never_clean(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.tag_lag = 90
    request = await settled(driver, bench.request())
    await driver.create(request)
    seen = await found(driver, request)
    assert [(one.name, one.owner) for one in seen.instances] == [(request.name, None)]
    assert not seen.is_complete
    bench.clock.advance(90)
    seen = await found(driver, request)
    assert [one.owner for one in seen.instances] == [request.owner]
    assert seen.is_complete


async def test_a_gpu_machine_which_no_list_by_tag_shows_is_found_and_kept_count_of(
    bench: Bench, driver: contract.Driver
) -> None:
    request = dataclasses.replace(bench.request(), size="gpu-h100x1-80gb")
    created = await driver.create(await settled(driver, request))
    bench.settle()
    seen = await found(driver, request)
    assert [one.ref for one in seen.instances] == [created.ref]
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert [one.ref for one in inventory.machines] == [created.ref]


async def test_absence_is_believed_after_three_clean_answers_over_three_minutes(
    driver: contract.Driver,
) -> None:
    assert driver.lookup.clean_answers == 3
    assert driver.lookup.settle.total_seconds() == 180
    assert not driver.lookup.replays


# --- refusals, told apart by their words ----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "outcome", "topic"),
    [
        pytest.param(
            422,
            "creating this/these droplet(s) will exceed your droplet limit",
            Outcome.NOT_DONE_PERMANENT,
            Topic.QUOTA,
            id="b78 the droplet limit as a 422",
        ),
        pytest.param(
            403,
            "This operation would exceed the droplet limit of your account",
            Outcome.NOT_DONE_PERMANENT,
            Topic.QUOTA,
            id="b78 the droplet limit as a 403",
        ),
        pytest.param(
            422,
            "Size is not available in this region.",
            Outcome.NOT_DONE_PERMANENT,
            Topic.CATALOGUE,
            id="a size that is not there",
        ),
        pytest.param(
            422,
            "Droplet already has a pending event.",
            Outcome.NOT_DONE_RETRYABLE,
            Topic.STATE,
            id="b68 something under way",
        ),
        pytest.param(
            409,
            "attached volume cannot be deleted",
            Outcome.NOT_DONE_RETRYABLE,
            Topic.STATE,
            id="b68 a volume in use",
        ),
        pytest.param(
            422,
            "Name is invalid",
            Outcome.NOT_DONE_PERMANENT,
            Topic.INPUT,
            id="a wrong word",
        ),
        pytest.param(
            403,
            "You are not authorized to perform this operation",
            Outcome.NOT_DONE_PERMANENT,
            Topic.RIGHTS,
            id="a scope that the token lacks",
        ),
    ],
)
async def test_a_refusal_is_known_by_its_words(  # noqa: PLR0917 - one row of the table above
    bench: Bench,
    driver: contract.Driver,
    status: int,
    message: str,
    outcome: outcomes.Outcome,
    topic: outcomes.Topic,
) -> None:
    request = await settled(driver, bench.request())
    armed = Armed(verb=Verb.FAIL_CODE, status=status, code="unprocessable_entity", message=message)
    bench.script.arm(armed, on=CREATE)
    fault = await failing(driver.create(request))
    assert (fault.outcome, fault.topic) == (outcome, topic)
    assert (fault.link is not None) == (topic is Topic.QUOTA)


async def test_b92_a_batch_that_meets_the_limit_in_its_middle_makes_what_fits_and_no_ghosts(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.droplet_limit = 10
    for number in range(6):
        bench.cloud.plant(name=f"theirs-{number}", tags=[])
    assert (await driver.validate()).room == 4
    made = [
        await driver.create(bench.request(operation=f"op-{number}", node=f"node-{number}"))
        for number in range(4)
    ]
    last = bench.request(operation="op-4", node="node-4")
    plan = await driver.plan(last)
    assert any("10 droplets are all in use" in warning for warning in plan.warnings)
    fault = await failing(driver.create(last))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.QUOTA)
    assert [one.ref for one in bench.ledger.living(bench_kit.INSTALLATION)] == [
        one.ref for one in made
    ]


async def test_b46_a_withdrawn_size_is_shown_and_hurts_only_itself(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.withdrawn.add("s-2vcpu-4gb")
    offer = await driver.offer()
    assert [one.name for one in offer.sizes if one.withdrawn] == ["s-2vcpu-4gb"]
    assert (await driver.plan(bench.request())).refusals == ()
    gone = await driver.plan(dataclasses.replace(bench.request(), size="s-2vcpu-4gb"))
    assert any("any more" in sentence for sentence in gone.refusals)


# --- endings --------------------------------------------------------------------------------------


async def test_nothing_is_ever_deleted_by_tag(bench: Bench, driver: contract.Driver) -> None:
    request, created = await ordered(bench, driver)
    await ordered(bench, driver, operation="op-2", node="other")
    await driver.delete(created.ref, region=request.region)
    await until_gone(bench, driver, created.ref, request.region)
    assert bench.ledger.count("DELETE /v2/droplets") == 0
    assert len(bench.ledger.living()) == 1
    assert "DELETE /v2/droplets" not in {call.name for call in calls.ALL}


async def test_b70_a_reserved_address_outlives_its_machine_and_is_shown_with_what_it_costs(
    bench: Bench, driver: contract.Driver
) -> None:
    request, created = await ordered(bench, driver)
    address = await driver.create_child(
        contract.ChildKind.ADDRESS, owner=request.owner, name="stable", region="fra1"
    )
    await driver.attach(address, to=created.ref)
    machine = await driver.describe(created.ref, region="fra1")
    assert machine is not None
    assert [(one.ref, one.keep) for one in machine.children] == [(address.ref, True)]
    await driver.delete(created.ref, region="fra1")
    await until_gone(bench, driver, created.ref, "fra1")
    left = await driver.describe_child(address)
    assert left is not None
    assert left.attached_to is None
    assert left.hourly is not None
    assert left.hourly.hourly_micros > 0
    assert left.hourly.as_of is not None


async def test_a_volume_whose_creating_was_not_answered_is_not_made_twice(
    bench: Bench, driver: contract.Driver
) -> None:
    owner = bench.request().owner
    wish = {"owner": owner, "name": "data", "region": "fra1", "size_gigabytes": 10}
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_DROP), on="POST /v2/volumes")
    fault = await failing(driver.create_child(contract.ChildKind.VOLUME, **wish))  # type: ignore[arg-type]
    assert fault.outcome is Outcome.UNKNOWN
    volume = await driver.create_child(contract.ChildKind.VOLUME, **wish)  # type: ignore[arg-type]
    assert [one.ref for one in bench.ledger.living_things()] == [volume.ref]
    assert bench.ledger.count("POST /v2/volumes") == 1


# --- the credential -------------------------------------------------------------------------------


async def test_a_token_without_a_scope_is_told_which_it_lacks(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.cloud.missing_scopes = {"GET /v2/volumes", "GET /v2/account/keys"}
    validation = await driver.validate()
    assert validation.missing == ("block_storage:read", "ssh_key:read")
    assert "droplet:create" in validation.unproved


def test_the_scopes_to_choose_are_those_of_the_calls_and_no_others() -> None:
    of_machines = policy_text.scopes([contract.Feature.MACHINES])
    assert of_machines == (
        "actions:read",
        "droplet:create",
        "droplet:delete",
        "droplet:read",
        "droplet:update",
        "firewall:create",
        "firewall:delete",
        "firewall:read",
        "regions:read",
        "ssh_key:create",
        "ssh_key:delete",
        "ssh_key:read",
        "tag:create",
        "tag:read",
    )
    assert "block_storage:create" in policy_text.setup_text({})


def test_tags_fit_what_a_tag_may_be() -> None:
    owner = contract.Owner(
        installation="i" * 36, infra="default", operation="o" * 36, node="n" * 63, attempt=12
    )
    tags = packed_owner.as_tags(owner)
    assert all(len(tag) <= 255 for tag in tags)
    assert all(set(tag) <= set("abcdefghijklmnopqrstuvwxyz0123456789-:") for tag in tags)
    assert packed_owner.owner_of_tags(tags) == owner
    assert packed_owner.owner_of_tags(tags[1:]) is None
    assert naming.owner_of(naming.tags_of(owner)) == owner
