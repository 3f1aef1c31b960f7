"""Sessions as rows: which engine holds the connection of a node that dials out.

A session is opened by the write that raises the node's generation, and by that alone: of two
openings that both saw the same generation, one write wins. A row whose link has ended stays, with
the moment it was last heard; `absence` decides what becomes of it. Not for the links themselves:
those are the gateway's.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.nodes import engines, renewal, states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, pins

PAGE: Final = 1000
_LOOK: Final = (
    "SELECT n.node_id, n.infra, n.state, n.connectivity, n.url, n.generation, n.adopted_epoch, "
    "n.pin, n.certificate_sha256, n.next_pin, n.next_certificate_sha256, n.former_pin, "
    "n.version, n.capacity, s.session_id, s.engine_id, s.address, s.instance, s.started_at, "
    "s.lost_at, e.seen_at FROM nodes n LEFT JOIN sessions s ON s.node_id = n.node_id "
    "LEFT JOIN engines e ON e.engine_id = s.engine_id WHERE n.node_id = ?"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The session that a node has or had last.

    `is_held`: not lost, by an engine that was seen of late. That is for the other engines: whoever
    holds sessions itself knows its own from memory, whatever clocks and the store's rows say.
    """

    session_id: str
    engine_id: str
    address: str
    instance: str
    started_at: datetime.datetime
    is_held: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that an opening is judged by, as it is at one moment."""

    node_id: ids.NodeId
    infra: str
    state: states.State
    connectivity: str
    url: str | None
    generation: int
    adopted_epoch: int
    pin: pins.Pin
    certificate_sha256: str
    next_pin: pins.Pin | None
    next_certificate_sha256: str | None
    former_pin: pins.Pin | None
    version: str
    capacity: str
    session: Session | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A session to be opened. `former_generation` is what the decision rested on."""

    node_id: ids.NodeId
    session_id: str
    engine_id: str
    address: str
    instance: str
    former_generation: int
    generation: int
    certificate_sha256: str
    version: str
    adopted_epoch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The session stands; the node's row as it is then."""

    state: states.State
    pin: pins.Pin
    promoted: bool


async def look(tx: contract.Tx, *, node_id: ids.NodeId, now: datetime.datetime) -> Standing | None:
    """The node and its session, in one statement; None where the node is unknown."""
    row = await tx.fetch_one(_LOOK, node_id)
    if row is None:
        return None
    seen_at = row["seen_at"]
    engine_runs = seen_at is not None and seen_at >= engines.alive_since(now)
    return Standing(
        node_id=ids.NodeId(row["node_id"]),
        infra=row["infra"],
        state=states.State(row["state"]),
        connectivity=row["connectivity"],
        url=row["url"],
        generation=int(row["generation"]),
        adopted_epoch=int(row["adopted_epoch"]),
        pin=pins.Pin(row["pin"]),
        certificate_sha256=row["certificate_sha256"],
        next_pin=row["next_pin"],
        next_certificate_sha256=row["next_certificate_sha256"],
        former_pin=row["former_pin"],
        version=row["version"],
        capacity=row["capacity"],
        session=None
        if row["session_id"] is None
        else Session(
            session_id=row["session_id"],
            engine_id=row["engine_id"],
            address=row["address"],
            instance=row["instance"],
            started_at=clock.from_micros(row["started_at"]),
            is_held=engine_runs and row["lost_at"] is None,
        ),
    )


