"""Which trust statements a machine believes: a table of sentences to rows (design, rule 6)."""

import base64
import dataclasses
import datetime
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from wire_protocol import ids, pins, signing, statements, trust

DAY = datetime.timedelta(days=1)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
PLATFORM = ids.PlatformId("plt_1")
PIN = pins.Pin("sha256:" + "00" * 32)


class Key:
    """A trust key with both halves, valid for a year from a given day."""

    def __init__(self, first_day: int) -> None:
        self.private = ed25519.Ed25519PrivateKey.generate()
        raw = signing.public_bytes(self.private.public_key())
        self.public = statements.TrustKey(
            key_id=signing.key_id_of(raw),
            public_key=raw,
            not_before=START + first_day * DAY,
            not_after=START + (first_day + 365) * DAY,
            certificate_pem="",
        )


A, B, C, D = Key(0), Key(335), Key(670), Key(1005)
STRANGER = Key(0)


def statement(
    *keys: Key,
    day: int,
    serial: int,
    signed_by: tuple[Key, ...],
    platform: ids.PlatformId = PLATFORM,
    epoch: int = 1,
    context: str = signing.TRUST_CONTEXT,
) -> statements.SignedStatement:
    content = statements.Statement(
        platform_id=platform,
        epoch=epoch,
        serial=serial,
        issued_at=START + day * DAY,
        trust_keys=tuple(key.public for key in keys),
        enrollment_pins=(PIN,),
        gateway_pins=(),
        enrollment_url="https://p.example:8444",
        gateway_urls=(),
    ).to_bytes()
    return statements.SignedStatement(
        content=content,
        signatures=tuple(
            statements.Signature(
                key_id=key.public.key_id,
                signature=signing.sign(key.private, content, context=context),
            )
            for key in signed_by
        ),
    )


def held(signed: statements.SignedStatement) -> trust.Held:
    return trust.Held(signed=signed, statement=statements.parse_statement(signed.content))


