"""Trials of orders: caps, quotas, breakers, the pace of calls, a lost credential; both stores."""

import asyncio
import dataclasses
import datetime
import functools
import pathlib

import pytest

from platform_server.cloud import (
    breaker,
    connections,
    consent,
    machines,
    means,
    requests,
    reserve,
    view,
)
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from tests.support import machine_orders
from tests.support.clouds import pocket

FIVE = (consent.Caps(most_machines=5, most_hourly_micros=10**9, currency="EUR", named="consent"),)


async def test_b20_a_machine_that_never_enrolls_is_gone_before_the_next_and_the_breaker_opens(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store,
        folder=tmp_path,
        limits=means.Limits(
            enrollment=datetime.timedelta(seconds=60), attempts=2, breaker_failures=2
        ),
    )
    alive: list[int] = []

    async def count() -> None:
        alive.append(len(engine.cloud.standing()))

    engine.cloud.before[pocket.CREATE] = count
    made = await engine.order()
    assert await engine.until(made, "failed", rounds=200) == "failed"
    assert alive == [0, 0]
    assert len(engine.cloud.standing()) == 1  # the last is kept for a person
    said = (await engine.stands(made)).reason or ""
    assert "The machine is kept" in said
    assert "money" not in said  # a machine of this host costs none
    assert (await engine.machine(made)).counts
    with pytest.raises(breaker.TemplateStopped):
        await engine.order("web-2")
    machine = await engine.machine(made)
    assert await store.transact(
        lambda tx: requests.resume_template(
            tx, template=machine.template, infra="default", now=engine.platform.clock.now()
        )
    )
    await engine.order("web-2")
    await machine_orders.require_standard(engine, mutating=4)


async def test_b52_what_hung_on_an_attempt_is_confirmed_gone_before_the_next(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store,
        folder=tmp_path,
        rules=pocket.Rules(children_stay=True),
        limits=means.Limits(enrollment=datetime.timedelta(seconds=60), attempts=2),
    )
    left: list[int] = []

    async def count() -> None:
        left.append(len(engine.cloud.hanging()))

    engine.cloud.before[pocket.CREATE] = count
    made = await engine.order()
    for _ in range(40):
        if len(engine.cloud.ever()) == 2:
            break
        await engine.carry_on(rounds=1)
    assert left == [0, 0]
    assert await engine.state(made) == "booting"
    await machine_orders.require_standard(engine, mutating=5)  # two bought, one deleted with two


