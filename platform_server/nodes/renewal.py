"""A node's next certificate: handed in over its proven session, counted once it was seen in use.

Between the two both certificates open: whatever answer is lost, the machine holds one that counts
(lessons D2). The one that was replaced is remembered for one more round, so that a copy that still
has it can be told what it is instead of a failed handshake.
"""

import dataclasses
import datetime
from typing import Final

from cryptography.hazmat.primitives import serialization

from platform_server.audit import actions, events
from platform_server.enrollment import certificate as certificates
from platform_server.nodes import configured
from platform_server.store import contract
from runtime_kit import clock, crash_points
from wire_protocol import ids, pins
from wire_protocol import renewal as wire

BEGUN: Final = "node.renewal-begun"
RENEWED: Final = "node.certificate-renewed"
REKEYED: Final = "node.key-renewed"

STORED = crash_points.declare(
    "renewal.stored", story="the next certificate is written, the transaction is not committed"
)
PROMOTED = crash_points.declare(
    "renewal.promoted", story="the next certificate has become the present one, not committed"
)


class Refused(Exception):
    """The certificate cannot become this node's; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A certificate of the right shape, and whether the key that is proved has signed it."""

    certificate: certificates.MachineCertificate
    signed_by_present: bool


def read(request: wire.Request, *, proved: certificates.MachineKey) -> Offered:
    """Judges what a request says by itself, before the store is asked; raises `Refused`."""
    try:
        offered = certificates.read(request.certificate_pem)
    except certificates.Malformed as fault:
        raise Refused(str(fault)) from fault
    if not certificates.is_signed_by_itself(offered):
        raise Refused("The new certificate is not signed by its own key.")
    signed = request.signature is not None and wire.is_signed_by(
        proved, _der_of(offered), signature=request.signature
    )
    return Offered(certificate=offered, signed_by_present=signed)


async def grant(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    proved_pin: pins.Pin,
    offered: Offered,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
) -> bool:
    """Writes the node's next certificate; raises `Refused`. False where it was there already.

    `proved_pin` is the key with which the asking connection was opened.
    """
    new = offered.certificate
    await tx.lock(f"node:{node_id}")
    row = await tx.fetch_one(
        "SELECT infra, pin, certificate_sha256, next_pin, next_certificate_sha256 FROM nodes "
        "WHERE node_id = ? AND state <> 'removed'",
        node_id,
    )
    if row is None or proved_pin not in (row["pin"], row["next_pin"]):
        raise Refused("The key of this connection is not the node's any more.")
    if new.pin != proved_pin and not offered.signed_by_present:
        raise Refused("Another key must be signed by the present one.")
    if new.sha256 in (row["certificate_sha256"], row["next_certificate_sha256"]):
        return False
    if new.pin not in (row["pin"], row["next_pin"]):
        await _require_free(tx, node_id=node_id, pin=new.pin, operators=operators)
    await tx.execute(
        "UPDATE nodes SET next_certificate_pem = ?, next_certificate_sha256 = ?, next_pin = ?, "
        "next_since = ? WHERE node_id = ?",
        new.pem,
        new.sha256,
        new.pin,
        clock.to_micros(now),
        node_id,
    )
    await events.append(
        tx,
        at=now,
        kind=BEGUN,
        subject=node_id,
        infra=row["infra"],
        data={"certificate_sha256": new.sha256},
    )
    crash_points.reach(STORED)
    return True


async def promote(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    certificate_sha256: str,
    environment: str,
    now: datetime.datetime,
) -> pins.Pin | None:
    """The next certificate has been seen in use: it is the node's from now on; gives its key's pin.

    None where it is not the node's next one (any more). The old one ends with this commit.
    """
    row = await tx.fetch_one(
        "UPDATE nodes SET former_certificate_pem = certificate_pem, former_pin = pin, "
        "certificate_pem = next_certificate_pem, certificate_sha256 = next_certificate_sha256, "
        "pin = next_pin, next_certificate_pem = NULL, next_certificate_sha256 = NULL, "
        "next_pin = NULL, next_since = NULL "
        "WHERE node_id = ? AND next_certificate_sha256 = ? AND state <> 'removed' "
        "RETURNING infra, pin, former_pin",
        node_id,
        certificate_sha256,
    )
    if row is None:
        return None
    kind = RENEWED if row["pin"] == row["former_pin"] else REKEYED
    shown = {"certificate_sha256": certificate_sha256, "pin": row["pin"]}
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=f"node:{node_id}",
            action=kind,
            target=node_id,
            infra=row["infra"],
            environment=environment,
            details=shown,
        ),
    )
    await events.append(tx, at=now, kind=kind, subject=node_id, infra=row["infra"], data=shown)
    crash_points.reach(PROMOTED)
    return pins.Pin(row["pin"])


async def _require_free(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    pin: pins.Pin,
    operators: configured.ConfiguredNodes,
) -> None:
    taken = await tx.fetch_one(
        "SELECT node_id FROM nodes WHERE (pin = ? OR next_pin = ?) AND node_id <> ? LIMIT 1",
        pin,
        pin,
        node_id,
    )
    if taken is not None or operators.has_key(pin):
        raise Refused("That key is another node's.")


def _der_of(offered: certificates.MachineCertificate) -> bytes:
    return offered.parsed.public_bytes(serialization.Encoding.DER)
