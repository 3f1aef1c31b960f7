"""Whoever shows a ticket at the enroll door, or reports a phase of first boot: let in, or not.

A machine is let in only where its document, the attempt and the provider's own view agree, that
view no older than a minute; an older one spends nothing and is asked for anew. Nobody here calls a
provider.
"""

import dataclasses
import datetime
import hmac
from collections.abc import Mapping
from typing import Any, Final

from platform_server.cloud import attempts, machines, tickets
from platform_server.operations import holding
from platform_server.operations import states as operation_states
from platform_server.store import contract
from platform_server.tokens import reasons
from platform_server.tokens import records as enrollments
from runtime_kit import clock
from wire_protocol import enrollment, enrollment_token, statements
from wire_protocol import tickets as wire_tickets

FRESH: Final = datetime.timedelta(seconds=60)
RETRY_SECONDS: Final = 5
MOST_PHASES: Final = 64
PHASE_SECONDS: Final = 1.0
_ADMITTING: Final = (
    operation_states.State.BOOTING,
    operation_states.State.BOOTSTRAPPING,
    operation_states.State.ENROLLING,
    operation_states.State.VERIFYING,
)
_EXPECTED: Final = (
    operation_states.State.CREATING,
    operation_states.State.UNRESOLVED,
    *_ADMITTING,
)
_R: Final = reasons.Reason


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What came with a request: no ticket, one that is not ours, or a document we signed."""

    document: wire_tickets.Document | None
    is_refused: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class NotYet:
    """The provider's view is too old to judge by: nothing is spent, ask again."""

    retry_after_seconds: int = RETRY_SECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """A first-boot phase was written down."""


def read(
    shown: enrollment.Ticket | None,
    *,
    trust_keys: tuple[statements.TrustKey, ...],
    now: datetime.datetime,
) -> Shown:
    """Checks the signature over the exact bytes, before anything is looked up."""
    if shown is None:
        return Shown(None)
    try:
        ticket = wire_tickets.of_wire(shown.document, shown.signature, shown.key_id)
        return Shown(wire_tickets.verify(ticket, trust_keys=trust_keys, now=now))
    except (wire_tickets.Refused, ValueError):
        return Shown(None, is_refused=True)


def is_ordered(found: enrollments.Enrollment) -> bool:
    """Whether the enrollment was made for an ordered machine."""
    return found.created_by.startswith(tickets.OPERATION)


async def judge(
    tx: contract.Tx,
    *,
    found: enrollments.Enrollment,
    token: enrollment_token.EnrollmentToken,
    shown: Shown,
    instance: Mapping[str, str] | None,
    now: datetime.datetime,
) -> reasons.Reason | NotYet | None:
    """Why a machine with a good token is not let in (yet); None where all agree.

    Calls no provider: the view is the reconciler's, which is woken where it is too old.
    """
    if not is_ordered(found):
        return None if shown == Shown(None) else _R.TICKET_REFUSED
    attempt = await _attempt_of(tx, found=found, token=token, shown=shown)
    if isinstance(attempt, reasons.Reason):
        return attempt
    return await _judge_attempt(tx, attempt=attempt, instance=instance, now=now)


async def _attempt_of(
    tx: contract.Tx,
    *,
    found: enrollments.Enrollment,
    token: enrollment_token.EnrollmentToken,
    shown: Shown,
) -> attempts.Attempt | reasons.Reason:
    """The attempt that token and ticket are both of, or why there is none."""
    document = shown.document
    if document is None:
        return _R.TICKET_REFUSED if shown.is_refused else _R.TICKET_MISSING
    attempt = await attempts.find_by_enrollment(tx, enrollment_id=found.enrollment_id)
    if attempt is None or not _is_of(document, attempt=attempt, found=found, token=token):
        return _R.TICKET_REFUSED
    return attempt


async def _judge_attempt(
    tx: contract.Tx,
    *,
    attempt: attempts.Attempt,
    instance: Mapping[str, str] | None,
    now: datetime.datetime,
) -> reasons.Reason | NotYet | None:
    """The operation, the attempt and the provider's view, once the document is proved."""
    machine = await machines.find_of_operation(tx, operation_id=attempt.operation_id)
    operation = await _state_of(tx, operation_id=attempt.operation_id)
    is_wanted = machine is not None and machine.delete_asked_at is None
    if machine is None or not is_wanted or operation not in _EXPECTED:
        return _R.OPERATION_ENDED
    if attempt.state in attempts.SETTLED:
        return _R.OPERATION_ENDED
    is_known = attempt.state is attempts.State.PRESENT and operation in _ADMITTING
    is_fresh = machine.seen_at is not None and now - machine.seen_at <= FRESH
    if not (is_known and is_fresh) or machine.seen.get("owner") is None:  # tags may come late
        await holding.wake(tx, operation_id=attempt.operation_id, now=now)
        return NotYet()
    if not agrees(machine, attempt=attempt) or _differs(machine, instance=instance):
        return _R.MACHINE_DIFFERS
    return None


