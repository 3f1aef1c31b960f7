"""Costs over either store: intervals at a price, their sums, and what ends them."""

import datetime

from platform_server.cloud import costs
from platform_server.store import contract
from provisioning import contract as provider_contract

START = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def _charge(subject: str = "m1", *, hourly: int = 10_000, connection: str = "c1") -> costs.Charge:
    return costs.Charge(
        subject_id=subject,
        connection_id=connection,
        infra="default",
        what="machine",
        price=provider_contract.Price(hourly_micros=hourly, currency="EUR"),
    )


async def _begin(store: contract.Store, charge: costs.Charge, at: datetime.datetime) -> None:
    await store.transact(lambda tx: costs.begin(tx, charge=charge, since=at))


async def _end(store: contract.Store, subject: str, at: datetime.datetime) -> bool:
    return await store.transact(lambda tx: costs.end(tx, subject_id=subject, until=at))


async def _total(store: contract.Store, subject: str, at: datetime.datetime) -> costs.Total:
    found = await store.read(lambda tx: costs.total_of(tx, subject_ids=[subject], now=at))
    (total,) = found[subject]
    return total


async def test_spend_shown_is_the_sum_of_lifetimes_times_price(store: contract.Store) -> None:
    lifetimes = {"m1": (0, 3, 10_000), "m2": (1, 2, 7_000), "m3": (2, 10, 123_456)}
    for subject, (since, until, hourly) in lifetimes.items():
        await _begin(store, _charge(subject, hourly=hourly), START + since * HOUR)
        await _end(store, subject, START + until * HOUR)
    found = await store.read(lambda tx: costs.total_by_connection(tx, now=START + 100 * HOUR))
    expected = sum((until - since) * hourly for since, until, hourly in lifetimes.values())
    assert found == {"c1": [costs.Total(currency="EUR", spent_micros=expected, hourly_micros=0)]}


async def test_what_is_not_confirmed_gone_goes_on_costing(store: contract.Store) -> None:
    await _begin(store, _charge(), START)
    assert await _total(store, "m1", START + 5 * HOUR) == costs.Total(
        currency="EUR", spent_micros=50_000, hourly_micros=10_000
    )
    assert await _end(store, "m1", START + 6 * HOUR)
    assert not await _end(store, "m1", START + 7 * HOUR)
    assert (await _total(store, "m1", START + 9 * HOUR)).spent_micros == 60_000


async def test_a_changed_price_begins_an_interval_and_the_same_one_none(
    store: contract.Store,
) -> None:
    await _begin(store, _charge(), START)
    await _begin(store, _charge(), START + HOUR)
    await _begin(store, _charge(hourly=20_000), START + 2 * HOUR)
    await _begin(store, _charge(hourly=30_000), START + 2 * HOUR)
    assert await _total(store, "m1", START + 3 * HOUR) == costs.Total(
        currency="EUR", spent_micros=50_000, hourly_micros=30_000
    )
    (subject,) = await store.read(
        lambda tx: costs.list_subjects(tx, now=START + 3 * HOUR, limit=10)
    )
    assert (subject.since, subject.until, subject.what) == (START, None, "machine")


async def test_years_of_a_dear_machine_are_summed_without_overflow(store: contract.Store) -> None:
    await _begin(store, _charge(hourly=98_320_000), START)
    ten_years = datetime.timedelta(days=3650)
    total = await _total(store, "m1", START + ten_years)
    assert total.spent_micros == 98_320_000 * 24 * 3650


async def test_an_end_before_the_beginning_costs_nothing(store: contract.Store) -> None:
    await _begin(store, _charge(), START)
    await _end(store, "m1", START - HOUR)
    assert (await _total(store, "m1", START + HOUR)).spent_micros == 0
