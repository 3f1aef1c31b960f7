"""Tickets: minted with an attempt, and judged when a machine shows one at the enroll door.

The token is an enrollment like any other, made in the name of its operation, so that nobody has to
look whether a person's token belongs to one. It is minted in the transaction that writes the
attempt, lives from the create call for as long as launch and enrollment may take, and is revoked
with its attempt. A machine is let in only where its document, the attempt, and the provider's own
view, no older than a minute, agree; an older view spends nothing and is asked for anew.
"""

import dataclasses
import datetime
import functools
import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final

from platform_server.cloud import attempts, machines
from platform_server.nodes import configured, records, registry, states
from platform_server.operations import holding
from platform_server.operations import states as operation_states
from platform_server.store import contract
from platform_server.tokens import ending, issue, reasons
from platform_server.tokens import records as enrollments
from runtime_kit import clock
from wire_protocol import enrollment, enrollment_token, ids, pins, statements, tickets

FRESH: Final = datetime.timedelta(seconds=60)
RETRY_SECONDS: Final = 5
MOST_PHASES: Final = 64
PHASE_SECONDS: Final = 1.0
_PREFIX: Final = "operation:"
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

Sign = Callable[[bytes], tuple[statements.Signature, ...]]
Render = Callable[[Mapping[str, str]], str]
"""`{document, signature, key_id}` to first-boot data, ASCII."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Where a machine finds this Platform, by what it knows it, and what it installs."""

    url: str
    pins: tuple[pins.Pin, ...]
    trust_key_ids: tuple[ids.KeyId, ...]
    bundle: tickets.Bundle | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minting:
    """What tickets are made with.

    `coordinates` are those for machines of a provider; None while none of its can enroll here.
    """

    platform_id: ids.PlatformId
    sign: Sign
    coordinates: Callable[[str], Coordinates | None]
    render: Render
    operators: configured.ConfiguredNodes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minted:
    """A ticket inside its first-boot data; neither is kept in readable form."""

    enrollment_id: ids.EnrollmentId
    first_boot: str = dataclasses.field(repr=False)


class CannotMint(Exception):
    """No ticket can be made as things stand; the message says what to do."""


async def mint(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    attempt: int,
    minting: Minting,
    life: datetime.timedelta,
    now: datetime.datetime,
) -> Minted:
    """Issues the enrollment of one attempt and puts it into first-boot data.

    Raises `CannotMint`, and `issue.CannotIssue` where somebody has taken the node id meanwhile.
    """
    coordinates = minting.coordinates(machine.provider)
    if coordinates is None:
        raise CannotMint(
            "This Platform has no address at which machines can enroll: start it with "
            "--enrollment-port."
        )
    node_id = ids.NodeId(machine.node_id)
    await _lift_own_tombstone(tx, machine=machine, minting=minting, now=now)
    issued = await issue.issue(
        tx,
        node_id=node_id,
        ask=functools.partial(registry.standing_of, node_id=node_id, operators=minting.operators),
        replace=False,
        ttl_minutes=min(issue.MOST_MINUTES, max(1, round(life.total_seconds() / 60))),
        labels=machine.wish.get("labels") or {},
        sources=(),
        infra=machine.infra,
        created_by=f"{_PREFIX}{machine.operation_id}",
        now=now,
    )
    document = tickets.Document(
        platform_id=minting.platform_id,
        installation=minting.platform_id,
        infra=machine.infra,
        node_id=node_id,
        operation_id=machine.operation_id,
        attempt=attempt,
        url=coordinates.url,
        pins=coordinates.pins,
        trust_key_ids=coordinates.trust_key_ids,
        issued_at=now.replace(microsecond=0),
        expires_at=(now + datetime.timedelta(days=1)).replace(microsecond=0),
        bundle=coordinates.bundle,
        token=issued.token,
    )
    content = document.to_bytes()
    ticket = tickets.sealed_by(document, minting.sign(content)[-1], content=content)
    return Minted(
        enrollment_id=issued.enrollment.enrollment_id,
        first_boot=minting.render(ticket.to_wire()),
    )


async def begin_life(
    tx: contract.Tx, *, enrollment_id: str, life: datetime.timedelta, now: datetime.datetime
) -> None:
    """The create call is about to be made: from now on the token lives for that long."""
    await tx.execute(
        "UPDATE enrollments SET expires_at = ? WHERE enrollment_id = ? AND state = 'pending'",
        clock.to_micros(now + life),
        enrollment_id,
    )


async def revoke(tx: contract.Tx, *, enrollment_id: str | None, now: datetime.datetime) -> None:
    """The attempt has ended: its token opens nothing any more, unless it was spent before."""
    if enrollment_id is not None:
        await ending.withdraw(tx, enrollment_id=enrollment_id, now=now)


# --- at the enroll door -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """What came with a request: no ticket, one that is not ours, or a document we signed."""

    document: tickets.Document | None
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
        ticket = tickets.of_wire(shown.document, shown.signature, shown.key_id)
        return Shown(tickets.verify(ticket, trust_keys=trust_keys, now=now))
    except (tickets.Refused, ValueError):
        return Shown(None, is_refused=True)


def is_ordered(found: enrollments.Enrollment) -> bool:
    """Whether the enrollment was made for an ordered machine."""
    return found.created_by.startswith(_PREFIX)


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
    document = shown.document
    if document is None:
        return _R.TICKET_REFUSED if shown.is_refused else _R.TICKET_MISSING
    attempt = await attempts.find_by_enrollment(tx, enrollment_id=found.enrollment_id)
    if attempt is None or not _is_of(document, attempt=attempt, found=found, token=token):
        return _R.TICKET_REFUSED
    return await _judge_attempt(tx, attempt=attempt, instance=instance, now=now)


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
        await holding.wake(tx, operation_id=found.created_by.removeprefix(_PREFIX), now=now)


def agrees(machine: machines.Machine, *, attempt: attempts.Attempt) -> bool:
    """Whether the provider's own view is of this attempt's machine: id, name and every tag."""
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
    shown: Shown,
    phase: str,
    detail: str,
    now: datetime.datetime,
) -> Reported | reasons.Reason | int:
    """Writes a phase down; a reason where it is refused, seconds to wait where it comes too fast.

    The token may be spent, and its enrollment ended, as long as the operation is open.
    """
    attempt = None
    if is_ordered(found) and not shown.is_refused:
        attempt = await attempts.find_by_enrollment(tx, enrollment_id=found.enrollment_id)
    if attempt is None or attempt.state in attempts.SETTLED:
        return _R.NO_OPERATION
    operation_id = attempt.operation_id
    if await _state_of(tx, operation_id=operation_id) not in _EXPECTED:
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


# Inside.

_R: Final = reasons.Reason


def _is_of(
    document: tickets.Document,
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


async def _lift_own_tombstone(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    minting: Minting,
    now: datetime.datetime,
) -> None:
    """A former attempt of this very order had become a node and was taken away again."""
    node_id = ids.NodeId(machine.node_id)
    await tx.lock(f"node:{node_id}")
    node = await records.find(tx, node_id=node_id)
    if node is None or node.state is not states.State.REMOVED:
        return
    former = await attempts.find_by_enrollment(tx, enrollment_id=node.enrollment_id)
    if former is not None and former.machine_id == machine.machine_id:
        await registry.allow(tx, node_id=node_id, operators=minting.operators, now=now)
