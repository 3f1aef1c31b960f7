"""Orders: judged over exact bytes, by a key trusted now, for this node, in time, once."""

import dataclasses
import datetime
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from wire_protocol import ids, orders, signing, statements, strict_json

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
PLATFORM = ids.PlatformId("0" * 32)
NODE = ids.parse_node_id("web-1")
ORDER = orders.Order(
    platform_id=PLATFORM,
    epoch=1,
    sequence=7,
    node_id=NODE,
    agent_id=ids.agent_id_of(NODE),
    expires_at=NOW + DAY,
    kind="refresh-trust",
    content={"why": "asked"},
)
KEY = ed25519.Ed25519PrivateKey.generate()
STRANGER = ed25519.Ed25519PrivateKey.generate()


def _trust_key(
    key: ed25519.Ed25519PrivateKey = KEY, *, ends: datetime.datetime = NOW + DAY
) -> statements.TrustKey:
    public = signing.public_bytes(key.public_key())
    return statements.TrustKey(
        key_id=signing.key_id_of(public),
        public_key=public,
        not_before=NOW - DAY,
        not_after=ends,
        certificate_pem="",
    )


def _signed(
    content: bytes, *, key: ed25519.Ed25519PrivateKey = KEY, context: str = orders.CONTEXT
) -> orders.SignedOrder:
    public = signing.public_bytes(key.public_key())
    signature = statements.Signature(
        key_id=signing.key_id_of(public), signature=signing.sign(key, content, context=context)
    )
    return orders.SignedOrder(content=content, signatures=(signature,))


def _judge(
    signed: orders.SignedOrder,
    *,
    last: tuple[int, int] = (1, 6),
    trust: tuple[statements.TrustKey, ...] = (_trust_key(),),
    now: datetime.datetime = NOW,
) -> orders.Order:
    return orders.judge(
        signed, platform_id=PLATFORM, node_id=NODE, trust_keys=trust, last=last, now=now
    )


def test_an_order_crosses_the_wire_and_is_believed() -> None:
    raw = _signed(ORDER.to_bytes()).to_bytes()
    assert _judge(orders.parse_signed(raw)) == ORDER


def _other(**fields: object) -> orders.SignedOrder:
    return _signed(dataclasses.replace(ORDER, **fields).to_bytes())  # type: ignore[arg-type]


REFUSED = {
    "nobody signed it": (orders.SignedOrder(content=ORDER.to_bytes(), signatures=()), "No trust"),
    "a stranger signed it": (_signed(ORDER.to_bytes(), key=STRANGER), "No trust key"),
    "the signature is for a trust statement": (
        _signed(ORDER.to_bytes(), context=signing.TRUST_CONTEXT),
        "No trust key",
    ),
    "it is another Platform's": (_other(platform_id="1" * 32), "another Platform"),
    "it is for another node": (_other(node_id=ids.parse_node_id("web-2")), "another node"),
    "it is for another Agent": (_other(agent_id=ids.AgentId("agent-web-2")), "another node"),
    "its time is over": (_other(expires_at=NOW), "expired"),
    "it was taken already": (_other(sequence=6), "not newer"),
    "a later one was taken": (_other(sequence=1), "not newer"),
    "it is from before a restore": (_other(epoch=0, sequence=99), "not newer"),
    "it is of a later version": (
        _signed(json.dumps({**json.loads(ORDER.to_bytes()), "version": 2}).encode()),
        "version",
    ),
    "it is no order": (_signed(b"[]"), "cannot be read"),
}


@pytest.mark.parametrize(("signed", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_an_order_is_refused_when(signed: orders.SignedOrder, word: str) -> None:
    with pytest.raises(orders.Refused, match=word):
        _judge(signed)


def test_an_order_by_a_key_whose_window_is_over_is_refused() -> None:
    with pytest.raises(orders.Refused, match="No trust key that is valid now"):
        _judge(_signed(ORDER.to_bytes()), trust=(_trust_key(ends=NOW - DAY / 2),))


def test_after_a_restore_the_first_order_of_the_new_epoch_is_newer() -> None:
    assert _judge(_other(epoch=2, sequence=1), last=(1, 900)).number == (2, 1)


def test_one_changed_byte_is_enough_to_refuse() -> None:
    signed = _signed(ORDER.to_bytes())
    changed = signed.content.replace(b"asked", b"askeD")
    with pytest.raises(orders.Refused):
        _judge(dataclasses.replace(signed, content=changed))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"order":"!","signatures":[]}'])
def test_an_envelope_out_of_shape_is_malformed(raw: bytes) -> None:
    with pytest.raises(strict_json.Malformed):
        orders.parse_signed(raw)


def test_a_result_crosses_the_wire_with_its_sentence_cut() -> None:
    result = orders.Result(epoch=1, sequence=7, is_done=False, detail="x" * 5000)
    assert orders.parse_result(result.to_bytes()).detail == "x" * 1024