async def open_one(
    tx: contract.Tx, *, opening: Opening, environment: str, now: datetime.datetime
) -> Opened | None:
    """Raises the generation and writes the session; promotes the next certificate if it was used.

    None when the node has moved on since the decision: another opening, a removal, another key.
    """
    row = await tx.fetch_one(
        "UPDATE nodes SET generation = ?, adopted_epoch = COALESCE(?, adopted_epoch), version = ? "
        "WHERE node_id = ? AND generation = ? AND state <> 'removed' "
        "AND (certificate_sha256 = ? OR next_certificate_sha256 = ?) "
        "RETURNING state, pin, certificate_sha256",
        opening.generation,
        opening.adopted_epoch,
        opening.version,
        opening.node_id,
        opening.former_generation,
        opening.certificate_sha256,
        opening.certificate_sha256,
    )
    if row is None:
        return None
    promoted = None
    if row["certificate_sha256"] != opening.certificate_sha256:
        promoted = await renewal.promote(
            tx,
            node_id=opening.node_id,
            certificate_sha256=opening.certificate_sha256,
            environment=environment,
            now=now,
        )
    await tx.execute(
        "INSERT INTO sessions(node_id, session_id, engine_id, address, instance, generation, "
        "started_at) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (node_id) DO UPDATE SET "
        "session_id = excluded.session_id, engine_id = excluded.engine_id, "
        "address = excluded.address, instance = excluded.instance, "
        "generation = excluded.generation, started_at = excluded.started_at, lost_at = NULL",
        opening.node_id,
        opening.session_id,
        opening.engine_id,
        opening.address,
        opening.instance,
        opening.generation,
        clock.to_micros(now),
    )
    return Opened(
        state=states.State(row["state"]),
        pin=pins.Pin(row["pin"]) if promoted is None else promoted,
        promoted=promoted is not None,
    )


async def lose(tx: contract.Tx, *, lost: Mapping[str, datetime.datetime]) -> int:
    """Writes when each of these sessions was last heard; one that was replaced is left alone."""
    changed = 0
    for session_id, heard_at in lost.items():
        changed += await tx.execute(
            "UPDATE sessions SET lost_at = ? WHERE session_id = ? AND lost_at IS NULL",
            clock.to_micros(heard_at),
            session_id,
        )
    return changed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """How the store sees a session that an engine believes to hold."""

    session_id: str | None  # None: it is lost, or the node has none
    state: states.State


async def stand(tx: contract.Tx, *, node_ids: Sequence[ids.NodeId]) -> Mapping[ids.NodeId, Still]:
    """What stands of these nodes (at most a batch); removed or unknown ones are left out."""
    rows = await tx.fetch_all(
        "SELECT n.node_id, n.state, s.session_id, s.lost_at FROM nodes n "  # noqa: S608 - marks
        "LEFT JOIN sessions s ON s.node_id = n.node_id "
        f"WHERE n.state <> 'removed' AND n.node_id IN ({', '.join('?' for _ in node_ids)})",
        *node_ids,
    )
    return {
        ids.NodeId(row["node_id"]): Still(
            session_id=row["session_id"] if row["lost_at"] is None else None,
            state=states.State(row["state"]),
        )
        for row in rows
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A session that an engine holds, by the store's word."""

    node_id: ids.NodeId
    session_id: str
    started_at: datetime.datetime


async def list_held(tx: contract.Tx, *, engine_id: str, after: str) -> Sequence[Held]:
    """At most `PAGE` of the engine's sessions by node id, from behind `after`."""
    rows = await tx.fetch_all(
        "SELECT node_id, session_id, started_at FROM sessions WHERE engine_id = ? "
        "AND lost_at IS NULL AND node_id > ? ORDER BY node_id LIMIT ?",
        engine_id,
        after,
        PAGE,
    )
    return [
        Held(
            node_id=ids.NodeId(row["node_id"]),
            session_id=row["session_id"],
            started_at=clock.from_micros(row["started_at"]),
        )
        for row in rows
    ]


async def forget(tx: contract.Tx, *, node_id: ids.NodeId) -> None:
    """Removes what sessions have left of a node: its tombstone, or another key, ends them."""
    await tx.execute("DELETE FROM sessions WHERE node_id = ?", node_id)
    await tx.execute("DELETE FROM heartbeats WHERE node_id = ?", node_id)
    await tx.execute("DELETE FROM identity_conflicts WHERE node_id = ?", node_id)
