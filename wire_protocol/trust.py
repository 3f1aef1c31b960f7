"""Whether a machine believes a trust statement: bytes in, verdict out.

The rules, in the order in which they are asked (design, rule 6):

1. a size stands before any parsing;
2. the statement is this Platform's;
3. its number (epoch, serial) is not lower than the one held, and an equal one is the same bytes;
4. a key already held signed it; that key's window is judged at the statement's `issued_at`,
   so that a machine which was away for long can still follow;
5. one key in it is valid now.

A machine that was away for two rotations follows the chain: each statement in it may be a
stepping stone, believed by the keys of the one before, even if no key in it is valid any more.

Only the first set may rest on the connection alone, and then on the key ids of the join token
where there are any. Known limit: a thief of a trust key's private half can back-date a statement;
docs/threats.md says what follows.
"""

import dataclasses
import datetime
from collections.abc import Collection, Iterable

from wire_protocol import ids, signing, statements, strict_json


class Refused(Exception):
    """The statement is not believed; what the machine holds stays as it is."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The set that a machine holds: the statement, parsed and as the bytes that were signed."""

    signed: statements.SignedStatement
    statement: statements.Statement

    def keys_valid_at(self, moment: datetime.datetime) -> tuple[statements.TrustKey, ...]:
        """The keys whose window holds the moment, those that end first before the others."""
        valid = [key for key in self.statement.trust_keys if key.is_valid_at(moment)]
        return tuple(sorted(valid, key=lambda key: key.not_after))


def accept_first(answer: statements.TrustAnswer, *, trust_key_ids: Collection[ids.KeyId]) -> Held:
    """The first set, from an authenticated connection.

    Dates are judged at the statement's own `issued_at`: the Platform's clock, since the machine's
    may be wrong on its first day. Where the join token named key ids, one of them must have
    signed. Raises `Refused`.
    """
    held = _read(answer.present)
    statement = held.statement
    signers = [key for key in statement.trust_keys if key.is_valid_at(statement.issued_at)]
    if not signers:
        raise Refused("No key in the trust set is valid at the time it was issued.")
    if trust_key_ids:
        signers = [key for key in signers if key.key_id in trust_key_ids]
        if not signers:
            raise Refused(
                "None of the trust keys that the join token names is in the Platform's answer: "
                "ask for a new join token, and if that is refused too, someone else answers."
            )
    _require_signature(held, by=signers)
    return held


def accept(held: Held, answer: statements.TrustAnswer, *, now: datetime.datetime) -> Held:
    """The set to hold after this answer: the new one, or the old one if nothing changed.

    Raises `Refused` with the reason; the caller keeps what it holds.
    """
    offered = _read(answer.present)
    if offered.statement.platform_id != held.statement.platform_id:
        raise Refused("The statement is another Platform's.")
    if offered.statement.number < held.statement.number:
        raise Refused(
            f"The statement {_numbered(offered)} is older than the one held, {_numbered(held)}."
        )
    if offered.statement.number == held.statement.number:
        if offered.signed.content != held.signed.content:
            raise Refused(f"Two different statements carry the number {_numbered(held)}.")
        return held
    believed = _follow(held, answer.chain, until=offered)
    _require_signature(offered, by=believed.statement.trust_keys)
    if not offered.keys_valid_at(now):
        raise Refused("No key in the statement is valid now.")
    return offered


def _follow(held: Held, chain: Iterable[statements.SignedStatement], *, until: Held) -> Held:
    """Walks the stepping stones that lead from the held set towards the offered one."""
    believed = held
    for signed in chain:
        try:
            step = _read(signed)
        except Refused:
            continue  # a stone that cannot be read bears nobody; the others may still do
        statement = step.statement
        if (
            statement.platform_id == held.statement.platform_id
            and believed.statement.number < statement.number < until.statement.number
            and _is_signed(step, by=believed.statement.trust_keys)
        ):
            believed = step
    return believed


def _require_signature(offered: Held, *, by: Iterable[statements.TrustKey]) -> None:
    if not _is_signed(offered, by=by):
        raise Refused("No trust key that this machine already holds signed the statement.")


def _is_signed(offered: Held, *, by: Iterable[statements.TrustKey]) -> bool:
    keys = {key.key_id: key for key in by if key.is_valid_at(offered.statement.issued_at)}
    return any(
        signature.key_id in keys
        and signing.is_signed_by(
            keys[signature.key_id].public_key,
            offered.signed.content,
            signature=signature.signature,
            context=signing.TRUST_CONTEXT,
        )
        for signature in offered.signed.signatures
    )


def _read(signed: statements.SignedStatement) -> Held:
    try:
        return Held(signed=signed, statement=statements.parse_statement(signed.content))
    except strict_json.Malformed as fault:
        raise Refused(f"The statement cannot be read: {fault}") from fault


def _numbered(held: Held) -> str:
    return f"{held.statement.epoch}.{held.statement.serial}"
