"""The mesh on the wire: keys, grants and endpoints in their one form."""

import base64
import ipaddress
import json

import pytest

from runtime_kit import secret
from runtime_kit.wireguard import keys
from wire_protocol import mesh, strict_json

KEY = keys.public_key_of(secret.Secret(base64.b64encode(bytes(range(32))).decode()))
GRANT = mesh.Grant(
    address=ipaddress.ip_address("fd00::5"),
    network=ipaddress.ip_network("fd00::/64"),
    platform_address=ipaddress.ip_address("fd00::1"),
    platform_public_key=KEY,
    endpoint=mesh.Endpoint(host="p.test", port=51820),
    keepalive_seconds=25,
    mtu=1280,
)


SMALL_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 44,
        KEY[:-1],
        KEY + "\n",
        KEY.replace("=", ""),
        "-" + KEY[1:],
        base64.b64encode(bytes(31)).decode(),
        KEY[:-2] + chr(ord(KEY[-2]) + 1) + "=",  # the same bytes, another text
        *[base64.b64encode(point).decode() for point in SMALL_ORDER],
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="WireGuard"):
        mesh.parse_public_key(text)


def test_a_grant_and_a_question_come_back_as_they_were_sent() -> None:
    for answer in (mesh.Answer(), mesh.Answer(grant=GRANT), mesh.Answer(refused=mesh.KEY_IN_USE)):
        assert mesh.parse_answer(answer.to_bytes()) == answer
    request = mesh.Request(public_key=KEY)
    assert mesh.parse_request(request.to_bytes()) == request


WRONG: dict[str, dict[str, object]] = {
    "an address outside the network": {"address": "fd01::5"},
    "the Platform's address outside the network": {"platform_address": "fd01::1"},
    "the Platform's own address": {"address": "fd00::1"},
    "a network with host bits": {"network": "fd00::1/64"},
    "no endpoint": {"endpoint": "p.test"},
    "an endpoint with a path": {"endpoint": "p.test/x:1"},
    "an option in place of a host": {"endpoint": "-x:1"},
    "no key": {"platform_public_key": "AAAA"},
    "no keepalive": {"keepalive_seconds": 0},
    "a packet too small for IPv6": {"mtu": 576},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_grant_is_refused_that_has(case: str) -> None:
    content = json.dumps({"mesh": {**GRANT.to_wire(), **WRONG[case]}}).encode()
    with pytest.raises(strict_json.Malformed):
        mesh.parse_answer(content)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("p.test:51820", "p.test", 51820),
        ("192.0.2.1:1", "192.0.2.1", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_an_endpoint_is_read_and_written_alike(text: str, host: str, port: int) -> None:
    endpoint = mesh.parse_endpoint(text)
    assert endpoint == mesh.Endpoint(host=host, port=port)
    assert str(endpoint) == text
