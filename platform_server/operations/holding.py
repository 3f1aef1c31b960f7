"""Who carries an operation on, and the one way to change one: a lease with a number that fences.

A lease is taken by one conditional write and ends by itself. The number rises with every holder,
and every change names holder and number in its own condition: whoever slept through his time, or
was taken for dead, changes nothing, whatever he believes. A change of the state writes the row, its
step, the event and at an end the action log in one transaction, and wakes what waited for it.

Known limit: the ends of leases are judged by the engines' clocks. Where two differ by more than a
lease lasts, both may work on the same operation; only the later one can write.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.audit import actions, events
from platform_server.operations import records, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import problems

ACTOR: Final = "platform:operations"
TTL_SECONDS: Final = 15.0
LONGEST_REASON: Final = 1024


class LeaseLost(Exception):
    """Another engine carries this operation on: stop, nothing was changed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An operation that this engine carries on, as it stood when it was taken."""

    operation: records.Operation
    holder: str
    fence: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why it failed, and what kind of failure that is."""

    reason: str
    kind: problems.Kind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of the state, to be written. `deadline_at` is that of the state that follows."""

    event: states.Event
    detail: str = ""
    output: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    failure: Failure | None = None
    deadline_at: datetime.datetime | None = None


async def claim(
    tx: contract.Tx, *, operation_id: str, holder: str, now: datetime.datetime
) -> Held | None:
    """Takes the operation; None where somebody else holds it, or it has ended meanwhile."""
    row = await tx.fetch_one(
        "UPDATE operations SET holder = ?, fence = fence + 1, lease_until = ? "
        "WHERE operation_id = ? AND ended_at IS NULL AND (holder IS NULL OR lease_until <= ?) "
        "RETURNING fence",
        holder,
        _until(now),
        operation_id,
        clock_kit.to_micros(now),
    )
    if row is None:
        return None
    operation = await records.find(tx, operation_id=operation_id)
    if operation is None:
        return None
    return Held(operation=operation, holder=holder, fence=int(row["fence"]))


async def begin(
    tx: contract.Tx, *, held: Held, event: states.Event, now: datetime.datetime
) -> None:
    """For the start of a transaction that does more than `move`: raises `LeaseLost`.

    Locks the rows that `move` will change. What else is done appends to the logs, whose lock comes
    after every other: else two engines wait for one another.
    """
    await _change(tx, held=held, settings="fence = fence", values=())
    if states.after(held.operation.state, event) in states.ENDED:
        await _wake(tx, operation=held.operation, moment=clock_kit.to_micros(now))


async def renew(tx: contract.Tx, *, held: Held, now: datetime.datetime) -> None:
    """Holds it for longer; raises `LeaseLost`."""
    await _change(tx, held=held, settings="lease_until = ?", values=(_until(now),))


async def require(tx: contract.Tx, *, held: Held) -> None:
    """For a transaction that writes beside the row without moving it; raises `LeaseLost`."""
    await _change(tx, held=held, settings="fence = fence", values=())


async def release(tx: contract.Tx, *, held: Held) -> None:
    """Lets it go; when it is looked at next stands in its row. Raises `LeaseLost`."""
    await _change(tx, held=held, settings="holder = NULL, lease_until = 0", values=())


async def put_off(
    tx: contract.Tx,
    *,
    held: Held,
    until: datetime.datetime,
    reason: str,
    now: datetime.datetime,
) -> None:
    """Lets it go until then, after one more failure in a row; raises `LeaseLost`.

    Why is kept, and since when something has been in the way, until the next change.
    """
    await _change(
        tx,
        held=held,
        settings="holder = NULL, lease_until = 0, next_at = ?, tries = tries + 1, waiting = ?, "
        "waiting_since = COALESCE(waiting_since, ?)",
        values=(clock_kit.to_micros(until), kept(reason), clock_kit.to_micros(now)),
    )


async def went_well(tx: contract.Tx, *, held: Held) -> None:
    """Nothing is in the way (any more); raises `LeaseLost`."""
    await _change(
        tx, held=held, settings="tries = 0, waiting = NULL, waiting_since = NULL", values=()
    )


async def move(
    tx: contract.Tx, *, held: Held, move: Move, environment: str, now: datetime.datetime
) -> records.Operation:
    """Writes the change; gives the operation as it stands now. Raises `LeaseLost`.

    The append lock is taken here, so this comes last in a transaction.
    """
    operation = held.operation
    state = states.after(operation.state, move.event)
    moment, ends = clock_kit.to_micros(now), state in states.ENDED
    reason = operation.reason if move.failure is None else kept(move.failure.reason)
    error_class = operation.error_class if move.failure is None else move.failure.kind
    await _change(
        tx,
        held=held,
        settings="state = ?, reason = ?, error_class = ?, updated_at = ?, deadline_at = ?, "
        "next_at = ?, tries = 0, ended_at = ?, waiting = NULL, waiting_since = NULL",
        values=(
            state.value,
            reason,
            None if error_class is None else error_class.value,
            moment,
            None if move.deadline_at is None else clock_kit.to_micros(move.deadline_at),
            moment,
            moment if ends else None,
        ),
    )
    step = records.Step(
        position=len(operation.steps) + 1,
        at=now,
        event=move.event,
        state=state,
        detail=kept(move.detail or (reason or "" if move.failure is not None else "")),
        output=move.output,
    )
    await _write_step(tx, operation_id=operation.operation_id, step=step)
    if ends:
        await _wake(tx, operation=operation, moment=moment)
    changed = dataclasses.replace(
        operation,
        state=state,
        reason=reason,
        error_class=error_class,
        updated_at=now,
        deadline_at=move.deadline_at,
        next_at=now,
        tries=0,
        waiting=None,
        waiting_since=None,
        ended_at=now if ends else None,
        steps=(*operation.steps, step),
    )
    await tell(tx, operation=changed, environment=environment, now=now, detail=step.detail)
    return changed


async def reopen(
    tx: contract.Tx,
    *,
    operation: records.Operation,
    detail: str,
    environment: str,
    now: datetime.datetime,
) -> records.Operation:
    """A failed operation is to be tried again; nobody holds one that has ended.

    Raises `states.Impossible` where it did not fail, or where somebody else was faster.
    """
    state = states.after(operation.state, states.Event.RETRY)
    changed = await tx.execute(
        "UPDATE operations SET state = ?, reason = NULL, error_class = NULL, updated_at = ?, "
        "deadline_at = NULL, next_at = ?, tries = 0, ended_at = NULL, holder = NULL, "
        "lease_until = 0, fence = fence + 1 "
        "WHERE operation_id = ? AND state = ? AND ended_at IS NOT NULL",
        state.value,
        clock_kit.to_micros(now),
        clock_kit.to_micros(now),
        operation.operation_id,
        operation.state.value,
    )
    if changed != 1:
        raise states.Impossible("The operation was changed at this moment.")
    step = records.Step(
        position=len(operation.steps) + 1,
        at=now,
        event=states.Event.RETRY,
        state=state,
        detail=kept(detail),
    )
    await _write_step(tx, operation_id=operation.operation_id, step=step)
    changed_to = dataclasses.replace(
        operation,
        state=state,
        reason=None,
        error_class=None,
        updated_at=now,
        deadline_at=None,
        next_at=now,
        tries=0,
        ended_at=None,
        steps=(*operation.steps, step),
    )
    await tell(tx, operation=changed_to, environment=environment, now=now, detail=step.detail)
    return changed_to


async def wake(tx: contract.Tx, *, operation_id: str, now: datetime.datetime) -> None:
    """It is looked at now, if it is open: something that it waits for has happened."""
    await tx.execute(
        "UPDATE operations SET next_at = ? WHERE operation_id = ? AND ended_at IS NULL "
        "AND (next_at IS NULL OR next_at > ?)",
        clock_kit.to_micros(now),
        operation_id,
        clock_kit.to_micros(now),
    )


async def tell(
    tx: contract.Tx,
    *,
    operation: records.Operation,
    environment: str,
    now: datetime.datetime,
    detail: str = "",
) -> None:
    """The event of a change, and at an end the action."""
    about = {
        "operation_id": operation.operation_id,
        "kind": operation.kind,
        "parent_id": operation.parent_id,
        "reason": operation.reason,
    }
    await events.append(
        tx,
        at=now,
        kind=f"operation.{operation.state}",
        subject=operation.subject or operation.operation_id,
        infra=operation.infra,
        data={**about, "detail": detail},
    )
    if not operation.is_open:
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=ACTOR,
                action=f"operation.{operation.state}",
                target=operation.subject or operation.operation_id,
                environment=environment,
                infra=operation.infra,
                operation=operation.operation_id,
                details=about,
            ),
        )


def kept(text: str) -> str:
    """What is stored of a sentence, which may be a machine's: printable, and bounded."""
    return "".join(one if one.isprintable() else " " for one in text)[:LONGEST_REASON]


