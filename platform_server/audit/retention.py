"""Removes the old ends of the action log and of the events.

The newest row of each always stays, since the next number is counted from it. Of the action log
the last removed entry's number and hash are kept as the chain's anchor, so that what is left can
still be verified from there.

The clock is believed by a day a run at most: a start with a clock a year ahead must not cost the
log, and a Platform that was off for long catches up within as many runs.
"""

import dataclasses
import datetime
import json
from typing import Final

from platform_server.store import contract
from runtime_kit import clock as clock_kit

_ANCHOR: Final = "action_log_anchor"
_LOCK: Final = "audit-retention"
_BELIEVED: Final = "audit_retention_time"
_STEP: Final = datetime.timedelta(days=1)
BATCH: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The last entry that was removed."""

    seq: int
    hash: bytes


async def find_anchor(tx: contract.Tx) -> Anchor | None:
    """Where the chain begins, if its first entries were removed."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", _ANCHOR)
    if row is None:
        return None
    content = json.loads(row["value"])
    return Anchor(seq=int(content["seq"]), hash=bytes.fromhex(content["hash"]))


async def purge(
    tx: contract.Tx, *, now: datetime.datetime, action_days: int, event_days: int
) -> int:
    """Removes at most a thousand rows of each; gives how many."""
    await tx.lock(_LOCK)
    now = await _believe(tx, now=now)
    removed = await _purge_actions(tx, before=now - datetime.timedelta(days=action_days))
    return removed + await tx.execute(
        "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE at < ? "
        "AND seq < (SELECT MAX(seq) FROM events) ORDER BY seq LIMIT ?)",
        clock_kit.to_micros(now - datetime.timedelta(days=event_days)),
        BATCH,
    )


async def _believe(tx: contract.Tx, *, now: datetime.datetime) -> datetime.datetime:
    """The time to judge by: now, or a day after the last run's where the clock has leapt."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", _BELIEVED)
    before = now if row is None else clock_kit.from_micros(int(row["value"]))
    believed = min(now, before + _STEP)
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _BELIEVED,
        str(clock_kit.to_micros(max(before, believed))),
    )
    return believed


async def _purge_actions(tx: contract.Tx, *, before: datetime.datetime) -> int:
    # up to the first entry that is young enough: an older one behind it stays, the chain has no gap
    young = await tx.fetch_one(
        "SELECT COALESCE((SELECT MIN(seq) FROM action_log WHERE at >= ?), "
        "(SELECT MAX(seq) FROM action_log)) AS seq",
        clock_kit.to_micros(before),
    )
    if young is None or young["seq"] is None:
        return 0
    first = await tx.fetch_one("SELECT MIN(seq) AS seq FROM action_log")
    if first is None or first["seq"] is None:
        return 0
    last_gone = min(int(young["seq"]) - 1, int(first["seq"]) + BATCH - 1)
    row = await tx.fetch_one("SELECT hash FROM action_log WHERE seq = ?", last_gone)
    if row is None:
        return 0
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _ANCHOR,
        json.dumps({"seq": last_gone, "hash": bytes(row["hash"]).hex()}),
    )
    return await tx.execute("DELETE FROM action_log WHERE seq <= ?", last_gone)
