"""The PROXY header, versions 1 and 2, by which a load balancer says who called it.

It comes on the bare socket before TLS and is read only when the socket's other end is a trusted
proxy; a stranger's is just a handshake that fails. It is optional, so that a proxy of the same
network that speaks ``Forwarded`` instead is served too; the first byte tells them apart, since no
TLS record begins like either header.
Source: the PROXY protocol specification, section 2. ``LOCAL`` and ``UNKNOWN`` (health checks)
leave the proxy's own address standing.
"""

import asyncio
import ipaddress
import socket
import struct

from runtime_kit.http1 import server

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V1 = b"PROXY "
_MAX_V1_BYTES = 107  # the specification's own worst case, CRLF included
_MAX_V2_BYTES = 2048  # addresses are 36 bytes, the rest are extensions
_FIXED_V2_BYTES = 16
_FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}
_V1_FIELDS = 6
_MAX_PORT = 65535


class Malformed(OSError):
    """A trusted proxy sent a header that cannot be read; the connection is closed."""


async def read_caller(sock: socket.socket, *, peer: str) -> str:
    """Take the header off a fresh socket, if there is one, and return the caller's address.

    Args:
        sock: Accepted, non-blocking; left at the first byte of TLS.
        peer: The proxy's own address, returned where the header names nobody.

    Raises:
        Malformed: Close the connection.
        OSError: The connection broke.
    """
    first = await _peek(sock)
    if first == _V1[:1]:
        return parse_v1(await _read_line(sock)) or peer
    if first == SIGNATURE[:1]:
        fixed = await _read_exactly(sock, _FIXED_V2_BYTES)
        length = struct.unpack_from("!H", fixed, 14)[0]
        if not fixed.startswith(SIGNATURE) or length > _MAX_V2_BYTES:
            raise Malformed("The PROXY header cannot be read")
        return parse_v2(fixed, await _read_exactly(sock, length)) or peer
    return peer


def parse_v1(line: bytes) -> str | None:
    """Read ``PROXY TCP4 SOURCE TARGET SPORT TPORT``; None where the caller is not named."""
    if not line.startswith(_V1) or not line.endswith(b"\r\n") or len(line) > _MAX_V1_BYTES:
        raise Malformed("The PROXY header cannot be read")
    try:
        fields = line[:-2].decode("ascii").split(" ")
        if fields[1] == "UNKNOWN":
            return None
        versions = {"TCP4": 4, "TCP6": 6}
        source, target = ipaddress.ip_address(fields[2]), ipaddress.ip_address(fields[3])
        ports_ok = all(one.isdecimal() and int(one) <= _MAX_PORT for one in fields[4:])
        right = (
            len(fields) == _V1_FIELDS
            and source.version == target.version == versions.get(fields[1])
            and ports_ok
        )
    except (ValueError, IndexError) as error:
        raise Malformed("The PROXY header cannot be read") from error
    if not right:
        raise Malformed("The PROXY header cannot be read")
    return server.peer_of((str(source),))


def parse_v2(fixed: bytes, rest: bytes) -> str | None:
    """Read the binary header; None where the caller is not named."""
    version, command, family = fixed[12] >> 4, fixed[12] & 0x0F, fixed[13]
    if version != 2 or command not in (0, 1):
        raise Malformed("The PROXY header is of an unknown version")
    if command == 0 or family == 0:
        return None
    if family not in _FAMILIES:
        raise Malformed("The PROXY header names a caller without an IP address")
    kind, size = _FAMILIES[family]
    if len(rest) < 2 * size + 4:
        raise Malformed("The PROXY header is too short")
    return server.peer_of((socket.inet_ntop(kind, rest[:size]),))


async def _peek(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            waiter: asyncio.Future[None] = loop.create_future()
            loop.add_reader(sock.fileno(), _wake, waiter)
            try:
                await waiter
            finally:
                loop.remove_reader(sock.fileno())
        else:
            return data


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _read_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        if len(line) >= _MAX_V1_BYTES:
            raise Malformed("The PROXY header has no end")
        # One byte at a time: the next one may belong to TLS.
        line += await _read_exactly(sock, 1)
    return line


async def _read_exactly(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        more = await loop.sock_recv(sock, size - len(data))
        if not more:
            raise Malformed("The PROXY header broke off")
        data += more
    return data
