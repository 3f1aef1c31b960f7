"""What Hetzner Cloud's driver alone does: its token, the way in, images, the library under it."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hcloud
import pytest

from provisioning import contract, outcomes, providers
from provisioning.hetzner import calls, policy_text
from tests.support import waits
from tests.support.clouds import bench as bench_kit
from tests.support.clouds import hetzner_bench
from tests.support.clouds.asking import failing, ordered, settled, until_gone
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


# --- the token, the way in ----------------------------------------------------------------------


async def test_a_token_that_may_only_read_is_named_so_without_making_anything(
    bench: Bench,
) -> None:
    driver = bench.reading_driver()
    try:
        validation = await driver.validate()
        fault = await failing(driver.create(bench.request()))
    finally:
        await driver.close()
    assert validation.missing == ("read & write",)
    assert (fault.outcome, fault.topic) == (Outcome.AUTH_LOST, Topic.RIGHTS)
    assert bench.ledger.living() == []


async def test_port_22_is_reached_from_the_networks_named_and_goes_with_the_machine(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY, sources=("203.0.113.0/24",))
    request = await settled(driver, dataclasses.replace(bench.request(), ssh=ssh))
    created = await driver.create(request)
    bench.settle()
    (firewall,) = bench.fake.firewalls.values()
    opened = {rule["port"]: rule["source_ips"] for rule in firewall["rules"]}
    assert opened["22"] == ["203.0.113.0/24"]
    assert {one.kind for one in created.children} >= {
        contract.ChildKind.SSH_KEY,
        contract.ChildKind.SECURITY_GROUP,
    }
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert {one.owner for one in inventory.children} == {request.owner}
    await driver.delete(created.ref, region="fsn1")
    await until_gone(bench, driver, created.ref, "fsn1")
    for child in created.children:
        await driver.delete_child(child)
    assert bench.ledger.living_things() == []


async def test_a_way_in_that_ends_is_shut_while_the_machine_still_has_its_firewall(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY, sources=("203.0.113.0/24",))
    created = await driver.create(dataclasses.replace(bench.request(), ssh=ssh))
    bench.settle()
    (child,) = [one for one in created.children if one.kind is contract.ChildKind.SECURITY_GROUP]
    fault = await failing(driver.delete_child(child))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.STATE)
    (firewall,) = bench.fake.firewalls.values()
    assert "22" not in {rule["port"] for rule in firewall["rules"]}


async def test_a_key_that_the_project_has_already_is_used_and_not_taken_away(
    bench: Bench, driver: contract.Driver
) -> None:
    ssh = contract.Ssh(public_key=KEY)
    plain = hcloud.Client(token=hetzner_bench.TOKEN, api_endpoint=bench.address, timeout=5)
    plain.ssh_keys.create(name="theirs", public_key=KEY)
    plain._client._session.close()
    created = await driver.create(dataclasses.replace(bench.request(), ssh=ssh))
    assert contract.ChildKind.SSH_KEY not in {one.kind for one in created.children}
    assert len(bench.fake.ssh_keys) == 1


@pytest.mark.parametrize("field", ["volumes", "addresses"])
async def test_an_order_with_a_ref_that_is_none_is_not_sent(
    bench: Bench, driver: contract.Driver, field: str
) -> None:
    asked = len(bench.ledger.seen)
    wish: dict[str, Any] = {field: ("1/../../volumes/7",)}
    fault = await failing(driver.create(dataclasses.replace(bench.request(), **wish)))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_PERMANENT, Topic.INPUT)
    assert len(bench.ledger.seen) == asked


async def test_a_key_of_one_order_does_not_go_with_the_machine_of_another(
    bench: Bench, driver: contract.Driver
) -> None:
    kinds = []
    for number in (1, 2):
        request = bench.request(operation=f"op-{number}", node=f"node-{number}")
        with_key = dataclasses.replace(request, ssh=contract.Ssh(public_key=KEY))
        created = await driver.create(with_key)
        kinds.append({one.kind for one in created.children})
    assert [contract.ChildKind.SSH_KEY in one for one in kinds] == [True, False]
    assert len(bench.fake.ssh_keys) == 1


def _with_key(bench: Bench, *, attempt: int = 1) -> contract.Request:
    request = bench.request(attempt=attempt)
    return dataclasses.replace(request, ssh=contract.Ssh(public_key=KEY))


async def test_one_key_and_one_firewall_serve_all_machines_that_nobody_logs_in_to(
    bench: Bench, driver: contract.Driver
) -> None:
    """However many there are, they never come to the project's limits of keys and firewalls."""
    orders = [bench.request(operation=f"op-{one}", node=f"node-{one}") for one in range(3)]
    made = [await driver.create(request) for request in orders]
    (wall,), (key,) = bench.fake.firewalls, bench.fake.ssh_keys.values()
    bench.settle()
    assert [bench.ledger.machines[one.ref].keys for one in made] == [[key["public_key"]]] * 3
    assert all(bench.ports_open(one.ref) == [] for one in made)
    kinds = {one.kind for created in made for one in created.children}
    assert kinds == {contract.ChildKind.ADDRESS}  # the pair is no machine's, and no orphan either
    inventory = await driver.inventory(bench_kit.INSTALLATION)
    assert {one.kind for one in inventory.children} <= kinds
    for created in made:
        await driver.delete(created.ref, region="fsn1")
        await until_gone(bench, driver, created.ref, "fsn1")
    assert list(bench.fake.firewalls) == [wall]