async def enrolled(
    tx: contract.Tx, *, found: enrollments.Enrollment, now: datetime.datetime
) -> None:
    """The machine has become a node: its operation is to look."""
    if is_ordered(found):
        await holding.wake(
            tx, operation_id=found.created_by.removeprefix(tickets.OPERATION), now=now
        )


def agrees(machine: machines.Machine, *, attempt: attempts.Attempt) -> bool:
    """Whether the provider's own view is of this attempt's machine: its id and every tag."""
    owner = attempt.request.owner
    seen = machine.seen
    return (
        machine.provider_ref is not None
        and seen.get("ref") == machine.provider_ref == attempt.provider_ref
        and seen.get("owner") == dataclasses.asdict(owner)
        and owner.node == machine.node_id
    )


async def report(
    tx: contract.Tx,
    *,
    found: enrollments.Enrollment,
    token: enrollment_token.EnrollmentToken,
    shown: Shown,
    phase: str,
    detail: str,
    now: datetime.datetime,
) -> Reported | reasons.Reason | int:
    """Writes a phase down; a reason where it is refused, seconds to wait where it comes too fast.

    The token may be spent, and its enrollment ended, as long as the operation is open; the ticket
    must be that of the token's own attempt.
    """
    if not is_ordered(found):
        return _R.NO_OPERATION
    attempt = await _attempt_of(tx, found=found, token=token, shown=shown)
    if isinstance(attempt, reasons.Reason):
        return attempt
    operation_id = attempt.operation_id
    is_open = await _state_of(tx, operation_id=operation_id) in _EXPECTED
    if attempt.state in attempts.SETTLED or not is_open:
        return _R.NO_OPERATION
    await tx.lock(f"boot-phases:{operation_id}")
    last = await tx.fetch_one(
        "SELECT COUNT(*) AS n, COALESCE(MAX(at), 0) AS at FROM boot_phases WHERE operation_id = ?",
        operation_id,
    )
    if last is None:
        raise AssertionError("A count gave no row.")
    moment = clock.to_micros(now)
    if int(last["n"]) >= MOST_PHASES:
        return 3600
    if moment - int(last["at"]) < int(PHASE_SECONDS * 1_000_000):
        return 1
    await tx.execute(
        "INSERT INTO boot_phases(operation_id, position, at, phase, detail) VALUES (?, ?, ?, ?, ?)",
        operation_id,
        int(last["n"]) + 1,
        moment,
        phase,
        holding.kept(detail),
    )
    await holding.wake(tx, operation_id=operation_id, now=now)
    return Reported()


async def list_phases(
    tx: contract.Tx, *, operation_id: str, since: datetime.datetime | None = None
) -> list[Mapping[str, Any]]:
    """What first boot told (`at`, `phase`, `detail`), in order."""
    rows = await tx.fetch_all(
        "SELECT at, phase, detail FROM boot_phases WHERE operation_id = ? AND at >= ? "
        "ORDER BY position LIMIT ?",
        operation_id,
        0 if since is None else clock.to_micros(since),
        MOST_PHASES,
    )
    return [
        {"at": clock.from_micros(row["at"]), "phase": row["phase"], "detail": row["detail"]}
        for row in rows
    ]


def _is_of(
    document: wire_tickets.Document,
    *,
    attempt: attempts.Attempt,
    found: enrollments.Enrollment,
    token: enrollment_token.EnrollmentToken,
) -> bool:
    return (
        document.node_id == found.node_id
        and document.operation_id == attempt.operation_id
        and document.attempt == attempt.attempt
        and document.infra == found.infra
        and hmac.compare_digest(document.token.text(), token.text())
    )


def _differs(machine: machines.Machine, *, instance: Mapping[str, str] | None) -> bool:
    """Whether the machine tells another id than the provider does; silence of either is none."""
    told, known = (instance or {}).get("id"), machine.seen.get("instance_id")
    return bool(told) and bool(known) and told != known


async def _state_of(tx: contract.Tx, *, operation_id: str) -> operation_states.State | None:
    row = await tx.fetch_one("SELECT state FROM operations WHERE operation_id = ?", operation_id)
    return None if row is None else operation_states.State(row["state"])
