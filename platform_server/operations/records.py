"""The rows of operations: what was asked for, where each stands, and the steps it has taken.

Reading and making alone. What changes one that is there goes through `holding`, which knows who
may.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.operations import states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import problems

MOST_STEPS: Final = 1000  # an order that is retried ten times has a tenth of it

_COLUMNS: Final = (
    "operation_id, kind, infra, subject, parent_id, state, request, reason, error_class, "
    "created_at, created_by, updated_at, deadline_at, next_at, tries, ended_at, holder, fence, "
    "waiting, waiting_since"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the state. `output` is what later steps go by."""

    position: int
    at: datetime.datetime
    event: states.Event
    state: states.State
    detail: str
    output: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `request` is what its kind was asked for.

    `waiting` is what is in the way of an open one, since `waiting_since`.
    """

    operation_id: str
    kind: str
    infra: str
    subject: str | None
    parent_id: str | None
    state: states.State
    request: Mapping[str, Any]
    created_at: datetime.datetime
    created_by: str
    updated_at: datetime.datetime
    next_at: datetime.datetime | None
    reason: str | None = None
    error_class: problems.Kind | None = None
    deadline_at: datetime.datetime | None = None
    tries: int = 0
    waiting: str | None = None
    waiting_since: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    holder: str | None = None
    fence: int = 0
    steps: Sequence[Step] = ()
    depends_on: Sequence[str] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is something left to do."""
        return self.state not in states.ENDED

    def find_step(self, event: states.Event) -> Step | None:
        """The step that this event was, if it was taken."""
        return next((one for one in self.steps if one.event is event), None)


async def insert(tx: contract.Tx, *, operation: Operation) -> None:
    """Adds the row and what it depends on."""
    await tx.execute(
        "INSERT INTO operations(operation_id, kind, infra, subject, parent_id, state, request, "
        "created_at, created_by, updated_at, next_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        operation.operation_id,
        operation.kind,
        operation.infra,
        operation.subject,
        operation.parent_id,
        operation.state.value,
        json.dumps(dict(operation.request), sort_keys=True),
        clock.to_micros(operation.created_at),
        operation.created_by,
        clock.to_micros(operation.updated_at),
        None if operation.next_at is None else clock.to_micros(operation.next_at),
    )
    for former in operation.depends_on:
        await tx.execute(
            "INSERT INTO operation_dependencies(operation_id, depends_on) VALUES (?, ?)",
            operation.operation_id,
            former,
        )


async def find(tx: contract.Tx, *, operation_id: str) -> Operation | None:
    """The operation with its steps and what it depends on."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM operations WHERE operation_id = ?",  # noqa: S608 - a constant
        operation_id,
    )
    if row is None:
        return None
    steps = await tx.fetch_all(
        "SELECT position, at, event, state, detail, output FROM operation_steps "
        "WHERE operation_id = ? ORDER BY position LIMIT ?",
        operation_id,
        MOST_STEPS,
    )
    return dataclasses.replace(
        _of_row(row),
        steps=[_step_of_row(one) for one in steps],
        depends_on=(await list_dependencies(tx, operation_ids=[operation_id])).get(
            operation_id, ()
        ),
    )


async def list_dependencies(
    tx: contract.Tx, *, operation_ids: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """What each of these (a page at most) waits for."""
    found: dict[str, list[str]] = {}
    if operation_ids:
        rows = await tx.fetch_all(
            "SELECT operation_id, depends_on FROM operation_dependencies "  # noqa: S608 - marks
            f"WHERE operation_id IN ({_marks(operation_ids)}) ORDER BY depends_on",
            *operation_ids,
        )
        for row in rows:
            found.setdefault(row["operation_id"], []).append(row["depends_on"])
    return found


async def list_formers(tx: contract.Tx, *, operation_id: str) -> Sequence[Operation]:
    """The operations that this one waits for, without their steps."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM operations WHERE operation_id IN "  # noqa: S608 - a constant
        "(SELECT depends_on FROM operation_dependencies WHERE operation_id = ?) "
        "ORDER BY created_at, operation_id",
        operation_id,
    )
    return [_of_row(row) for row in rows]


