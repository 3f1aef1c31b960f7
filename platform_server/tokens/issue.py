"""Issuing an enrollment: the one moment at which the token exists in readable form.

What is stored is the id and SHA-256 of the secret's 32 raw bytes. A node id has at most one
enrollment that can still be used. Whether the node id is free is the caller's knowledge
(`Standing`), since nodes are a later stage than tokens; it is asked at a moment that `issue`
chooses, after which nobody can change it.
"""

import dataclasses
import datetime
import enum
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from platform_server.store import contract
from platform_server.tokens import records, states
from runtime_kit import clock
from wire_protocol import enrollment_token, ids, times

DEFAULT_MINUTES: Final = 60  # long enough for a slow first boot, short enough to forget (C-8)
MOST_MINUTES: Final = 24 * 60


class Standing(enum.StrEnum):
    """How the node id is taken, as far as issuing is concerned."""

    FREE = "free"
    REGISTERED = "registered"
    REMOVED = "removed"
    CONFIGURED = "configured"


Ask = Callable[[contract.Tx], Awaitable[Standing]]


class CannotIssue(Exception):
    """No token is issued; `code` is the problem's code, the text says what to do."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A new enrollment with its token: shown once, kept nowhere."""

    enrollment: records.Enrollment
    token: enrollment_token.EnrollmentToken
    replaced: ids.EnrollmentId | None


async def issue(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    ask: Ask,
    replace: bool,
    ttl_minutes: int,
    labels: Mapping[str, str],
    sources: Sequence[str],
    infra: str,
    created_by: str,
    now: datetime.datetime,
) -> Issued:
    """Mints a token for the node id and stores its hash.

    With `replace`, an unused enrollment gives way, and for a registered node the new one is a
    re-enrollment. Raises `CannotIssue`, and what `ask` raises: undo the transaction then.

    Other engines may be issuing, removing and enrolling at this moment. The first two wait for the
    node's lock. A machine that enrolls does not, but it needs an unused enrollment: once those have
    been ended or seen to be none, how the id stands can no longer change, and is asked.
    """
    await tx.lock(f"node:{node_id}")
    await _expire_unused(tx, node_id=node_id, now=now)
    pending = await records.find_pending(tx, node_id=node_id, now=now)
    replaced = None
    if pending is not None and replace and await _replace_unused(tx, node_id=node_id, now=now):
        replaced = pending.enrollment_id
    standing = await ask(tx)
    _require_free(node_id, standing=standing, replace=replace)
    if pending is not None and not replace:
        raise CannotIssue(
            "enrollment-pending",
            f"The node id {node_id} has an unused enrollment, valid until "
            f"{times.to_rfc3339(pending.expires_at)}. Use its token, take it back with "
            f"`enlist nodes withdraw-token {node_id}`, or ask again with --replace.",
        )
    token = enrollment_token.new()
    enrollment = records.Enrollment(
        enrollment_id=token.enrollment_id,
        node_id=node_id,
        infra=infra,
        state=states.State.PENDING,
        token_hash=token.stored_hash(),
        sources=tuple(sources),
        labels=dict(labels),
        reenroll=standing is Standing.REGISTERED,
        created_at=now,
        created_by=created_by,
        expires_at=now + datetime.timedelta(minutes=ttl_minutes),
        consumed_at=None,
        consumed_pin=None,
        ended_at=None,
    )
    await _insert(tx, enrollment)
    return Issued(enrollment=enrollment, token=token, replaced=replaced)


def _require_free(node_id: ids.NodeId, *, standing: Standing, replace: bool) -> None:
    if standing is Standing.CONFIGURED:
        raise CannotIssue(
            "node-exists",
            f"The node {node_id} is configured on this Platform and always wins: "
            "choose another node id, or take it out of the settings first.",
        )
    if standing is Standing.REMOVED:
        raise CannotIssue(
            "node-removed",
            f"The node {node_id} was removed. To let that id enroll again, run: "
            f"enlist nodes allow {node_id}",
        )
    if standing is Standing.REGISTERED and not replace:
        raise CannotIssue(
            "node-exists",
            f"The node {node_id} is registered. To enroll it anew with another key, ask again "
            "with --replace; its present key then ends when the new one has enrolled.",
        )


async def _expire_unused(tx: contract.Tx, *, node_id: ids.NodeId, now: datetime.datetime) -> None:
    moment = clock.to_micros(now)
    await tx.execute(
        "UPDATE enrollments SET state = ?, ended_at = ? "
        "WHERE node_id = ? AND state = ? AND expires_at <= ?",
        states.after(states.State.PENDING, states.Event.EXPIRE).value,
        moment,
        node_id,
        states.before(states.Event.EXPIRE).value,
        moment,
    )


async def _replace_unused(tx: contract.Tx, *, node_id: ids.NodeId, now: datetime.datetime) -> bool:
    """Whether there was one: a machine that is just spending it is waited for, and has won."""
    changed = await tx.execute(
        "UPDATE enrollments SET state = ?, ended_at = ? WHERE node_id = ? AND state = ?",
        states.after(states.State.PENDING, states.Event.REPLACE).value,
        clock.to_micros(now),
        node_id,
        states.before(states.Event.REPLACE).value,
    )
    return changed > 0


async def _insert(tx: contract.Tx, enrollment: records.Enrollment) -> None:
    # the unique index on unused enrollments would refuse a second one, whatever came in between
    await tx.execute(
        f"INSERT INTO enrollments ({records.COLUMNS}) "  # noqa: S608 - a constant
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        enrollment.enrollment_id,
        enrollment.node_id,
        enrollment.infra,
        enrollment.state.value,
        enrollment.token_hash,
        json.dumps(list(enrollment.sources)),
        json.dumps(dict(enrollment.labels), sort_keys=True),
        int(enrollment.reenroll),
        clock.to_micros(enrollment.created_at),
        enrollment.created_by,
        clock.to_micros(enrollment.expires_at),
        None,
        None,
        None,
    )
