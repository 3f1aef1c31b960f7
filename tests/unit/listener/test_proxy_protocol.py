import socket
import struct

import hypothesis
import pytest
from hypothesis import strategies as st

from platform_server.listener import proxy_protocol


def v2(command: int, family: int, rest: bytes, *, version: int = 2) -> tuple[bytes, bytes]:
    fixed = proxy_protocol.SIGNATURE + struct.pack("!BBH", version << 4 | command, family, 0)
    return fixed, rest


V4 = socket.inet_aton("198.51.100.4") + socket.inet_aton("192.0.2.1") + struct.pack("!HH", 1, 2)
V6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::4")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack("!HH", 1, 2)
)


def test_a_text_header_names_the_caller_or_nobody() -> None:
    read = proxy_protocol.parse_v1
    assert read(b"PROXY TCP4 198.51.100.4 192.0.2.1 40000 8444\r\n") == "198.51.100.4"
    assert read(b"PROXY TCP6 2001:db8::4 2001:db8::1 40000 8444\r\n") == "2001:db8::4"
    assert read(b"PROXY TCP6 ::ffff:198.51.100.4 ::1 1 2\r\n") == "198.51.100.4"
    assert read(b"PROXY UNKNOWN\r\n") is None
    assert read(b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n") is None


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP4 198.51.100.4 192.0.2.1 40000\r\n",
        b"PROXY TCP4 198.51.100.4 192.0.2.1 40000 8444 x\r\n",
        b"PROXY TCP4 198.51.100.4 192.0.2.1 40000 84444\r\n",
        b"PROXY TCP4 198.51.100.4 192.0.2.1 -1 8444\r\n",
        b"PROXY TCP4 2001:db8::4 2001:db8::1 1 2\r\n",
        b"PROXY TCP6 198.51.100.4 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 198.51.100.400 192.0.2.1 1 2\r\n",
        b"PROXY UDP4 198.51.100.4 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 198.51.100.4 192.0.2.1 1 2\n",
        b"proxy TCP4 198.51.100.4 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 \xff 192.0.2.1 1 2\r\n",
        b"PROXY UNKNOWN " + b"x" * 100 + b"\r\n",
    ],
)
def test_an_odd_text_header_closes_the_connection(line: bytes) -> None:
    with pytest.raises(proxy_protocol.Malformed):
        proxy_protocol.parse_v1(line)


def test_a_binary_header_names_the_caller_or_nobody() -> None:
    assert proxy_protocol.parse_v2(*v2(1, 0x11, V4)) == "198.51.100.4"
    assert proxy_protocol.parse_v2(*v2(1, 0x21, V6)) == "2001:db8::4"
    assert proxy_protocol.parse_v2(*v2(1, 0x11, V4 + b"\x04\x00\x01x")) == "198.51.100.4"
    assert proxy_protocol.parse_v2(*v2(0, 0x11, V4)) is None
    assert proxy_protocol.parse_v2(*v2(1, 0x00, b"")) is None


@pytest.mark.parametrize(
    ("fixed", "rest"),
    [
        v2(1, 0x11, V4, version=1),
        v2(1, 0x11, V4, version=3),
        v2(2, 0x11, V4),
        v2(1, 0x12, V4),
        v2(1, 0x31, b"x" * 216),
        v2(1, 0x11, V4[:-1]),
        v2(1, 0x21, V4),
    ],
    ids=["version 1", "version 3", "command 2", "UDP", "a Unix path", "too short", "IPv4 as IPv6"],
)
def test_an_odd_binary_header_closes_the_connection(fixed: bytes, rest: bytes) -> None:
    with pytest.raises(proxy_protocol.Malformed):
        proxy_protocol.parse_v2(fixed, rest)


@hypothesis.given(st.binary(max_size=120))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    for line in (raw, b"PROXY TCP4 " + raw + b"\r\n"):
        try:
            caller = proxy_protocol.parse_v1(line)
        except proxy_protocol.Malformed:
            continue
        assert caller is None or socket.inet_pton(
            socket.AF_INET6 if ":" in caller else socket.AF_INET, caller
        )
