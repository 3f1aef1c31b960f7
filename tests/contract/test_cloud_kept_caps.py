"""Caps hold for volumes, snapshots and addresses as for machines, on both stores."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import pytest

from platform_server.cloud import (
    beside,
    connections,
    consent,
    costs,
    pricing,
    reserve,
    resources,
)
from platform_server.store import contract
from provisioning import contract as provider
from tests.support import cloud_desk
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit

VOLUME = provider.ChildKind.VOLUME
ADDRESS = provider.ChildKind.ADDRESS
SNAPSHOT = provider.ChildKind.SNAPSHOT
CAPPED = ("hetzner", "digitalocean", "aws", "azure", "gcp", "upcloud")


def _cap(*, hourly: int = 10**9, **more: Any) -> tuple[consent.Caps, ...]:
    values: dict[str, Any] = {
        "most_machines": 1000,
        "most_hourly_micros": hourly,
        "currency": "EUR",
        "named": "policy",
    }
    return (consent.Caps(**{**values, **more}),)


async def _order(desk: cloud_desk.Desk, name: str = "data", **more: Any) -> resources.Made:
    values: dict[str, Any] = {
        "kind": VOLUME,
        "name": name,
        "infra": "default",
        "connection": await desk.get(),
        "region": "fsn1",
        "size_gigabytes": 100,
    }
    wish = resources.Wish(**{**values, **more})
    return await desk.store.transact(lambda tx: resources.create(tx, wish=wish, asked=desk.asked))


def _price(kind: provider.ChildKind = VOLUME, gigabytes: int | None = 100) -> int:
    found = pricing.estimate("hetzner", kind, gigabytes=gigabytes)
    assert found is not None
    return found.hourly_micros


async def _machine(
    desk: cloud_desk.Desk, *, node: str = "web-1", hourly: int | None, currency: str = "EUR"
) -> None:
    connection = await desk.get()
    await desk.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_machines(machine_id, node_id, connection_id, provider, "
            "operation_id, region, size, image, template, provider_ref, hourly_micros, currency, "
            "ordered_at, ordered_by) VALUES (?, ?, ?, 'hetzner', 'op', 'fsn1', 'cx23', "
            "'debian-12', 't', ?, ?, ?, 0, 'x')",
            *(f"m-{node}", node, connection.connection_id, f"ref-{node}", hourly, currency),
        )
    )


async def test_money_caps_hold_for_what_is_kept_beside_machines(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    await _machine(desk, hourly=5_000)
    caps = _cap(hourly=5_000 + 2 * _price())
    await _order(desk, "one", caps=caps)
    made = await _order(desk, "two", caps=caps)
    assert made.resource.price is not None
    for more in (
        {"kind": VOLUME},
        {"kind": VOLUME, "size_gigabytes": 16_384},
        {"kind": ADDRESS, "size_gigabytes": None},
        {"kind": SNAPSHOT, "size_gigabytes": None, "of": "web-1"},
    ):
        with pytest.raises(reserve.CapReached, match="an hour"):
            await _order(desk, "three", caps=caps, **more)
    assert hetzner.ledger.count("POST /v1/volumes") == 0  # nothing had to be there to count
    await desk.carry_on()
    with pytest.raises(reserve.CapReached, match="an hour"):
        await _order(desk, "three", caps=caps)
    assert hetzner.ledger.count("POST /v1/volumes") == 2


async def test_caps_by_count_hold_for_each_kind_that_is_kept(desk: cloud_desk.Desk) -> None:
    two = _cap(most_machines=2)
    for number in range(2):
        await _order(desk, f"v{number}", caps=two)
        await _order(desk, f"a{number}", kind=ADDRESS, size_gigabytes=None, caps=two)
    with pytest.raises(reserve.CapReached, match="allows 2 volumes, and 2 count"):
        await _order(desk, "v2", caps=two)
    with pytest.raises(reserve.CapReached, match="allows 2 addresses, and 2 count"):
        await _order(desk, "a2", kind=ADDRESS, size_gigabytes=None, caps=two)
    await _order(desk, "v2", caps=_cap(most_machines=2, most_kept=3))


async def test_money_caps_hold_for_many_orders_at_one_moment(desk: cloud_desk.Desk) -> None:
    caps = _cap(hourly=3 * _price())
    asked = await asyncio.gather(
        *(_order(desk, f"v{number}", caps=caps) for number in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, reserve.CapReached) for one in asked) == 7
    assert sum(isinstance(one, resources.Made) for one in asked) == 3


async def test_money_caps_hold_for_what_is_retried(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="resource_limit_exceeded"),
        on="POST /v1/volumes",
    )
    caps = _cap(hourly=_price())
    first = await _order(desk, "first", caps=caps)
    await desk.carry_on()
    assert (await desk.stands(first.operation)).state == "failed"
    second = await _order(desk, "second", caps=caps)  # what was refused is free again

    async def again(tx: contract.Tx, *, regions: Sequence[str] = ("fsn1",)) -> resources.Made:
        return await resources.retry(
            tx,
            operation_id=first.operation.operation_id,
            caps=caps,
            regions=regions,
            asked=desk.asked,
        )

    with pytest.raises(reserve.CapReached, match="an hour"):
        await desk.store.transact(again)
    await desk.carry_on()
    await desk.store.transact(
        lambda tx: resources.delete(tx, resource_id=second.resource.child_id, asked=desk.asked)
    )
    await desk.carry_on()
    with pytest.raises(resources.DoesNotFit, match="region fsn1"):
        await desk.store.transact(functools.partial(again, regions=["hel1"]))
    await desk.store.transact(again)
    await desk.carry_on()
    assert (await desk.stands(first.operation)).state == "done"
    assert len(hetzner.ledger.living_things(desk.installation)) == 1


async def test_a_name_that_was_taken_meanwhile_is_not_retried(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="resource_limit_exceeded"),
        on="POST /v1/volumes",
    )
    first = await _order(desk)
    await desk.carry_on()
    await _order(desk)
    with pytest.raises(resources.NameTaken):
        await desk.store.transact(
            lambda tx: resources.retry(
                tx, operation_id=first.operation.operation_id, asked=desk.asked
            )
        )


async def test_nothing_is_retried_through_a_connection_that_is_forgotten(
    desk: cloud_desk.Desk, hetzner: hetzner_bench.HetznerBench
) -> None:
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.FAIL_CODE, code="resource_limit_exceeded"),
        on="POST /v1/volumes",
    )
    first = await _order(desk)
    await desk.carry_on()
    connection = await desk.get()
    await desk.store.transact(
        lambda tx: connections.remove(tx, connection_id=connection.connection_id)
    )
    with pytest.raises(connections.NoSuchConnection):
        await desk.store.transact(
            lambda tx: resources.retry(
                tx, operation_id=first.operation.operation_id, asked=desk.asked
            )
        )


async def test_a_region_outside_the_policy_takes_no_volume(desk: cloud_desk.Desk) -> None:
    await _machine(desk, hourly=5_000)
    for more in (
        {"kind": VOLUME},
        {"kind": ADDRESS, "size_gigabytes": None},
        {"kind": SNAPSHOT, "size_gigabytes": None, "of": "web-1"},
    ):
        with pytest.raises(resources.DoesNotFit, match="does not allow the region fsn1, but: hel1"):
            await _order(desk, regions=["hel1"], **more)
    await _order(desk, regions=["hel1", "fsn1"])


async def test_what_counts_without_a_price_refuses_more_where_money_is_capped(
    desk: cloud_desk.Desk,
) -> None:
    await _machine(desk, hourly=None, currency="")
    with pytest.raises(reserve.CapReached, match="machine of web-1 costs is not known"):
        await _order(desk, caps=_cap())
    await _order(desk)  # where nothing is capped, nothing has to be known


async def test_currencies_are_not_added_up_as_one(desk: cloud_desk.Desk) -> None:
    await _machine(desk, hourly=5_000, currency="USD")
    with pytest.raises(reserve.CapReached, match="machine of web-1 costs is not known in it"):
        await _order(desk, caps=_cap())
    with pytest.raises(reserve.CapReached, match="price of this volume is not known in it"):
        await _order(desk, caps=_cap(currency="USD"))
    await _machine(desk, node="web-2", hourly=0, currency="USD")  # what costs nothing fits


async def test_where_no_price_is_told_the_estimate_is_billed(
    desk: cloud_desk.Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provisioning.hetzner.reading._times", lambda *_: None)
    made = await _order(desk)
    await desk.carry_on()
    assert (await desk.stands(made.operation)).state == "done"
    found = await desk.store.read(
        lambda tx: costs.total_of(tx, subject_ids=[made.resource.child_id], now=desk.clock.now())
    )
    (total,) = found[made.resource.child_id]
    assert (total.hourly_micros, total.currency) == (_price(), "EUR")
    stands = await desk.store.read(lambda tx: beside.get(tx, resource_id="data"))
    assert stands.price == provider.Price(hourly_micros=_price(), currency="EUR")


@pytest.mark.parametrize("name", CAPPED)
def test_what_is_kept_has_an_estimate_at_each_provider_that_makes_it(name: str) -> None:
    for kind in beside.KINDS:
        found = pricing.estimate(name, kind, gigabytes=10)
        assert found is not None
        assert found.hourly_micros > 0
        assert found.as_of is not None
    assert pricing.estimate(name, VOLUME, gigabytes=None) is None


def test_nothing_is_known_of_a_provider_that_is_none() -> None:
    assert pricing.estimate("nowhere", VOLUME, gigabytes=10) is None
