"""What the two ends of a session say: whole over the wire, refused out of shape."""

import dataclasses
import datetime
import json
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from tests.support import domain
from wire_protocol import heartbeats, ids, renewal, session, strict_json

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HELLO = session.Hello(
    node_id=ids.parse_node_id("web-1"),
    generation=3,
    epoch=1,
    version="0.1.0",
    instance="a" * 16,
    purpose=session.Purpose.SESSION,
    statement=(1, 4),
)
WELCOME = session.Welcome(
    session_id="b" * 16,
    generation=4,
    epoch=1,
    statement=(1, 5),
    heartbeat_seconds=30,
    certificate_days=90,
    now=NOW,
)
BEAT = heartbeats.Heartbeat(
    version="0.1.0",
    now=NOW,
    uptime_seconds=12,
    load_milli=(100, 200, 300),
    capacity=heartbeats.Capacity(cpu_count=2, memory_bytes=2**31, disk_bytes=2**40),
    memory_available_bytes=2**30,
    disk_free_bytes=2**39,
    trust_keys=(ids.parse_key_id("0123456789abcdef"),),
    statement=(1, 5),
    mesh=heartbeats.MeshState(state="up", handshake_age_seconds=3),
)
PULSE = session.Pulse(statement=(1, 5), now=NOW)
READERS: tuple[Callable[[bytes], object], ...] = (
    session.parse_hello,
    session.parse_welcome,
    session.parse_confirm,
    session.parse_pulse,
    heartbeats.parse,
    renewal.parse_request,
    renewal.parse_granted,
)


def test_every_message_is_the_same_after_crossing_the_wire() -> None:
    assert session.parse_hello(HELLO.to_bytes()) == HELLO
    assert session.parse_welcome(WELCOME.to_bytes()) == WELCOME
    assert session.parse_confirm(session.Confirm(generation=4).to_bytes()).generation == 4
    assert session.parse_pulse(PULSE.to_bytes()) == PULSE
    assert heartbeats.parse(BEAT.to_bytes()) == BEAT


def test_an_uptime_longer_than_any_calendar_is_no_heartbeat() -> None:
    claimed = dataclasses.replace(BEAT, uptime_seconds=heartbeats.LONGEST_UPTIME_SECONDS + 1)
    with pytest.raises(strict_json.Malformed, match="uptime_seconds"):
        heartbeats.parse(claimed.to_bytes())


@pytest.mark.parametrize("read", READERS)
@given(raw=st.binary(max_size=200) | st.just(b"{}") | st.just(b"[]") | st.just(b"null"))
def test_anything_else_is_malformed_and_nothing_worse(
    read: Callable[[bytes], object], raw: bytes
) -> None:
    with pytest.raises(strict_json.Malformed):
        read(raw)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol", 2),
        ("generation", -1),
        ("generation", True),
        ("generation", 2**60),
        ("purpose", "both"),
        ("statement", [1]),
        ("statement", [1, -1]),
        ("node_id", "-web"),
        ("instance", "x" * 65),
    ],
)
def test_a_hello_with_one_field_out_of_shape_is_malformed(name: str, value: object) -> None:
    raw = json.dumps({**json.loads(HELLO.to_bytes()), name: value}).encode()
    with pytest.raises(strict_json.Malformed):
        session.parse_hello(raw)


def test_a_key_change_is_signed_by_the_present_key_over_the_new_certificate() -> None:
    present, other = ec.generate_private_key(ec.SECP256R1()), domain.new_key()
    der = x509.load_pem_x509_certificate(domain.certificate_of(other).encode()).public_bytes(
        serialization.Encoding.DER
    )
    signature = renewal.sign(present, der)
    assert renewal.is_signed_by(present.public_key(), der, signature=signature)
    assert not renewal.is_signed_by(other.public_key(), der, signature=signature)
    assert not renewal.is_signed_by(present.public_key(), der + b"x", signature=signature)
    assert not renewal.is_signed_by(present.public_key(), der, signature=b"")
    assert not renewal.is_signed_by("no key", der, signature=signature)
