"""What the Platform's interface has seen, written down: handshakes, and who came or fell silent.

A change of state is an event; that a node goes on shaking hands every two minutes is one row of a
batch. Each write is conditional on the key it was seen with.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.audit import events
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids

BATCH: Final = 200
UP: Final = "up"
SILENT: Final = "silent"
WAITING: Final = "waiting"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One node's news: a newer handshake, or that it fell silent."""

    node_id: ids.NodeId
    public_key: str
    state: str
    handshake_at: datetime.datetime | None


async def write(tx: contract.Tx, *, sightings: Sequence[Sighting], now: datetime.datetime) -> None:
    """Writes at most `BATCH` of them."""
    for one in sightings:
        row = await tx.fetch_one(
            "SELECT m.state, n.infra FROM mesh_members AS m JOIN nodes AS n "
            "ON n.node_id = m.node_id WHERE m.node_id = ? AND m.public_key = ?",
            one.node_id,
            one.public_key,
        )
        if row is None:
            continue
        changed = await tx.execute(
            "UPDATE mesh_members SET state = ?, handshake_at = COALESCE(?, handshake_at), "
            "updated_at = ? WHERE node_id = ? AND public_key = ? AND state = ?",
            one.state,
            None if one.handshake_at is None else clock.to_micros(one.handshake_at),
            clock.to_micros(now),
            one.node_id,
            one.public_key,
            row["state"],
        )
        if changed and row["state"] != one.state:
            await events.append(
                tx,
                at=now,
                kind=f"node.mesh-{one.state}",
                subject=one.node_id,
                infra=row["infra"],
            )