async def test_what_was_opened_by_hand_in_the_shared_firewall_is_shut_before_the_next_order(
    bench: Bench, driver: contract.Driver
) -> None:
    created = await driver.create(bench.request())
    bench.settle()
    (wall,) = bench.fake.firewalls.values()
    opened = {"protocol": "tcp", "port": "22", "source_ips": ["0.0.0.0/0"]}
    wall["rules"].append({**wall["rules"][0], **opened})
    wall["labels"]["team"] = "web"  # a person's own label makes it no less ours
    assert bench.ports_open(created.ref) == ["22"]
    await driver.create(bench.request(operation="op-2", node="node-2"))
    assert bench.ports_open(created.ref) == []


async def test_two_first_orders_at_one_moment_share_the_pair(
    bench: Bench, driver: contract.Driver
) -> None:
    orders = [bench.request(operation=f"op-{one}", node=f"node-{one}") for one in range(2)]
    await asyncio.gather(*(driver.create(request) for request in orders))
    assert (len(bench.fake.firewalls), len(bench.fake.ssh_keys)) == (1, 1)
    assert len(bench.ledger.living()) == 2


async def test_another_ones_key_of_the_pairs_name_is_never_used(
    bench: Bench, driver: contract.Driver
) -> None:
    plain = hcloud.Client(token=hetzner_bench.TOKEN, api_endpoint=bench.address, timeout=5)
    plain.ssh_keys.create(name=f"enlist-{bench_kit.INSTALLATION}-nobody", public_key=KEY)
    plain._client._session.close()
    fault = await failing(driver.create(bench.request()))
    assert (fault.outcome, fault.topic) == (Outcome.EXISTS_FOREIGN, Topic.STATE)
    assert bench.ledger.living() == []