async def test_b22_eleven_orders_at_once_against_a_cap_of_two_make_two(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    two = (consent.Caps(most_machines=2, most_hourly_micros=10**9, currency="EUR", named="policy"),)
    asked = await asyncio.gather(
        *(engine.order(f"web-{number}", caps=two) for number in range(11)),
        return_exceptions=True,
    )
    refused = [one for one in asked if isinstance(one, reserve.CapReached)]
    assert len(refused) == 9
    await engine.carry_on(rounds=3)
    assert len(engine.cloud.ever()) == 2
    await machine_orders.require_standard(engine, mutating=2)


async def test_b22_money_is_capped_with_everything_that_is_not_confirmed_gone(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    cap = (
        consent.Caps(
            most_machines=100,
            most_hourly_micros=2 * pocket.PRICE.hourly_micros,
            currency="EUR",
            named="consent",
        ),
    )
    first = await engine.order("web-1", caps=cap)
    await engine.order("web-2", caps=cap)
    with pytest.raises(reserve.CapReached, match="an hour"):
        await engine.order("web-3", caps=cap)
    with pytest.raises(reserve.CapReached, match="price"):
        await engine.order("web-3", caps=cap, price=None)
    await engine.until(first, "booting")
    engine.cloud.is_away = True
    await engine.delete("web-1")
    await engine.carry_on(rounds=4)
    with pytest.raises(reserve.CapReached):  # deleting and not confirmed
        await engine.order("web-3", caps=cap)
    engine.cloud.is_away = False
    await engine.until(first, "cancelled", rounds=80)
    await engine.order("web-3", caps=cap)
    await machine_orders.require_standard(engine, mutating=14)  # a delete is asked for until heard


async def test_a_plan_dearer_than_the_order_is_not_bought_over_the_cap(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    dear = provider.Price(hourly_micros=2 * pocket.PRICE.hourly_micros, currency="EUR")
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(price=dear))
    engine.caps = (
        consent.Caps(
            most_machines=1,
            most_hourly_micros=dear.hourly_micros - 1,
            currency="EUR",
            named="policy",
        ),
    )
    made = await engine.order(caps=engine.caps)
    assert await engine.until(made, "failed") == "failed"
    found = await engine.stands(made)
    assert found.error_class is not None
    assert found.error_class.value == "needs-operator"
    assert "0.0120 EUR" in (found.reason or "")
    assert "0.0060 EUR" in (found.reason or "")
    assert not engine.cloud.calls(pocket.CREATE)
    assert not (await engine.machine(made)).counts
    engine.caps = (dataclasses.replace(engine.caps[0], most_hourly_micros=dear.hourly_micros),)
    again = await engine.order("web-2", caps=engine.caps)
    await engine.until(again, "booting")  # where it fits it is bought, at the price it has
    assert (await engine.machine(again)).price == dear
    with pytest.raises(reserve.CapReached):
        await engine.order("web-3", caps=(dataclasses.replace(engine.caps[0], most_machines=9),))
    await machine_orders.require_standard(engine, mutating=1)


async def test_a_plan_in_another_currency_is_not_bought_where_money_is_capped(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    other = provider.Price(hourly_micros=1, currency="USD")
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(price=other))
    engine.caps = FIVE
    made = await engine.order(caps=FIVE)
    assert await engine.until(made, "failed") == "failed"
    assert "USD" in ((await engine.stands(made)).reason or "")
    assert not engine.cloud.calls(pocket.CREATE)
    await machine_orders.require_standard(engine, mutating=0)


async def test_a_retry_through_a_forgotten_connection_is_refused(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(room=0))
    made = await engine.order()
    assert await engine.until(made, "failed") == "failed"
    connection = await engine.connection()
    await store.transact(lambda tx: connections.remove(tx, connection_id=connection.connection_id))
    with pytest.raises(connections.NoSuchConnection):
        await engine.retry(made)
    assert not (await engine.machine(made)).counts
    await machine_orders.require_standard(engine, mutating=1)


async def test_b24_a_slow_provider_gets_one_create_call_a_machine(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(pocket.CREATE, *[pocket.lost() for _ in range(10)], done=True)
    orders = [await engine.order(f"web-{number}") for number in range(10)]
    await engine.carry_on(rounds=12)
    assert [await engine.state(one) for one in orders] == ["booting"] * 10
    assert len(engine.cloud.calls(pocket.CREATE)) == 10
    assert len(engine.cloud.ever()) == 10
    await machine_orders.require_standard(engine, mutating=10)


async def test_b28_a_sold_out_size_is_asked_for_once_a_minute_at_most(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.cloud.arm(
        pocket.CREATE,
        *[
            pocket.refused(outcomes.Topic.CAPACITY, later=True, code="resource_unavailable")
            for _ in range(100)
        ],
    )
    made = await engine.order()
    assert await engine.until(made, "failed", rounds=120) == "failed"
    assert len(engine.cloud.calls(pocket.CREATE)) <= 8
    assert not (await engine.machine(made)).counts
    await machine_orders.require_standard(engine, mutating=8)


async def test_b76_a_revoked_credential_pauses_everything_and_fails_nothing(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    active = await engine.order("web-1")
    await engine.to_active(active)
    leaving = await engine.order("web-2")
    await engine.until(leaving, "booting")
    await engine.carry_on(rounds=3)
    assert await machine_orders.Guest(engine).joins() == 201
    await engine.until(leaving, "active")
    creating = await engine.order("web-3")
    engine.cloud.is_revoked = True
    gone = await engine.delete("web-2")
    before = len(engine.cloud.calls())
    await engine.carry_on(rounds=40, seconds=60.0)
    assert await engine.state(creating) in ("validating", "creating")
    assert await engine.state(gone) == "deleting"
    calls = len(engine.cloud.calls()) - before
    assert calls <= 2 + 40 * 60 / 300  # a probe in five minutes
    events = await store.read(
        lambda tx: tx.fetch_all("SELECT kind FROM events WHERE kind LIKE 'cloud-connection%'")
    )
    assert len(events) == 1
    engine.cloud.is_revoked = False
    await engine.carry_on(rounds=8, seconds=60.0)
    assert await engine.until(gone, "deleted") == "deleted"
    assert await engine.state(creating) in ("booting", "active")
    assert len(engine.cloud.ever()) == 3
    await machine_orders.require_standard(engine, mutating=14)


async def test_b78_a_quota_is_a_persons_matter_and_not_retried(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(room=0))
    made = await engine.order()
    assert await engine.until(made, "failed") == "failed"
    found = await engine.stands(made)
    assert found.error_class is not None
    assert found.error_class.value == "needs-operator"
    assert "quota" in (found.reason or "")
    assert engine.cloud.calls(pocket.CREATE) == [pocket.CREATE]
    await machine_orders.require_standard(engine, mutating=1)


async def test_b96_five_refused_orders_free_the_cap_at_once(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path, rules=pocket.Rules(room=0))
    orders = [await engine.order(f"web-{number}", caps=FIVE) for number in range(5)]
    with pytest.raises(reserve.CapReached):
        await engine.order("web-5", caps=FIVE)
    await engine.carry_on(rounds=3)
    assert [await engine.state(one) for one in orders] == ["failed"] * 5
    left = await store.read(
        lambda tx: machines.list_page(
            tx, limit=10, infra=None, connection_id=None, ended=False, before=None
        )
    )
    assert not left  # no record stands in the way: nothing is shown that could not be ended
    for made in orders:
        with pytest.raises(requests.WrongState, match="is gone"):
            await engine.delete(made.machine.machine_id)
    engine.cloud.rules.room = None
    again = await engine.order("web-0", caps=FIVE)
    await engine.to_active(again)
    await machine_orders.require_standard(engine, mutating=6)


async def test_an_order_that_the_provider_would_refuse_ends_before_anything_is_sent(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(refusals=("There is no default network.",))
    )
    made = await engine.order()
    assert await engine.until(made, "failed") == "failed"
    assert (await engine.stands(made)).reason == "There is no default network."
    assert not engine.cloud.calls(pocket.CREATE)
    assert not await engine.tried(made)
    await machine_orders.require_standard(engine, mutating=0)


async def test_b26_an_idle_fleet_of_forty_is_looked_at_by_one_list(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    for number in range(40):
        made = await engine.order(f"web-{number}")
        owner = provider.Owner(
            installation=engine.means.installation,
            infra="default",
            operation=made.operation.operation_id,
            node=f"web-{number}",
            attempt=1,
        )
        ref = engine.cloud.plant(owner, name=f"web-{number}")
        await store.transact(functools.partial(_as_active, made=made, ref=ref))
    before = len(engine.cloud.calls())
    for _ in range(240):  # an hour of ticks
        engine.platform.clock.advance(view.TICK_SECONDS)
        await engine.viewer.tick()
    made_calls = engine.cloud.calls()[before:]
    assert set(made_calls) == {pocket.LIST}
    assert len(made_calls) <= 13
    assert not [one for one in engine.cloud.calls() if one in pocket.CHANGING]


async def test_b94_twenty_slow_machines_cost_at_most_four_hundred_calls(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(
        store, folder=tmp_path, rules=pocket.Rules(boots_after=600.0, progresses=True)
    )
    for number in range(20):
        await engine.order(f"web-{number}")
    await engine.carry_on(rounds=120, seconds=5.0)
    assert len(engine.cloud.ever()) == 20
    assert len(engine.cloud.calls()) <= 400
    await machine_orders.require_standard(engine, mutating=20)


async def _as_active(tx: contract.Tx, *, made: requests.Made, ref: str) -> None:
    await tx.execute(
        "UPDATE cloud_machines SET provider_ref = ?, active_at = 1 WHERE machine_id = ?",
        ref,
        made.machine.machine_id,
    )
    await tx.execute(
        "UPDATE operations SET state = 'active', ended_at = 1 WHERE operation_id = ?",
        made.operation.operation_id,
    )
