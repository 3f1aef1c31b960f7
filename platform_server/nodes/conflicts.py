"""Where a node's identity was used by somebody who is not the node that runs.

Written down by address, so that a copy that tries again and again is one row that counts. The first
use from an address is told as an event and stands in the action log; the others only count. The
node that runs stays what it is: `reason_of` is what lists show beside it.

Known limit: machines behind one address translation are one address here.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.audit import actions, events
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, times

EVENT: Final = "node.identity-conflict"
MOST_ADDRESSES: Final = 16  # of one node: whoever has the key may come from anywhere
SHOWN_FOR: Final = datetime.timedelta(days=1)
_OTHERS: Final = "elsewhere"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The uses from one address."""

    node_id: ids.NodeId
    address: str
    first_at: datetime.datetime
    last_at: datetime.datetime
    count: int


async def record(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    infra: str,
    address: str,
    running_at: str | None,
    environment: str,
    now: datetime.datetime,
) -> Conflict:
    """Counts one refused use; `running_at` is where the node that stays has its session."""
    await tx.lock(f"conflict:{node_id}")
    moment = clock.to_micros(now)
    kept = await _count(tx, node_id=node_id, address=address, moment=moment)
    if kept is not None:
        return kept
    known = await tx.fetch_one(
        "SELECT COUNT(*) AS n FROM identity_conflicts WHERE node_id = ?", node_id
    )
    if known is not None and int(known["n"]) >= MOST_ADDRESSES:
        address = _OTHERS
        kept = await _count(tx, node_id=node_id, address=address, moment=moment)
        if kept is not None:
            return kept
    await tx.execute(
        "INSERT INTO identity_conflicts(node_id, address, first_at, last_at) VALUES (?, ?, ?, ?)",
        node_id,
        address,
        moment,
        moment,
    )
    shown = {"address": address, "running_at": running_at}
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=f"node:{node_id}",
            action=EVENT,
            target=node_id,
            infra=infra,
            environment=environment,
            details=shown,
        ),
    )
    await events.append(tx, at=now, kind=EVENT, subject=node_id, infra=infra, data=shown)
    return Conflict(node_id=node_id, address=address, first_at=now, last_at=now, count=1)


async def _count(
    tx: contract.Tx, *, node_id: ids.NodeId, address: str, moment: int
) -> Conflict | None:
    row = await tx.fetch_one(
        "UPDATE identity_conflicts SET last_at = ?, count = count + 1 "
        "WHERE node_id = ? AND address = ? RETURNING node_id, address, first_at, last_at, count",
        moment,
        node_id,
        address,
    )
    return None if row is None else _of_row(row)


async def find_recent(
    tx: contract.Tx, *, node_ids: Sequence[ids.NodeId], now: datetime.datetime
) -> Mapping[ids.NodeId, Conflict]:
    """The newest conflict of each of these nodes (a page at most), of the last day."""
    if not node_ids:
        return {}
    rows = await tx.fetch_all(
        "SELECT node_id, address, first_at, last_at, count FROM identity_conflicts "  # noqa: S608
        f"WHERE last_at > ? AND node_id IN ({', '.join('?' for _ in node_ids)}) ORDER BY last_at",
        clock.to_micros(now - SHOWN_FOR),
        *node_ids,
    )
    return {ids.NodeId(row["node_id"]): _of_row(row) for row in rows}


def reason_of(conflict: Conflict) -> str:
    """What stands in the list beside a node whose identity somebody else has used."""
    return (
        f"generation-conflict: also used from {conflict.address} "
        f"since {times.to_rfc3339(conflict.first_at)}"
    )


def _of_row(row: contract.Row) -> Conflict:
    return Conflict(
        node_id=ids.NodeId(row["node_id"]),
        address=row["address"],
        first_at=clock.from_micros(row["first_at"]),
        last_at=clock.from_micros(row["last_at"]),
        count=int(row["count"]),
    )