async def test_an_order_that_is_refused_leaves_neither_key_nor_firewall(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.sold_out = {("cx23", "fsn1")}
    await failing(driver.create(_with_key(bench)))
    assert bench.ledger.count("POST /v1/firewalls") == 1
    assert bench.ledger.living_things() == []


async def test_a_refusal_says_what_was_left_there_and_the_next_attempt_takes_it_over(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.fake.sold_out = {("cx23", "fsn1")}
    away = Armed(verb=Verb.BEFORE_5XX, status=503)
    bench.script.arm(away, on="DELETE /v1/firewalls/{id}")
    fault = await failing(driver.create(_with_key(bench)))
    assert (fault.outcome, fault.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY)
    assert "left there" in str(fault)
    left = {one.ref for one in bench.ledger.living_things()}
    assert left
    bench.fake.sold_out = set()
    created = await driver.create(_with_key(bench, attempt=2))
    assert left <= {one.ref for one in created.children}


async def test_a_lost_answer_about_the_key_is_no_doubt_about_the_server(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on="POST /v1/ssh_keys")
    fault = await failing(driver.create(bench.request()))
    assert fault.outcome is Outcome.NOT_DONE_RETRYABLE
    assert bench.ledger.living() == []
    await driver.create(bench.request())
    assert len(bench.fake.ssh_keys) == 1


async def test_a_machine_whose_answer_was_lost_is_found_with_its_key_and_firewall(
    bench: Bench, driver: contract.Driver
) -> None:
    bench.script.arm(Armed(verb=Verb.COMMIT_THEN_5XX, status=503), on=CREATE)
    request = _with_key(bench)
    fault = await failing(driver.create(request))
    assert fault.outcome is Outcome.UNKNOWN
    (found,) = (await driver.find(request.owner, name=request.name, region="fsn1")).instances
    kinds = {one.kind for one in found.children}
    assert {contract.ChildKind.SSH_KEY, contract.ChildKind.SECURITY_GROUP} <= kinds


async def test_a_snapshot_of_ours_can_be_ordered_and_one_too_large_is_refused(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    snapshot = await driver.create_child(
        contract.ChildKind.SNAPSHOT,
        owner=bench.request(operation="op-s").owner,
        name="before",
        region="fsn1",
        of=created.ref,
    )
    request = bench.request(operation="op-2", node="from-snapshot")
    request = dataclasses.replace(request, image=snapshot.ref)
    assert (await driver.plan(request)).refusals == ()
    await driver.create(request)
    bench.fake.snapshots[int(snapshot.ref)]["disk_size"] = 160
    assert "needs 160 GB" in " ".join((await driver.plan(request)).refusals)


async def test_a_snapshot_asked_for_twice_is_made_once(
    bench: Bench, driver: contract.Driver
) -> None:
    _, created = await ordered(bench, driver)
    owner = bench.request(operation="op-s").owner
    kind = contract.ChildKind.SNAPSHOT
    for _ in range(2):
        await driver.create_child(kind, owner=owner, name="s", region="fsn1", of=created.ref)
    assert len(bench.fake.snapshots) == 1


# --- the library under it -----------------------------------------------------------------------


async def test_an_answer_that_leads_elsewhere_is_not_followed(
    bench: Bench, driver: contract.Driver
) -> None:
    elsewhere = {"location": f"{bench.address}/servers"}
    bench.script.arm(Armed(verb=Verb.BEFORE_5XX, status=307, headers=elsewhere), on=CREATE)
    fault = await failing(driver.create(bench.request()))
    assert fault.outcome is Outcome.UNKNOWN
    assert bench.ledger.count(CREATE) == 1
    assert bench.ledger.seen[-1].name == CREATE


async def test_one_call_that_hangs_holds_up_no_other(bench: Bench) -> None:
    driver = providers.open_driver(
        "hetzner", dataclasses.replace(bench.opening(), limits=bench_kit.SHORT)
    )
    try:
        bench.script.arm_always(Armed(verb=Verb.HANG), on="GET /v1/servers/{id}")
        hanging = [
            asyncio.create_task(failing(driver.describe(str(number), region="fsn1")))
            for number in range(3)
        ]
        await waits.until(lambda: bench.ledger.count("GET /v1/servers/{id}") == 3)
        await driver.offer()
        assert [one.done() for one in hanging] == [False] * 3
        faults = await asyncio.gather(*hanging)
        assert [one.outcome for one in faults] == [Outcome.UNKNOWN] * 3
    finally:
        bench.script.release()
        await driver.close()


def test_the_table_of_calls_is_what_the_fake_answers_and_no_more(bench: Bench) -> None:
    """The least-privilege text is made of it, so it may not ask for more than is used."""
    routes = set(bench.fake._routes) | {CREATE}
    assert {one.name for one in calls.ALL} == routes


def test_the_rights_asked_for_are_those_of_the_table() -> None:
    assert policy_text.rights([contract.Feature.CATALOG]) == ("read",)
    assert policy_text.rights([contract.Feature.MACHINES]) == ("read", "read & write")
    assert "Read & Write" in policy_text.setup_text({})
