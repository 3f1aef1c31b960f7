"""Enrollments as rows and as values, and the questions that are asked about them.

A record never holds the token, only its hash, and the hash never prints. Lists are pages, newest
first.
"""

import dataclasses
import datetime
import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.store import contract
from platform_server.tokens import label_sql, states
from runtime_kit import clock
from wire_protocol import ids

COLUMNS: Final = (
    "enrollment_id, node_id, infra, state, token_hash, sources, labels, reenroll, created_at, "
    "created_by, expires_at, consumed_at, consumed_pin, ended_at"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enrollment:
    """One issued credential for one node id, and what became of it."""

    enrollment_id: ids.EnrollmentId
    node_id: ids.NodeId
    infra: str
    state: states.State
    token_hash: bytes = dataclasses.field(repr=False)
    sources: tuple[str, ...]
    labels: Mapping[str, str]
    reenroll: bool
    created_at: datetime.datetime
    created_by: str
    expires_at: datetime.datetime
    consumed_at: datetime.datetime | None
    consumed_pin: str | None
    ended_at: datetime.datetime | None

    def state_at(self, moment: datetime.datetime) -> states.State:
        """The state as it is meant: a pending row whose time has passed has expired.

        The sweep writes that down later; nothing may depend on when.
        """
        if self.state is states.State.PENDING and self.expires_at <= moment:
            return states.after(self.state, states.Event.EXPIRE)
        return self.state

    def admits(self, address: str | None) -> bool:
        """Whether the caller's address lies in the networks the token is bound to."""
        if not self.sources:
            return True
        if address is None:
            return False
        try:
            caller = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(caller, ipaddress.IPv6Address) and caller.ipv4_mapped is not None:
            caller = caller.ipv4_mapped
        return any(caller in ipaddress.ip_network(source) for source in self.sources)


async def find(tx: contract.Tx, *, enrollment_id: ids.EnrollmentId | str) -> Enrollment | None:
    """The enrollment of that id, if there is one."""
    row = await tx.fetch_one(
        f"SELECT {COLUMNS} FROM enrollments WHERE enrollment_id = ?",  # noqa: S608 - a constant
        enrollment_id,
    )
    return None if row is None else of_row(row)


async def find_pending(
    tx: contract.Tx, *, node_id: ids.NodeId, now: datetime.datetime
) -> Enrollment | None:
    """The unused, unexpired enrollment for that node, if there is one."""
    row = await tx.fetch_one(
        f"SELECT {COLUMNS} FROM enrollments "  # noqa: S608 - a constant
        "WHERE node_id = ? AND state = 'pending' AND expires_at > ?",
        node_id,
        clock.to_micros(now),
    )
    return None if row is None else of_row(row)


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    infra: str | None = None,
    after: tuple[int, str] | None = None,
    pending_at: datetime.datetime | None = None,
    label_filters: Sequence[label_sql.Filter] = (),
) -> Sequence[Enrollment]:
    """At most `limit` enrollments, newest first; `after` is the place of the last one seen.

    `pending_at` leaves only those that can still be used at that moment.
    """
    wheres: list[str] = []
    values: list[object] = []
    if infra is not None:
        wheres.append("infra = ?")
        values.append(infra)
    if pending_at is not None:
        wheres.append("state = 'pending' AND expires_at > ?")
        values.append(clock.to_micros(pending_at))
    for condition, bound in label_sql.conditions(label_filters, dialect=tx.dialect):
        wheres.append(condition)
        values += bound
    if after is not None:
        wheres.append("(created_at < ? OR (created_at = ? AND enrollment_id < ?))")
        values += [after[0], after[0], after[1]]
    where = f"WHERE {' AND '.join(wheres)} " if wheres else ""
    rows = await tx.fetch_all(
        f"SELECT {COLUMNS} FROM enrollments {where}"  # noqa: S608 - constants; values are bound
        "ORDER BY created_at DESC, enrollment_id DESC LIMIT ?",
        *values,
        limit,
    )
    return [of_row(row) for row in rows]


def place_of(enrollment: Enrollment) -> tuple[int, str]:
    """Where the enrollment stands in the list, for the next page's `after`."""
    return clock.to_micros(enrollment.created_at), enrollment.enrollment_id


def of_row(row: contract.Row) -> Enrollment:
    """Reads a row; what is in it was written by `issue` and `redeem`."""
    return Enrollment(
        enrollment_id=ids.EnrollmentId(row["enrollment_id"]),
        node_id=ids.NodeId(row["node_id"]),
        infra=row["infra"],
        state=states.State(row["state"]),
        token_hash=bytes(row["token_hash"]),
        sources=() if (sources := row["sources"]) == "[]" else tuple(json.loads(sources)),
        labels={} if (labels := row["labels"]) == "{}" else json.loads(labels),
        reenroll=bool(row["reenroll"]),
        created_at=clock.from_micros(row["created_at"]),
        created_by=row["created_by"],
        expires_at=clock.from_micros(row["expires_at"]),
        consumed_at=_moment(row["consumed_at"]),
        consumed_pin=row["consumed_pin"],
        ended_at=_moment(row["ended_at"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
