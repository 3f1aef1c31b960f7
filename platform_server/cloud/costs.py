"""What machines and what hangs beside them cost: intervals at one price each, and their sums.

An interval begins when a provider was asked for something that costs, or when its price changed,
and ends when the provider has confirmed that it is gone. Nothing else ends it: what is booting,
unknown, failed, switched off or being deleted costs. Sums are made by the second; a currency is
never converted.

Known limit: providers round up to hours and cap months, and bill traffic; so a bill may differ from
these sums, most where machines live for minutes.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.store import contract
from provisioning import contract as provider_contract
from runtime_kit import clock as clock_kit

MOST_SUBJECTS: Final = 1000
_SPENT: Final = (
    "CAST(SUM(((COALESCE(until, ?) - since) / 1000000) * hourly_micros) / 3600 AS BIGINT)"
)
_HOURLY: Final = "CAST(SUM(CASE WHEN until IS NULL THEN hourly_micros ELSE 0 END) AS BIGINT)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Something that costs from now on. `what` is a word: `machine`, `volume`, `address`."""

    subject_id: str
    connection_id: str
    infra: str
    what: str
    price: provider_contract.Price


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What was spent so far in one currency, and what an hour costs now."""

    currency: str
    spent_micros: int
    hourly_micros: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing that costs or has cost; `until` is None while it does."""

    subject_id: str
    connection_id: str
    what: str
    since: datetime.datetime
    until: datetime.datetime | None
    total: Total


async def begin(tx: contract.Tx, *, charge: Charge, since: datetime.datetime) -> None:
    """It costs from `since` on. Where it costs already: nothing changes but the price, from then.

    May be repeated.
    """
    moment = clock_kit.to_micros(since)
    present = await tx.fetch_one(
        "SELECT since, hourly_micros, currency FROM cloud_charges "
        "WHERE subject_id = ? AND until IS NULL",
        charge.subject_id,
    )
    if present is not None:
        same = (charge.price.hourly_micros, charge.price.currency)
        if (present["hourly_micros"], present["currency"]) == same:
            return
        if present["since"] >= moment:  # two prices of one moment: the later word counts
            await tx.execute(
                "UPDATE cloud_charges SET hourly_micros = ?, currency = ? "
                "WHERE subject_id = ? AND since = ?",
                *same,
                charge.subject_id,
                present["since"],
            )
            return
        await end(tx, subject_id=charge.subject_id, until=since)
    await tx.execute(
        "INSERT INTO cloud_charges(subject_id, since, until, connection_id, infra, hourly_micros, "
        "currency, what) VALUES (?, ?, NULL, ?, ?, ?, ?, ?) "
        "ON CONFLICT (subject_id, since) DO UPDATE SET until = NULL, "
        "hourly_micros = excluded.hourly_micros, currency = excluded.currency",
        charge.subject_id,
        moment,
        charge.connection_id,
        charge.infra,
        charge.price.hourly_micros,
        charge.price.currency,
        charge.what,
    )


async def end(tx: contract.Tx, *, subject_id: str, until: datetime.datetime) -> bool:
    """The provider has confirmed that it is gone; says whether it did cost. May be repeated."""
    return bool(
        await tx.execute(
            "UPDATE cloud_charges SET until = CASE WHEN since > ? THEN since ELSE ? END "
            "WHERE subject_id = ? AND until IS NULL",
            *(clock_kit.to_micros(until),) * 2,
            subject_id,
        )
    )


async def total_of(
    tx: contract.Tx, *, subject_ids: Sequence[str], now: datetime.datetime
) -> Mapping[str, Sequence[Total]]:
    """The running totals of these subjects (a page at most), one for each currency."""
    if not subject_ids:
        return {}
    marks = ", ".join("?" for _ in subject_ids)
    rows = await tx.fetch_all(
        f"SELECT subject_id AS whose, currency, {_SPENT} AS spent, {_HOURLY} AS hourly "  # noqa: S608 - marks
        f"FROM cloud_charges WHERE subject_id IN ({marks}) "
        "GROUP BY subject_id, currency ORDER BY subject_id, currency",
        clock_kit.to_micros(now),
        *subject_ids,
    )
    return _by_owner(rows)


async def total_by_connection(
    tx: contract.Tx, *, now: datetime.datetime, infra: str | None = None
) -> Mapping[str, Sequence[Total]]:
    """The running total of every connection, one for each currency."""
    rows = await tx.fetch_all(
        f"SELECT connection_id AS whose, currency, {_SPENT} AS spent, {_HOURLY} AS hourly "  # noqa: S608 - constants
        "FROM cloud_charges WHERE (? = '' OR infra = ?) "
        "GROUP BY connection_id, currency ORDER BY connection_id, currency LIMIT ?",
        clock_kit.to_micros(now),
        infra or "",
        infra or "",
        MOST_SUBJECTS,
    )
    return _by_owner(rows)


async def list_subjects(
    tx: contract.Tx,
    *,
    now: datetime.datetime,
    limit: int,
    connection_id: str | None = None,
    infra: str | None = None,
) -> Sequence[Subject]:
    """What costs or has cost, those first that cost longest."""
    rows = await tx.fetch_all(
        f"SELECT subject_id, connection_id, what, currency, MIN(since) AS begun, "  # noqa: S608 - constants
        "CASE WHEN COUNT(*) = COUNT(until) THEN MAX(until) END AS ended, "
        f"{_SPENT} AS spent, {_HOURLY} AS hourly FROM cloud_charges "
        "WHERE (? = '' OR connection_id = ?) AND (? = '' OR infra = ?) "
        "GROUP BY subject_id, connection_id, what, currency ORDER BY begun, subject_id LIMIT ?",
        clock_kit.to_micros(now),
        *(connection_id or "",) * 2,
        *(infra or "",) * 2,
        min(limit, MOST_SUBJECTS),
    )
    return [
        Subject(
            subject_id=row["subject_id"],
            connection_id=row["connection_id"],
            what=row["what"],
            since=clock_kit.from_micros(row["begun"]),
            until=None if row["ended"] is None else clock_kit.from_micros(row["ended"]),
            total=_total(row),
        )
        for row in rows
    ]


def _by_owner(rows: Sequence[contract.Row]) -> Mapping[str, Sequence[Total]]:
    found: dict[str, list[Total]] = {}
    for row in rows:
        found.setdefault(row["whose"], []).append(_total(row))
    return found


def _total(row: contract.Row) -> Total:
    return Total(
        currency=row["currency"],
        spent_micros=int(row["spent"] or 0),
        hourly_micros=int(row["hourly"] or 0),
    )