async def _change(
    tx: contract.Tx, *, held: Held, settings: str, values: tuple[object, ...]
) -> None:
    changed = await tx.execute(
        f"UPDATE operations SET {settings} WHERE operation_id = ? "  # noqa: S608 - constants
        "AND holder = ? AND fence = ?",
        *values,
        held.operation.operation_id,
        held.holder,
        held.fence,
    )
    if changed != 1:
        raise LeaseLost(f"Another engine carries the operation {held.operation.operation_id} on.")


async def _write_step(tx: contract.Tx, *, operation_id: str, step: records.Step) -> None:
    await tx.execute(
        "INSERT INTO operation_steps(operation_id, position, at, event, state, detail, output) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        operation_id,
        step.position,
        clock_kit.to_micros(step.at),
        step.event.value,
        step.state.value,
        step.detail,
        json.dumps(dict(step.output), sort_keys=True),
    )


async def _wake(tx: contract.Tx, *, operation: records.Operation, moment: int) -> None:
    """What waited for its end is looked at now: those that depend on it, and its whole."""
    await tx.execute(
        "UPDATE operations SET next_at = ? WHERE ended_at IS NULL AND operation_id IN "
        "(SELECT operation_id FROM operation_dependencies WHERE depends_on = ?)",
        moment,
        operation.operation_id,
    )
    if operation.parent_id is not None:
        await tx.execute(
            "UPDATE operations SET next_at = ? WHERE ended_at IS NULL AND operation_id = ?",
            moment,
            operation.parent_id,
        )


def _until(now: datetime.datetime) -> int:
    return clock_kit.to_micros(now) + int(TTL_SECONDS * 1_000_000)
