"""The middle stage: a redeemed token and a proved certificate make an enrollment complete.

Takes the receipt of `tokens.redeem` and gives `Enrolled`, which only this module makes and only
`nodes.register` takes. The audit line is written here, in the same transaction.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Final

from platform_server.enrollment import attempts, certificate
from platform_server.store import contract
from platform_server.tokens import redeem
from wire_protocol import ids


class _Seal:
    """Known to this module only: what makes a receipt ours."""


_SEAL: Final = _Seal()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the machine says of itself, in the shape that was checked at the door."""

    node_id: ids.NodeId
    certificate: certificate.MachineCertificate
    version: str
    url: str | None
    reported_labels: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """The machine may become this node: token spent, key proved, attempt recorded."""

    redeemed: redeem.Redeemed
    claim: Claim
    seal: _Seal = dataclasses.field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("Only platform_server.enrollment.enroll makes this receipt.")


async def enroll(
    tx: contract.Tx,
    *,
    redeemed: redeem.Redeemed,
    claim: Claim,
    now: datetime.datetime,
    cap: attempts.Cap,
) -> Enrolled:
    """Joins the spent token and the claim.

    Both must speak of the same key and node: the door has checked that before spending the token,
    so a difference here is a fault of ours and undoes the transaction.
    """
    if redeemed.pin != claim.certificate.pin or redeemed.enrollment.node_id != claim.node_id:
        raise AssertionError("A token was redeemed for another key or node than it is used for.")
    await attempts.record(
        tx,
        outcome=attempts.Outcome.ENROLLED,
        reason=None,
        node_id=claim.node_id,
        version=claim.version,
        infra=redeemed.enrollment.infra,
        now=now,
        cap=cap,
    )
    return Enrolled(redeemed=redeemed, claim=claim, seal=_SEAL)
