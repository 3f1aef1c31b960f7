"""What lists show of nodes beside their rows: the last heartbeat, and conflicts over an identity.

Read for one page at a time. Not for what follows from any of it.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from platform_server.nodes import conflicts, heartbeats
from platform_server.store import contract
from wire_protocol import ids


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Of one node; all empty for one that says nothing and that nobody copies."""

    heartbeat_at: datetime.datetime | None = None
    clock_offset_ms: int | None = None
    conflict: str | None = None
    mesh: Mapping[str, Any] | None = None


async def find(
    tx: contract.Tx, *, node_ids: Sequence[ids.NodeId], now: datetime.datetime
) -> Mapping[ids.NodeId, Told]:
    """What is told of these nodes (a page at most)."""
    last = await heartbeats.find_last(tx, node_ids=node_ids)
    flagged = await conflicts.find_recent(tx, node_ids=node_ids, now=now)
    return {
        node_id: Told(
            heartbeat_at=last[node_id].at if node_id in last else None,
            clock_offset_ms=last[node_id].clock_offset_ms if node_id in last else None,
            mesh=last[node_id].content.get("mesh") if node_id in last else None,
            conflict=conflicts.reason_of(flagged[node_id]) if node_id in flagged else None,
        )
        for node_id in {*last, *flagged}
    }