FIRST = statement(A, day=1, serial=1, signed_by=(A,))
BOTH = statement(A, B, day=340, serial=2, signed_by=(A, B))
ONLY_B = statement(B, day=370, serial=3, signed_by=(B,))
B_AND_C = statement(B, C, day=680, serial=4, signed_by=(B, C))
ONLY_C = statement(C, day=720, serial=5, signed_by=(C,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What is held, what is offered with which chain on which day; the fault, or None."""

    holding: statements.SignedStatement = FIRST
    offered: statements.SignedStatement
    chain: tuple[statements.SignedStatement, ...] = ()
    day: int = 340
    fault: str | None = None


CASES = {
    "the same statement again changes nothing": Case(offered=FIRST),
    "a next key signed by the held one is taken": Case(offered=BOTH),
    "the old key may be gone once the next was held": Case(holding=BOTH, offered=ONLY_B, day=380),
    "a machine away for one rotation follows the chain": Case(
        offered=ONLY_B, chain=(BOTH, ONLY_B), day=380
    ),
    "a machine away for two rotations follows the chain": Case(
        offered=ONLY_C, chain=(BOTH, ONLY_B, B_AND_C, ONLY_C), day=730
    ),
    "stepping stones may have no key valid any more": Case(
        offered=ONLY_C, chain=(BOTH, B_AND_C), day=730
    ),
    "a missing stepping stone leaves the machine where it is": Case(
        offered=ONLY_C, chain=(BOTH, ONLY_C), day=730, fault="already holds"
    ),
    "a stone that cannot be read does not hinder the others": Case(
        offered=ONLY_B,
        chain=(statements.SignedStatement(content=b"{", signatures=()), BOTH),
        day=380,
    ),
    "stones out of order bear only upwards": Case(
        offered=ONLY_C, chain=(B_AND_C, BOTH), day=730, fault="already holds"
    ),
    "a stranger's signature is not believed": Case(
        offered=statement(STRANGER, day=340, serial=2, signed_by=(STRANGER,)),
        fault="already holds",
    ),
    "a stranger's key under the held key's id is not believed": Case(
        offered=dataclasses.replace(
            statement(A, B, day=340, serial=2, signed_by=()),
            signatures=(statements.Signature(key_id=A.public.key_id, signature=b"\x00" * 64),),
        ),
        fault="already holds",
    ),
    "the next key alone cannot sign itself in": Case(
        offered=statement(A, B, day=340, serial=2, signed_by=(B,)), fault="already holds"
    ),
    "a statement without signatures is not believed": Case(
        offered=statement(A, B, day=340, serial=2, signed_by=()), fault="already holds"
    ),
    "a signature made for another purpose does not count": Case(
        offered=statement(A, B, day=340, serial=2, signed_by=(A,), context="enlist-order-v1"),
        fault="already holds",
    ),
    "another Platform's statement is refused": Case(
        offered=statement(A, day=340, serial=9, signed_by=(A,), platform=ids.PlatformId("plt_2")),
        fault="another Platform's",
    ),
    "an older serial is refused": Case(
        holding=BOTH, offered=FIRST, fault="older than the one held"
    ),
    "a lower epoch is refused even with a higher serial": Case(
        holding=statement(A, day=1, serial=1, signed_by=(A,), epoch=2),
        offered=statement(A, day=2, serial=9, signed_by=(A,), epoch=1),
        fault="older than the one held",
    ),
    "a higher epoch is taken with a lower serial": Case(
        holding=BOTH, offered=statement(A, B, day=341, serial=1, signed_by=(A,), epoch=2)
    ),
    "two different statements under one number are refused": Case(
        offered=statement(A, day=2, serial=1, signed_by=(A,)), fault="Two different statements"
    ),
    "a set in which no key is valid now is refused": Case(
        offered=statement(A, day=300, serial=2, signed_by=(A,)),
        day=400,
        fault="No key in the statement is valid now",
    ),
    "an ended key that signed in its time still bears": Case(
        offered=statement(A, B, day=360, serial=2, signed_by=(A,)), day=400
    ),
    "an ended key that signed after its end does not": Case(
        offered=statement(A, B, day=366, serial=2, signed_by=(A,)),
        day=400,
        fault="already holds",
    ),
    "a set of no keys is refused": Case(
        offered=statement(day=340, serial=2, signed_by=(A,)), fault="valid now"
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_a_statement_is_believed_only_under_the_rules(sentence: str) -> None:
    case = CASES[sentence]
    before = held(case.holding)
    answer = statements.TrustAnswer(present=case.offered, chain=case.chain)
    now = START + case.day * DAY
    if case.fault is None:
        assert trust.accept(before, answer, now=now).signed == case.offered
    else:
        with pytest.raises(trust.Refused, match=case.fault):
            trust.accept(before, answer, now=now)


def test_any_changed_byte_of_a_statement_breaks_its_signature() -> None:
    for place in range(0, len(BOTH.content), 7):
        changed = bytearray(BOTH.content)
        changed[place] ^= 1
        answer = statements.TrustAnswer(
            present=dataclasses.replace(BOTH, content=bytes(changed)), chain=()
        )
        with pytest.raises(trust.Refused):
            trust.accept(held(FIRST), answer, now=START + 340 * DAY)


def test_the_first_set_rests_on_the_connection() -> None:
    answer = statements.TrustAnswer(present=FIRST, chain=())
    assert trust.accept_first(answer, trust_key_ids=()).signed == FIRST


def test_the_first_set_is_judged_by_the_platforms_clock() -> None:
    """A machine whose clock is years off can still join (lessons A2, A6)."""
    answer = statements.TrustAnswer(present=BOTH, chain=())
    assert trust.accept_first(answer, trust_key_ids=(A.public.key_id,)).signed == BOTH


FIRST_REFUSED: dict[str, Callable[[], tuple[statements.SignedStatement, tuple[ids.KeyId, ...]]]] = {
    "a set without the key that the join token names": lambda: (
        statement(B, day=340, serial=1, signed_by=(B,)), (A.public.key_id,)
    ),
    "a set with the named key, signed by another": lambda: (
        statement(A, B, day=340, serial=1, signed_by=(B,)), (A.public.key_id,)
    ),
    "a set that nobody signed": lambda: (statement(A, day=1, serial=1, signed_by=()), ()),
    "a set whose keys had ended when it was issued": lambda: (
        statement(A, day=400, serial=1, signed_by=(A,)), ()
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", FIRST_REFUSED)
def test_the_first_set_is_refused(sentence: str) -> None:
    signed, named = FIRST_REFUSED[sentence]()
    with pytest.raises(trust.Refused):
        trust.accept_first(statements.TrustAnswer(present=signed, chain=()), trust_key_ids=named)


def test_keys_that_end_first_come_first() -> None:
    valid = held(BOTH).keys_valid_at(START + 340 * DAY)
    assert [key.key_id for key in valid] == [A.public.key_id, B.public.key_id]


def test_an_answer_reads_back_from_the_wire() -> None:
    body = {**BOTH.to_wire(), "chain": [FIRST.to_wire()], "more": "from a newer Platform"}
    answer = statements.parse_answer(json.dumps(body).encode())
    assert answer == statements.TrustAnswer(present=BOTH, chain=(FIRST,))


def test_a_key_whose_id_is_not_its_hash_is_malformed() -> None:
    wire = A.public.to_wire()
    wire["key_id"] = "0" * 16
    with pytest.raises(ValueError, match="hash of its public key"):
        statements.parse_trust_keys([wire])


def test_a_signature_of_another_length_is_no_signature() -> None:
    assert not signing.is_signed_by(
        A.public.public_key, b"x", signature=base64.b64decode("AAAA"), context="c"
    )
