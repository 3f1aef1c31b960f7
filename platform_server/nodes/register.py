"""The last stage of an enrollment: the node's row, in the transaction that spent the token.

`examine` asks everything about the node that can refuse, before the token is spent; `register`
takes the receipt of enrollment and cannot refuse any more. Its own receipt, `Registered`, is what
the answer is made from. `repeat` serves a machine that lost its answer: the same token and the
same key get the same node again, for as long as the node has that key.
"""

import dataclasses
import datetime
import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.audit import actions, events
from platform_server.enrollment import enroll
from platform_server.nodes import configured, sessions, states
from platform_server.store import contract
from platform_server.tokens import reasons, redeem
from platform_server.tokens import records as tokens
from runtime_kit import clock
from wire_protocol import ids, pins


class _Seal:
    """Known to this module only: what makes a receipt ours."""


_SEAL: Final = _Seal()
_LISTEN: Final = "listen"
_DIAL_OUT: Final = "dial-out"
_CHANGES: Final = ("node.address-changed", "node.certificate-changed")
MOST_CHANGES_AN_HOUR: Final = 12  # a machine that is being set up needs a few


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The node stands in the register with this key."""

    node_id: ids.NodeId
    generation: int
    url: str | None
    first_time: bool
    seal: _Seal = dataclasses.field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("Only platform_server.nodes.register makes this receipt.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """Why this key may not become this node, though its token is good; None if it may.

    `is_stale`: another engine has ended the enrollment since it was proved. What speaks against the
    key may then be the doing of the one who has just spent the token, perhaps of this very machine,
    whose first request went there: prove it again.
    """

    reason: reasons.Reason | None
    is_stale: bool


async def examine(
    tx: contract.Tx,
    *,
    proved: redeem.Proved,
    pin: pins.Pin,
    operators: configured.ConfiguredNodes,
) -> Examined:
    """Looks at node, key and token once more, in one statement: as they are at one moment."""
    node_id = proved.enrollment.node_id
    rows = await tx.fetch_all(
        "SELECT 'node' AS kind, node_id, state FROM nodes WHERE node_id = ? "
        "UNION ALL SELECT * FROM ("
        "SELECT 'key', node_id, state FROM nodes WHERE pin = ? AND node_id <> ? "
        "AND first_ready_at IS NOT NULL AND state <> 'removed' LIMIT 1) AS holder "
        "UNION ALL SELECT 'token', node_id, state FROM enrollments WHERE enrollment_id = ?",
        node_id,
        pin,
        node_id,
        proved.enrollment.enrollment_id,
    )
    found = {row["kind"]: row["state"] for row in rows}
    reason = None
    if operators.holds(node_id):
        reason = reasons.Reason.NODE_CONFIGURED
    elif operators.has_key(pin):
        reason = reasons.Reason.KEY_IN_USE
    elif found.get("node") == states.State.REMOVED.value:
        reason = reasons.Reason.NODE_REMOVED
    elif "node" in found and not proved.enrollment.reenroll:
        reason = reasons.Reason.NODE_REGISTERED
    elif "key" in found:
        reason = reasons.Reason.KEY_IN_USE
    return Examined(reason=reason, is_stale=found.get("token") != proved.enrollment.state.value)


async def register(
    tx: contract.Tx,
    *,
    enrolled: enroll.Enrolled,
    environment: str,
    now: datetime.datetime,
) -> Registered:
    """Writes the node's row, the action and the event.

    On a re-enrollment the old key ends here, at once: the row holds one key.
    """
    claim, enrollment = enrolled.claim, enrolled.redeemed.enrollment
    moment = clock.to_micros(now)
    row = await tx.fetch_one(
        "INSERT INTO nodes(node_id, infra, state, connectivity, certificate_pem, "
        "certificate_sha256, pin, generation, version, url, labels, reported_labels, "
        "enrollment_id, enrolled_at, adopted_epoch) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, COALESCE("
        "(SELECT CAST(value AS BIGINT) FROM platform_values WHERE name = 'epoch'), 0)) "
        "ON CONFLICT (node_id) DO UPDATE SET state = excluded.state, "
        "connectivity = excluded.connectivity, certificate_pem = excluded.certificate_pem, "
        "certificate_sha256 = excluded.certificate_sha256, pin = excluded.pin, "
        "generation = nodes.generation + 1, version = excluded.version, url = excluded.url, "
        "labels = CASE WHEN excluded.labels = '{}' THEN nodes.labels ELSE excluded.labels END, "
        "reported_labels = excluded.reported_labels, enrollment_id = excluded.enrollment_id, "
        "enrolled_at = excluded.enrolled_at, first_ready_at = NULL, last_seen_at = NULL, "
        "probe_answered_at = NULL, clock_offset_ms = NULL, reason = NULL, "
        "next_certificate_pem = NULL, next_certificate_sha256 = NULL, next_pin = NULL, "
        "next_since = NULL, former_certificate_pem = NULL, former_pin = NULL, "
        "adopted_epoch = excluded.adopted_epoch "
        "WHERE nodes.state <> 'removed' RETURNING generation",
        claim.node_id,
        enrollment.infra,
        states.State.ENROLLED.value,
        _DIAL_OUT if claim.url is None else _LISTEN,
        claim.certificate.pem,
        claim.certificate.sha256,
        claim.certificate.pin,
        claim.version,
        claim.url,
        _json_of(enrollment.labels),
        _json_of(claim.reported_labels),
        enrollment.enrollment_id,
        moment,
    )
    if row is None:  # removed by another engine between our look and our write: all is undone
        raise contract.StoreBusy("The node was being removed at this moment; try again.")
    if enrollment.reenroll:
        await sessions.forget(tx, node_id=claim.node_id)  # of the key that it had
    kind = "node.key-changed" if enrollment.reenroll else "node.enrolled"
    shown = {"enrollment_id": enrollment.enrollment_id, "pin": claim.certificate.pin}
    await _record(
        tx,
        enrollment=enrollment,
        kind=kind,
        data=shown,
        details={**shown, "version": claim.version, "url": claim.url},
        environment=environment,
        now=now,
    )
    return Registered(
        node_id=claim.node_id,
        generation=int(row["generation"]),
        url=claim.url,
        first_time=True,
        seal=_SEAL,
    )


async def repeat(
    tx: contract.Tx,
    *,
    proved: redeem.Proved,
    claim: enroll.Claim,
    operators: configured.ConfiguredNodes,
    environment: str,
    now: datetime.datetime,
) -> Registered | reasons.Reason:
    """The same node again for the same token and key; a reason once the node has moved on.

    The Agent's address and version are taken over only before the node was first ready: later,
    whoever holds an old token and the key must not be able to point the Platform elsewhere. Another
    certificate of the same key is taken over at any time: it proves the same, and the machine has
    lost the former or names other addresses in it. What is taken over stands in the log, so it is
    bounded: past `MOST_CHANGES_AN_HOUR` the node stays as it is.
    """
    row = await tx.fetch_one(
        "SELECT state, pin, generation, enrollment_id, url, version, first_ready_at, "
        "certificate_sha256 "
        "FROM nodes WHERE node_id = ?",
        claim.node_id,
    )
    if operators.holds(claim.node_id):
        return reasons.Reason.NODE_CONFIGURED
    if row is None or row["state"] == states.State.REMOVED.value:
        return reasons.Reason.NODE_REMOVED
    enrollment = proved.enrollment
    if row["pin"] != claim.certificate.pin or row["enrollment_id"] != enrollment.enrollment_id:
        return reasons.Reason.KEY_CHANGED
    url = row["url"]
    moves = row["first_ready_at"] is None and (url, row["version"]) != (claim.url, claim.version)
    renews = row["certificate_sha256"] != claim.certificate.sha256
    if (moves or renews) and await _may_change(tx, enrollment=enrollment, now=now):
        told = functools.partial(
            _record, tx, enrollment=enrollment, environment=environment, now=now
        )
        if moves and await _move(tx, row=row, claim=claim):
            await told(
                kind="node.address-changed",
                data={"url": claim.url},
                details={"url": claim.url, "version": claim.version, "former_url": url},
            )
            url = claim.url
        if renews and await _renew(tx, row=row, claim=claim):
            shown = {"certificate_sha256": claim.certificate.sha256}
            await told(kind="node.certificate-changed", data=shown, details=shown)
    return Registered(
        node_id=claim.node_id,
        generation=int(row["generation"]),
        url=url,
        first_time=False,
        seal=_SEAL,
    )


async def _may_change(
    tx: contract.Tx, *, enrollment: tokens.Enrollment, now: datetime.datetime
) -> bool:
    row = await tx.fetch_one(
        "SELECT COUNT(*) AS changes FROM action_log "
        "WHERE at > ? AND actor = ? AND action IN (?, ?)",
        clock.to_micros(now - datetime.timedelta(hours=1)),
        _actor(enrollment),
        *_CHANGES,
    )
    return row is not None and int(row["changes"]) < MOST_CHANGES_AN_HOUR


async def _move(tx: contract.Tx, *, row: contract.Row, claim: enroll.Claim) -> bool:
    """Writes address and version; False where another engine has changed them since the look."""
    changed = await tx.execute(
        "UPDATE nodes SET url = ?, version = ?, connectivity = ? "
        "WHERE node_id = ? AND pin = ? AND first_ready_at IS NULL AND version = ? "
        "AND url IS NOT DISTINCT FROM ?",
        claim.url,
        claim.version,
        _DIAL_OUT if claim.url is None else _LISTEN,
        claim.node_id,
        claim.certificate.pin,
        row["version"],
        row["url"],
    )
    return changed == 1


async def _renew(tx: contract.Tx, *, row: contract.Row, claim: enroll.Claim) -> bool:
    """Writes the certificate; False where another engine has changed it since the look."""
    changed = await tx.execute(
        "UPDATE nodes SET certificate_pem = ?, certificate_sha256 = ? "
        "WHERE node_id = ? AND pin = ? AND certificate_sha256 = ?",
        claim.certificate.pem,
        claim.certificate.sha256,
        claim.node_id,
        claim.certificate.pin,
        row["certificate_sha256"],
    )
    return changed == 1


def _json_of(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True) if labels else "{}"


async def _record(
    tx: contract.Tx,
    *,
    enrollment: tokens.Enrollment,
    kind: str,
    data: Mapping[str, Any],
    details: Mapping[str, Any],
    environment: str,
    now: datetime.datetime,
) -> None:
    """In the action log, in the name of the enrollment, and as an event."""
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=_actor(enrollment),
            action=kind,
            target=enrollment.node_id,
            infra=enrollment.infra,
            environment=environment,
            details=details,
        ),
    )
    await events.append(
        tx, at=now, kind=kind, subject=enrollment.node_id, infra=enrollment.infra, data=data
    )


def _actor(enrollment: tokens.Enrollment) -> str:
    return f"enrollment:{enrollment.enrollment_id}"
