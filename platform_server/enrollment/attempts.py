"""The capped log of enrollment attempts (Z-11, Z-12).

Holds an outcome, a reason, a version and a node id if that was well formed; never a token, a
certificate or an address. Since strangers write here, repeats fold into a count, and entries of
the outcomes that a stranger can cause are capped by number and age. What only the holder of a good
token can cause is not capped; it folds by its node, so that such a holder adds one entry an hour
and no more, whatever version he claims. What the limiter stopped is not recorded at all.
"""

import dataclasses
import datetime
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.store import contract
from runtime_kit import clock

FOLD_WITHIN: Final = datetime.timedelta(hours=1)  # later repeats are news again


_COLUMNS: Final = "attempt_id, outcome, reason, node_id, version, count, first_at, last_at, infra"


class Outcome(enum.StrEnum):
    """How an attempt ended."""

    ENROLLED = "enrolled"
    REFUSED = "refused"
    WORKER_NEWER = "worker-newer"
    NODE_EXISTS = "node-exists"
    INVALID = "invalid"


_CAPPED: Final = (Outcome.REFUSED, Outcome.INVALID)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """How many entries of `refused` and `invalid` are kept, and for how long."""

    entries: int = 500
    days: int = 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One line: when it happened first and last, and how often."""

    attempt_id: int
    outcome: Outcome
    reason: str | None
    node_id: str | None
    version: str | None
    count: int
    first_at: datetime.datetime
    last_at: datetime.datetime
    infra: str


async def record(
    tx: contract.Tx,
    *,
    outcome: Outcome,
    reason: str | None,
    node_id: str | None,
    version: str | None,
    infra: str,
    now: datetime.datetime,
    cap: Cap,
) -> bool:
    """Writes the attempt down, or counts it onto the entry it repeats; True for a new entry.

    An entry that goes uncapped counts other versions too, and shows the last.
    """
    moment = clock.to_micros(now)
    same: dict[str, str | None] = {"outcome": outcome.value, "reason": reason or ""}
    same["node_id"] = node_id
    if outcome in _CAPPED:
        same["version"] = version
    if outcome is not Outcome.ENROLLED:
        if await _fold(tx, same=same, version=version, moment=moment):
            return False
        # of many that come at once on several engines, one writes the entry and the others count
        await tx.lock(f"attempt {' '.join(value or '' for value in same.values())}")
        if tx.dialect is not contract.Dialect.SQLITE and await _fold(
            tx, same=same, version=version, moment=moment
        ):
            return False
    await tx.execute(
        "INSERT INTO enrollment_attempts"
        "(outcome, reason, node_id, version, count, first_at, last_at, infra) "
        "VALUES (?, ?, ?, ?, 1, ?, ?, ?)",
        outcome.value,
        reason or "",
        node_id,
        version,
        moment,
        moment,
        infra,
    )
    if outcome in _CAPPED:
        await _drop_oldest(tx, keep=cap.entries)
    return True


async def _fold(
    tx: contract.Tx, *, same: Mapping[str, str | None], version: str | None, moment: int
) -> bool:
    wheres = " AND ".join(
        f"{column} IS NULL" if value is None else f"{column} = ?" for column, value in same.items()
    )
    changed = await tx.execute(
        "UPDATE enrollment_attempts SET count = count + 1, version = ?, "  # noqa: S608 - our columns
        "last_at = CASE WHEN last_at > ? THEN last_at ELSE ? END WHERE attempt_id = ("
        f"SELECT attempt_id FROM enrollment_attempts WHERE {wheres} "
        "AND last_at > ? ORDER BY attempt_id DESC LIMIT 1)",
        version,
        moment,
        moment,
        *(value for value in same.values() if value is not None),
        moment - int(FOLD_WITHIN.total_seconds() * 1_000_000),
    )
    return changed > 0


async def _drop_oldest(tx: contract.Tx, *, keep: int) -> None:
    await tx.execute(
        "DELETE FROM enrollment_attempts WHERE outcome IN ('refused', 'invalid') "
        "AND attempt_id <= (SELECT attempt_id FROM enrollment_attempts "
        "WHERE outcome IN ('refused', 'invalid') "
        # `+ 0` keeps the planner on the index by outcome: by id it would read every node's entry
        "ORDER BY attempt_id + 0 DESC LIMIT 1 OFFSET ?)",
        keep,
    )


async def purge(tx: contract.Tx, *, now: datetime.datetime, cap: Cap) -> int:
    """Forgets refused and invalid entries that are too old; gives how many."""
    oldest = clock.to_micros(now - datetime.timedelta(days=cap.days))
    return await tx.execute(
        # `+ 0`, as above: by age it would read every old entry of a node that enrolled
        "DELETE FROM enrollment_attempts "
        "WHERE outcome IN ('refused', 'invalid') AND last_at + 0 < ?",
        oldest,
    )


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    infra: str | None = None,
    after: tuple[int, int] | None = None,
) -> Sequence[Attempt]:
    """At most `limit` entries, the last to happen first; `after` is the last one seen."""
    wheres: list[str] = []
    values: list[object] = []
    if infra is not None:
        wheres.append("infra = ?")
        values.append(infra)
    if after is not None:
        wheres.append("(last_at < ? OR (last_at = ? AND attempt_id < ?))")
        values += [after[0], after[0], after[1]]
    where = f"WHERE {' AND '.join(wheres)} " if wheres else ""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM enrollment_attempts {where}"  # noqa: S608 - constants
        "ORDER BY last_at DESC, attempt_id DESC LIMIT ?",
        *values,
        limit,
    )
    return [
        Attempt(
            attempt_id=int(row["attempt_id"]),
            outcome=Outcome(row["outcome"]),
            reason=row["reason"] or None,
            node_id=row["node_id"],
            version=row["version"],
            count=int(row["count"]),
            first_at=clock.from_micros(row["first_at"]),
            last_at=clock.from_micros(row["last_at"]),
            infra=row["infra"],
        )
        for row in rows
    ]


def place_of(attempt: Attempt) -> tuple[int, int]:
    """Where the entry stands in the list, for the next page's `after`."""
    return clock.to_micros(attempt.last_at), attempt.attempt_id