async def list_parts(tx: contract.Tx, *, parent_id: str, limit: int) -> Sequence[Operation]:
    """The parts of an operation, in the order in which they were made, without their steps."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM operations WHERE parent_id = ? "  # noqa: S608 - a constant
        "ORDER BY created_at, operation_id LIMIT ?",
        parent_id,
        limit,
    )
    return [_of_row(row) for row in rows]


async def list_due(tx: contract.Tx, *, now: datetime.datetime, limit: int) -> Sequence[Operation]:
    """Open operations whose time has come, those first that have waited longest."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM operations WHERE ended_at IS NULL "  # noqa: S608 - a constant
        "AND next_at <= ? ORDER BY next_at, operation_id LIMIT ?",
        clock.to_micros(now),
        limit,
    )
    return [_of_row(row) for row in rows]


async def find_open(tx: contract.Tx, *, subject: str) -> Operation | None:
    """The open operation on this subject."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM operations WHERE subject = ? "  # noqa: S608 - a constant
        "AND ended_at IS NULL LIMIT 1",
        subject,
    )
    return None if row is None else _of_row(row)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a list is narrowed to."""

    infra: str | None = None
    subject: str | None = None
    is_open: bool | None = None


async def list_page(
    tx: contract.Tx, *, wanted: Wanted, limit: int, before: tuple[int, str] | None
) -> Sequence[Operation]:
    """Operations without their steps, newest first."""
    conditions, values = ["(created_at, operation_id) < (?, ?)"], [*(before or (2**62, ""))]
    if wanted.infra is not None:
        conditions.append("infra = ?")
        values.append(wanted.infra)
    if wanted.subject is not None:
        conditions.append("subject = ?")
        values.append(wanted.subject)
    if wanted.is_open is not None:
        conditions.append(f"ended_at IS {'' if wanted.is_open else 'NOT '}NULL")
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM operations WHERE {' AND '.join(conditions)} "  # noqa: S608 - constants
        "ORDER BY created_at DESC, operation_id DESC LIMIT ?",
        *values,
        limit,
    )
    return [_of_row(row) for row in rows]


async def purge(tx: contract.Tx, *, ended_before: datetime.datetime, limit: int) -> int:
    """Removes old operations that have ended, but no part before its whole, nor what is waited for.

    A whole goes once none of its parts is left; it is found again at the next purge.
    """
    rows = await tx.fetch_all(
        "SELECT o.operation_id FROM operations o WHERE o.ended_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM operations p WHERE p.parent_id = o.operation_id "
        "AND (p.ended_at IS NULL OR p.ended_at >= ?)) "
        "AND NOT EXISTS (SELECT 1 FROM operations w WHERE w.operation_id = o.parent_id "
        "AND (w.ended_at IS NULL OR w.ended_at >= ?)) "
        "AND NOT EXISTS (SELECT 1 FROM operation_dependencies d JOIN operations l "
        "ON l.operation_id = d.operation_id WHERE d.depends_on = o.operation_id "
        "AND l.ended_at IS NULL) ORDER BY o.ended_at, o.operation_id LIMIT ?",
        *(clock.to_micros(ended_before),) * 3,
        limit,
    )
    gone = [row["operation_id"] for row in rows]
    if not gone:
        return 0
    marks = _marks(gone)
    for table, column in (
        ("operation_steps", "operation_id"),
        ("operation_dependencies", "operation_id"),
        ("operation_dependencies", "depends_on"),
        ("operations", "operation_id"),
    ):
        await tx.execute(
            f"DELETE FROM {table} WHERE {column} IN ({marks})",  # noqa: S608 - constants and marks
            *gone,
        )
    return len(gone)


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" for _ in values)


def _of_row(row: contract.Row) -> Operation:
    error_class = row["error_class"]
    return Operation(
        operation_id=row["operation_id"],
        kind=row["kind"],
        infra=row["infra"],
        subject=row["subject"],
        parent_id=row["parent_id"],
        state=states.State(row["state"]),
        request=json.loads(row["request"]),
        reason=row["reason"],
        error_class=None if error_class is None else problems.Kind(error_class),
        created_at=clock.from_micros(row["created_at"]),
        created_by=row["created_by"],
        updated_at=clock.from_micros(row["updated_at"]),
        deadline_at=_moment(row["deadline_at"]),
        next_at=_moment(row["next_at"]),
        tries=int(row["tries"]),
        ended_at=_moment(row["ended_at"]),
        holder=row["holder"],
        fence=int(row["fence"]),
        waiting=row["waiting"],
        waiting_since=_moment(row["waiting_since"]),
    )


def _step_of_row(row: contract.Row) -> Step:
    return Step(
        position=int(row["position"]),
        at=clock.from_micros(row["at"]),
        event=states.Event(row["event"]),
        state=states.State(row["state"]),
        detail=row["detail"],
        output=json.loads(row["output"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
