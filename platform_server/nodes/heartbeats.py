"""What nodes tell of themselves, written down in batches, and read for lists.

A heartbeat is kept in memory by whoever heard it and written with many others: one statement for
up to `BATCH` nodes, so that ten thousand nodes cost the store fifty small transactions in half a
minute. The node's row is touched only where version or capacity have changed. What a machine says
is shown and decides nothing.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import heartbeats, ids, pins, times, versions

BATCH: Final = 200
FLUSH_SECONDS: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One node's newest heartbeat. `version` and `capacity` are None where the row has them."""

    node_id: ids.NodeId
    pin: pins.Pin
    at: datetime.datetime
    content: str
    version: str | None
    capacity: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The last heartbeat as lists use it."""

    at: datetime.datetime
    clock_offset_ms: int
    content: Mapping[str, Any]


def news_of(
    heartbeat: heartbeats.Heartbeat,
    *,
    node_id: ids.NodeId,
    pin: pins.Pin,
    at: datetime.datetime,
    known_version: str,
    known_capacity: str,
) -> News:
    """What is to be written of a heartbeat; the two texts are what the node's row says now."""
    version = well_formed(heartbeat.version)
    capacity = json.dumps(heartbeat.capacity.to_wire(), sort_keys=True)
    return News(
        node_id=node_id,
        pin=pin,
        at=at,
        content=heartbeat.to_bytes().decode(),
        version=version if version != known_version else None,
        capacity=capacity if capacity != known_capacity else None,
    )


def well_formed(version: str) -> str:
    """A version as it may stand in a list, `unknown` for anything out of shape."""
    try:
        versions.parse(version)
    except ValueError:
        return "unknown"
    return version


async def write(tx: contract.Tx, *, news: Sequence[News]) -> None:
    """Writes a batch (at most `BATCH`); an older heartbeat never replaces a newer one."""
    if not news:
        return
    values: list[object] = []
    for one in news:
        values += (one.node_id, clock.to_micros(one.at), one.content)
    await tx.execute(
        "INSERT INTO heartbeats(node_id, at, heartbeat) VALUES "  # noqa: S608 - marks alone
        f"{', '.join('(?, ?, ?)' for _ in news)} ON CONFLICT (node_id) DO UPDATE SET "
        "at = excluded.at, heartbeat = excluded.heartbeat WHERE heartbeats.at < excluded.at",
        *values,
    )
    for one in news:
        if one.version is None and one.capacity is None:
            continue
        await tx.execute(
            "UPDATE nodes SET version = COALESCE(?, version), capacity = COALESCE(?, capacity) "
            "WHERE node_id = ? AND pin = ? AND state <> 'removed'",
            one.version,
            one.capacity,
            one.node_id,
            one.pin,
        )


async def find_last(
    tx: contract.Tx, *, node_ids: Sequence[ids.NodeId]
) -> Mapping[ids.NodeId, Last]:
    """The last heartbeat of each of these nodes (a page at most)."""
    if not node_ids:
        return {}
    rows = await tx.fetch_all(
        "SELECT node_id, at, heartbeat FROM heartbeats "  # noqa: S608 - marks alone
        f"WHERE node_id IN ({', '.join('?' for _ in node_ids)})",
        *node_ids,
    )
    return {ids.NodeId(row["node_id"]): _of_row(row) for row in rows}


def _of_row(row: contract.Row) -> Last:
    at = clock.from_micros(row["at"])
    content: dict[str, Any] = json.loads(row["heartbeat"])
    own = times.from_rfc3339(content["now"])
    return Last(at=at, clock_offset_ms=round((own - at).total_seconds() * 1000), content=content)
