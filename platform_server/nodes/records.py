"""Nodes as rows and as values.

Not for deciding anything: `states` says what may follow, `register` and `registry` do it.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.nodes import states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, pins

COLUMNS: Final = (
    "node_id, infra, state, scheduling, connectivity, certificate_pem, certificate_sha256, pin, "
    "generation, version, url, labels, reported_labels, roles, capacity, enrollment_id, "
    "enrolled_at, first_ready_at, last_seen_at, probe_answered_at, clock_offset_ms, reason, "
    "removed_at, provider_state"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine that enrolled under this id."""

    node_id: ids.NodeId
    infra: str
    state: states.State
    scheduling: str
    connectivity: str
    certificate_pem: str = dataclasses.field(repr=False)
    certificate_sha256: str
    pin: pins.Pin
    generation: int
    version: str
    url: str | None
    labels: Mapping[str, str]
    reported_labels: Mapping[str, str]
    roles: Sequence[str]
    capacity: Mapping[str, int]
    enrollment_id: ids.EnrollmentId
    enrolled_at: datetime.datetime
    first_ready_at: datetime.datetime | None
    last_seen_at: datetime.datetime | None
    probe_answered_at: datetime.datetime | None
    clock_offset_ms: int | None
    reason: str | None
    removed_at: datetime.datetime | None
    provider_state: str | None


async def find(tx: contract.Tx, *, node_id: ids.NodeId) -> Node | None:
    """The node of that id, tombstones included."""
    row = await tx.fetch_one(
        f"SELECT {COLUMNS} FROM nodes WHERE node_id = ?",  # noqa: S608 - a constant
        node_id,
    )
    return None if row is None else of_row(row)


def of_row(row: contract.Row) -> Node:
    """Reads a row."""
    return Node(
        node_id=ids.NodeId(row["node_id"]),
        infra=row["infra"],
        state=states.State(row["state"]),
        scheduling=row["scheduling"],
        connectivity=row["connectivity"],
        certificate_pem=row["certificate_pem"],
        certificate_sha256=row["certificate_sha256"],
        pin=pins.Pin(row["pin"]),
        generation=int(row["generation"]),
        version=row["version"],
        url=row["url"],
        labels=json.loads(row["labels"]),
        reported_labels=json.loads(row["reported_labels"]),
        roles=json.loads(row["roles"]),
        capacity=json.loads(row["capacity"]),
        enrollment_id=ids.EnrollmentId(row["enrollment_id"]),
        enrolled_at=clock.from_micros(row["enrolled_at"]),
        first_ready_at=_moment(row["first_ready_at"]),
        last_seen_at=_moment(row["last_seen_at"]),
        probe_answered_at=_moment(row["probe_answered_at"]),
        clock_offset_ms=row["clock_offset_ms"],
        reason=row["reason"],
        removed_at=_moment(row["removed_at"]),
        provider_state=row["provider_state"],
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
