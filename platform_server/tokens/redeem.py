"""Redeeming a token: proving the secret, judging it, and the one write that spends it.

`prove` and `judge` only look; everything else that can refuse an enrollment is asked between them
and `redeem`. `redeem` is a single conditional UPDATE: whoever sees its row come back has won, of
any number of machines that try at once, on either store. Its receipt, `Redeemed`, can be made by
this module alone, so a later stage cannot be reached around it.
"""

import dataclasses
import datetime
import hmac
from typing import Final

from platform_server.store import contract
from platform_server.tokens import reasons, records, states
from runtime_kit import clock
from wire_protocol import enrollment_token, ids, pins

_NOBODYS_HASH: Final = bytes(32)  # SHA-256 has no known input for it; compared for unknown ids


class _Seal:
    """Known to this module only: what makes a receipt ours."""


_SEAL: Final = _Seal()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """An enrollment whose secret the caller has shown. Nothing has been spent."""

    enrollment: records.Enrollment
    seal: _Seal = dataclasses.field(repr=False, compare=False)

    def __post_init__(self) -> None:
        _require_ours(self.seal)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Redeemed:
    """The token was spent, by this key, at this moment, in this transaction."""

    enrollment: records.Enrollment
    pin: pins.Pin
    redeemed_at: datetime.datetime
    seal: _Seal = dataclasses.field(repr=False, compare=False)

    def __post_init__(self) -> None:
        _require_ours(self.seal)


async def prove(
    tx: contract.Tx, *, token: enrollment_token.EnrollmentToken
) -> Proved | reasons.Reason:
    """Looks the token up by its id and compares its secret in constant time.

    An unknown id costs the same comparison, so that ids cannot be told apart by the clock.
    """
    enrollment = await records.find(tx, enrollment_id=token.enrollment_id)
    stored = _NOBODYS_HASH if enrollment is None else enrollment.token_hash
    same = hmac.compare_digest(stored, token.stored_hash())
    if enrollment is None:
        return reasons.Reason.UNKNOWN_TOKEN
    if not same:
        return reasons.Reason.WRONG_SECRET
    return Proved(enrollment=enrollment, seal=_SEAL)


def judge(
    proved: Proved,
    *,
    node_id: ids.NodeId,
    address: str | None,
    now: datetime.datetime,
) -> reasons.Reason | None:
    """Why this token, though its secret is right, opens nothing; None if it does.

    A consumed one is `ALREADY_USED` here; the caller first asks `is_repeat`.
    """
    enrollment = proved.enrollment
    if enrollment.node_id != node_id:
        return reasons.Reason.WRONG_NODE
    if not enrollment.admits(address):
        return reasons.Reason.SOURCE_ADDRESS
    return _ENDED.get(enrollment.state_at(now))


def is_repeat(proved: Proved, *, pin: pins.Pin) -> bool:
    """Whether this very key has spent this very token: the machine asks for its answer again."""
    enrollment = proved.enrollment
    return enrollment.state is states.State.CONSUMED and enrollment.consumed_pin == pin


async def redeem(
    tx: contract.Tx, *, proved: Proved, pin: pins.Pin, now: datetime.datetime
) -> Redeemed | None:
    """Spends the token; None when somebody else was faster or its time has just passed."""
    moment = clock.to_micros(now)
    row = await tx.fetch_one(
        "UPDATE enrollments SET state = ?, consumed_at = ?, consumed_pin = ?, ended_at = ? "
        "WHERE enrollment_id = ? AND state = ? AND expires_at > ? RETURNING node_id",
        states.after(states.State.PENDING, states.Event.REDEEM).value,
        moment,
        pin,
        moment,
        proved.enrollment.enrollment_id,
        states.before(states.Event.REDEEM).value,
        moment,
    )
    if row is None:
        return None
    return Redeemed(enrollment=proved.enrollment, pin=pin, redeemed_at=now, seal=_SEAL)


_ENDED: Final = {
    states.State.CONSUMED: reasons.Reason.ALREADY_USED,
    states.State.REPLACED: reasons.Reason.REPLACED,
    states.State.REVOKED: reasons.Reason.REVOKED,
    states.State.EXPIRED: reasons.Reason.EXPIRED,
}


def _require_ours(seal: _Seal) -> None:
    if seal is not _SEAL:
        raise TypeError("Only platform_server.tokens.redeem makes this receipt.")
