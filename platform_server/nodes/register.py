"""The last stage of an enrollment: the node's row, in the transaction that spent the token.

`examine` asks everything about the node that can refuse, before the token is spent; `register`
takes the receipt of enrollment and cannot refuse any more. Its own receipt, `Registered`, is what
the answer is made from. `repeat` serves a machine that lost its answer: the same token and the
same key get the same node again, for as long as the node has that key.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Final

from platform_server.audit import actions, events
from platform_server.enrollment import enroll
from platform_server.nodes import configured, states
from platform_server.store import contract
from platform_server.tokens import reasons, redeem
from runtime_kit import clock
from wire_protocol import ids, pins


class _Seal:
    """Known to this module only: what makes a receipt ours."""


_SEAL: Final = _Seal()
_LISTEN: Final = "listen"
_DIAL_OUT: Final = "dial-out"


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


async def examine(
    tx: contract.Tx,
    *,
    proved: redeem.Proved,
    pin: pins.Pin,
    operators: configured.ConfiguredNodes,
) -> reasons.Reason | None:
    """Why this key may not become this node, though its token is good; None if it may."""
    node_id = proved.enrollment.node_id
    rows = await tx.fetch_all(
        "SELECT node_id, state, first_ready_at FROM nodes WHERE node_id = ? "
        "UNION ALL "
        "SELECT node_id, state, first_ready_at FROM nodes WHERE pin = ? AND node_id <> ? "
        "AND first_ready_at IS NOT NULL AND state <> 'removed' LIMIT 3",
        node_id,
        pin,
        node_id,
    )
    if operators.holds(node_id):
        return reasons.Reason.NODE_CONFIGURED
    if operators.has_key(pin):
        return reasons.Reason.KEY_IN_USE
    for row in rows:
        if row["node_id"] != node_id:
            return reasons.Reason.KEY_IN_USE
        if row["state"] == states.State.REMOVED.value:
            return reasons.Reason.NODE_REMOVED
        if not proved.enrollment.reenroll:
            return reasons.Reason.NODE_REGISTERED
    return None


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
        "enrollment_id, enrolled_at) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (node_id) DO UPDATE SET state = excluded.state, "
        "connectivity = excluded.connectivity, certificate_pem = excluded.certificate_pem, "
        "certificate_sha256 = excluded.certificate_sha256, pin = excluded.pin, "
        "generation = nodes.generation + 1, version = excluded.version, url = excluded.url, "
        "labels = CASE WHEN excluded.labels = '{}' THEN nodes.labels ELSE excluded.labels END, "
        "reported_labels = excluded.reported_labels, enrollment_id = excluded.enrollment_id, "
        "enrolled_at = excluded.enrolled_at, first_ready_at = NULL, last_seen_at = NULL, "
        "probe_answered_at = NULL, clock_offset_ms = NULL, reason = NULL "
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
    kind = "node.key-changed" if enrollment.reenroll else "node.enrolled"
    await _tell(tx, enrolled=enrolled, kind=kind, environment=environment, now=now)
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
    now: datetime.datetime,
) -> Registered | reasons.Reason:
    """The same node again for the same token and key; a reason once the node has moved on.

    The Agent's address and version are taken over only before the node was first ready: later,
    whoever holds an old token and the key must not be able to point the Platform elsewhere. Another
    certificate of the same key is taken over at any time: it proves the same, and the machine has
    lost the former or names other addresses in it.
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
    if (
        row["pin"] != claim.certificate.pin
        or row["enrollment_id"] != proved.enrollment.enrollment_id
    ):
        return reasons.Reason.KEY_CHANGED
    url = row["url"]
    if row["first_ready_at"] is None and (url, row["version"]) != (claim.url, claim.version):
        url = claim.url
        await tx.execute(
            "UPDATE nodes SET url = ?, version = ?, connectivity = ? "
            "WHERE node_id = ? AND pin = ? AND first_ready_at IS NULL",
            url,
            claim.version,
            _DIAL_OUT if url is None else _LISTEN,
            claim.node_id,
            claim.certificate.pin,
        )
        await events.append(
            tx,
            at=now,
            kind="node.address-changed",
            subject=claim.node_id,
            infra=proved.enrollment.infra,
            data={"url": url},
        )
    if row["certificate_sha256"] != claim.certificate.sha256:
        await tx.execute(
            "UPDATE nodes SET certificate_pem = ?, certificate_sha256 = ? "
            "WHERE node_id = ? AND pin = ?",
            claim.certificate.pem,
            claim.certificate.sha256,
            claim.node_id,
            claim.certificate.pin,
        )
        await events.append(
            tx,
            at=now,
            kind="node.certificate-changed",
            subject=claim.node_id,
            infra=proved.enrollment.infra,
            data={"certificate_sha256": claim.certificate.sha256},
        )
    return Registered(
        node_id=claim.node_id,
        generation=int(row["generation"]),
        url=url,
        first_time=False,
        seal=_SEAL,
    )


def _json_of(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True) if labels else "{}"


async def _tell(
    tx: contract.Tx,
    *,
    enrolled: enroll.Enrolled,
    kind: str,
    environment: str,
    now: datetime.datetime,
) -> None:
    claim, enrollment = enrolled.claim, enrolled.redeemed.enrollment
    details = {"enrollment_id": enrollment.enrollment_id, "pin": claim.certificate.pin}
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=f"enrollment:{enrollment.enrollment_id}",
            action=kind,
            target=claim.node_id,
            infra=enrollment.infra,
            environment=environment,
            details={**details, "version": claim.version, "url": claim.url},
        ),
    )
    await events.append(
        tx, at=now, kind=kind, subject=claim.node_id, infra=enrollment.infra, data=details
    )
