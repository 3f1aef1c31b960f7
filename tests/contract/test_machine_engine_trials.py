"""Trials whose claim is about the engine and a provider's own answers together, and the last net.

One store: that the engine is the same on both is shown with a provider of a test's own.
"""

import asyncio
import datetime
import itertools
import json
import pathlib
import re
from collections.abc import Iterator

import pytest

from platform_server.cloud import connections, orphans, sweeper
from platform_server.store import contract
from provisioning import outcomes
from tests.support import cloud_desk, machine_lives, machine_orders
from tests.support.clouds import digitalocean_bench, hetzner_bench, pocket
from tests.support.clouds.script import Armed, Verb
from wire_protocol import ids

CREATE = "POST /v1/servers"


@pytest.fixture
def store_kind() -> str:
    """See above."""
    return "sqlite"


@pytest.fixture
def digitalocean() -> Iterator[digitalocean_bench.DigitalOceanBench]:
    with digitalocean_bench.DigitalOceanBench() as bench:
        yield bench


async def test_b10_the_third_net_holds_alone_the_sweeper_finds_what_an_engine_bought_and_lost(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.is_blind = True  # the second net shows nothing, and the first never replays
    engine.cloud.arm(pocket.CREATE, pocket.lost(), done=True)
    made = await engine.order()
    await engine.until(made, "creating")
    await engine.carry_on(rounds=2)
    (bought,) = engine.cloud.standing()

    async def lose(tx: contract.Tx) -> None:
        operation_id = made.operation.operation_id
        await tx.execute("DELETE FROM cloud_attempts WHERE operation_id = ?", operation_id)
        await tx.execute("DELETE FROM cloud_machines WHERE operation_id = ?", operation_id)
        await tx.execute("DELETE FROM operations WHERE operation_id = ?", operation_id)

    await store.transact(lose)
    net = sweeper.Sweeper(
        store,
        clouds=engine.clouds,
        installation=engine.means.installation,
        environment="test",
        rules=sweeper.Rules(),
        clock=engine.platform.clock,
    )
    (swept,) = await net.sweep_all()
    found = await store.read(lambda tx: orphans.list_page(tx, limit=10))
    assert (bought["ref"], made.operation.operation_id) in [
        (one.provider_ref, one.operation_id) for one in found if one.kind == "machine"
    ]
    assert swept.is_complete
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
    assert engine.cloud.standing() == [bought]  # told, and deleted by nobody


async def test_b44_a_place_that_is_sold_out_fails_its_own_order_and_is_never_switched_from(
    store: contract.Store, tmp_path: pathlib.Path, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.fake.sold_out = {("cx23", "fsn1")}
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    life.offers_by(cloud_desk.write_policy(tmp_path))
    made = await life.ordered()
    assert await life.until(made, "failed", rounds=200) == "failed"
    found = await life.stands(made)
    said = found.reason or ""
    assert "capacity" in said
    assert re.findall(r"(\w+) in (\w+) \(0\.\d{4} EUR an hour\)", said) == [
        ("growth", "fsn1"),
        ("starter", "hel1"),
    ]  # what the policy allows beside it, priced; itself it is not offered
    assert "enlist cloud machines create web-1 --provider hetzner --region REGION" in said
    assert found.error_class is not None
    assert found.error_class.value == "transient"  # it may be tried again, and by a person
    assert hetzner.ledger.machines == {}  # in no other place either
    bodies = [json.loads(one.body) for one in hetzner.ledger.seen if one.name == CREATE]
    assert {one["location"] for one in bodies} == {"fsn1"}
    assert not (await life.machine(made)).counts
    assert hetzner.ledger.living_things() == []
    # The key and the firewall that all machines share are made once; then a try is one call.
    await machine_orders.require_standard(life, mutating=2 + len(bodies))


async def test_b16_what_was_accepted_and_never_placed_fails_with_another_region_to_order_in(
    store: contract.Store,
    tmp_path: pathlib.Path,
    digitalocean: digitalocean_bench.DigitalOceanBench,
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=digitalocean)
    life.offers_by(
        cloud_desk.write_policy(
            tmp_path,
            digitalocean={
                **cloud_desk.POLICY,
                "regions": ["fra1", "ams3"],
                "image": digitalocean.image,
                "classes": [{"name": "starter", "size": digitalocean.size}],
                "currency": "USD",
            },
        )
    )
    digitalocean.script.arm(Armed(verb=Verb.ASYNC_FAIL), on="POST /v2/droplets")
    made = await life.ordered()
    await life.until(made, "booting")
    life.is_settling = True
    assert await life.until(made, "failed") == "failed"
    found = await life.stands(made)
    assert "capacity" in (found.reason or "")
    assert "To be had: starter in ams3 (" in (found.reason or "")
    assert found.error_class is not None
    assert found.error_class.value == "transient"
    assert digitalocean.ledger.living() == []
    assert digitalocean.ledger.living_things() == []
    assert not (await life.machine(made)).counts
    await machine_orders.require_standard(life, mutating=8, unseen_seconds=300.0)


async def test_b24_ten_machines_whose_create_calls_take_twenty_seconds_are_ten_calls(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    all_ten = asyncio.Barrier(10)

    async def slow() -> None:
        async with asyncio.timeout(60):
            if await all_ten.wait() == 0:  # all of them are under way, and take that long
                engine.platform.clock.advance(20.0)
            await all_ten.wait()

    engine.cloud.before[pocket.CREATE] = slow
    orders = [await engine.order(f"web-{number}") for number in range(10)]
    for made in orders:
        await engine.until(made, "booting")
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE] * 10
    assert len(engine.cloud.ever()) == 10
    await machine_orders.require_standard(engine, mutating=10, unseen_seconds=200.0)


@pytest.mark.parametrize("node_id", ["a" * 63, "a" * 51 + "-b"], ids=["63", "cut-at-a-hyphen"])
async def test_b34_an_order_for_the_longest_node_id_becomes_a_machine_of_a_name_that_fits(
    store: contract.Store,
    tmp_path: pathlib.Path,
    hetzner: hetzner_bench.HetznerBench,
    node_id: str,
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    made = await life.ordered(node_id)
    await life.until(made, "booting")
    (machine,) = hetzner.ledger.living()
    assert len(machine.name) <= 63
    assert made.machine.node_id == node_id
    await machine_orders.require_standard(life, mutating=3, unseen_seconds=300.0)


@pytest.mark.parametrize(
    "node_id", ["a" * 64, "größe", "web_1"], ids=["64", "unicode", "underscore"]
)
def test_b34_a_node_id_that_fits_no_name_is_refused_with_what_would(node_id: str) -> None:
    with pytest.raises(ValueError, match="63"):
        ids.parse_node_id(node_id)


async def test_b28_sold_out_is_asked_for_by_the_engine_once_a_minute_at_most(
    store: contract.Store, tmp_path: pathlib.Path, hetzner: hetzner_bench.HetznerBench
) -> None:
    life = await machine_lives.build(store, folder=tmp_path, bench=hetzner)
    hetzner.script.arm_always(Armed(verb=Verb.FAIL_CODE, code="resource_unavailable"), on=CREATE)
    made = await life.ordered()
    await life.until(made, "failed", rounds=200)
    asked = [one.at for one in hetzner.ledger.seen if one.name == CREATE]
    assert len(asked) >= 2
    gaps = [later - former for former, later in itertools.pairwise(asked)]
    assert min(gaps) >= datetime.timedelta(minutes=1)
    assert gaps == sorted(gaps)  # and rarer as it goes on
    assert hetzner.ledger.living_things() == []
    # The key and the firewall that all machines share are made once; then a try is one call.
    await machine_orders.require_standard(life, mutating=2 + len(asked))


async def test_b80_a_clock_that_is_off_pauses_the_connection_and_fails_no_order(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(
        pocket.PLAN,
        outcomes.Fault(
            "The clock here is 10 minutes behind.",
            outcome=outcomes.Outcome.CLOCK,
            topic=outcomes.Topic.CLOCK,
        ),
    )
    made = await engine.order()
    await engine.carry_on(rounds=4)
    assert await engine.state(made) == "validating"
    paused = await store.read(lambda tx: connections.get(tx, connection_id=machine_orders.NAME))
    assert paused.pause is not None
    assert (paused.pause.topic, "10 minutes behind" in paused.pause.reason) == ("clock", True)
    assert not engine.cloud.calls(pocket.CREATE)
    await engine.carry_on(rounds=4, seconds=100.0)  # the clock was set: a probe finds it
    await engine.until(made, "booting")
    await engine.to_active(made)
    await machine_orders.require_standard(engine, mutating=1)


async def test_b92_five_orders_with_room_for_four_are_four_active_and_one_failed_and_none_waits(
    store: contract.Store,
    tmp_path: pathlib.Path,
    digitalocean: digitalocean_bench.DigitalOceanBench,
) -> None:
    digitalocean.cloud.droplet_limit = 10
    for number in range(6):
        digitalocean.cloud.plant(name=f"theirs-{number}", tags=[])
    life = await machine_lives.build(store, folder=tmp_path, bench=digitalocean)
    orders = [await life.ordered(f"web-{number}") for number in range(5)]
    for made in orders:
        await life.until(made, "booting", "failed")
    states = [await life.state(made) for made in orders]
    assert sorted(states) == ["booting"] * 4 + ["failed"]
    for made, state in zip(orders, states, strict=True):
        if state == "booting":
            assert await (await life.guest(made)).joins() == 201
            assert await life.until(made, "active") == "active"
    (refused,) = [made for made in orders if await life.state(made) == "failed"]
    assert "limit" in ((await life.stands(refused)).reason or "")
    assert not (await life.machine(refused)).counts
    await machine_orders.require_standard(life, mutating=40, unseen_seconds=300.0)


async def test_a_token_lives_for_launch_and_enrollment_from_the_create_call_and_no_longer(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(
        pocket.CREATE, *[pocket.refused(outcomes.Topic.CAPACITY, later=True) for _ in range(2)]
    )
    made = await engine.order()
    await engine.until(made, "booting")
    (tried,) = await engine.tried(made)
    assert tried.sent_at is not None
    assert tried.sent_at - tried.written_at >= datetime.timedelta(minutes=1)
    guest = machine_orders.Guest(engine)
    row = await store.read(
        lambda tx: tx.fetch_one(
            "SELECT expires_at FROM enrollments WHERE enrollment_id = ?", tried.enrollment_id
        )
    )
    assert row is not None
    ends = datetime.datetime.fromtimestamp(row["expires_at"] / 1e6, tz=datetime.UTC)
    life = engine.means.limits.launch + engine.means.limits.enrollment
    assert ends == tried.sent_at + life  # not from when it was minted
    engine.platform.clock.advance((ends - engine.platform.clock.now()).total_seconds())
    await engine.viewer.tick()
    assert (await guest.knocks()).status == 403
