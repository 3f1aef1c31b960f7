"""Whether large packets get through to the Platform, where small ones do.

A router that must make a packet smaller is to say so (ICMP); where a firewall drops that word, a
connection opens, answers small questions, and hangs at the first large one: a black hole. Found by
asking: a small question in the smallest packets, then one padded to many full ones; and if that
hangs, the same again with packets held small from the start (TCP's maximum segment size), which is
the proof and gives a size that works. What is asked is the empty trust question, which may be asked
of anybody; the padding is blanks.

Known limit: not through a proxy, where the path is the proxy's. A path that loses packets at random
may look like one that hangs; then the small packets hang as well, and that is what is said.
"""

import asyncio
import contextlib
import dataclasses
import socket
import ssl

from runtime_kit import dial, failures
from runtime_kit.http1 import client
from wire_protocol import findings, product, statements
from worker_agent.doctor import legs, names

SMALL_SECONDS = 3.0
LARGE_SECONDS = 4.0  # a retransmission comes after 0.2 to 1 s; what hangs, hangs for minutes
LARGE_BYTES = 24_576  # some 17 full packets of Ethernet, and within what the route reads
SEGMENTS = (
    1180,
    516,
)  # what fits IPv6's least (1280) with room for a tunnel; IPv4's (576) likewise
_IP_MTU = 14  # linux/in.h
_IPV6_MTU = 24  # linux/in6.h
_ETHERNET = 1500


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One exchange: whether it came to its end, and what the kernel now knows of the path."""

    done: bool
    mtu: int | None
    reason: str = ""


async def path_mtu(leg: legs.Leg, *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """Compares a small with a large question."""
    name = "path-mtu"
    try:
        origin = leg.origin
        proxy = dial.find_proxy(origin.host, port=origin.port, environment=around.environment)
    except failures.NetworkFailure:
        return (findings.skipped(name, "The address or the proxy cannot be used; see proxy."),)
    if proxy is not None:
        return (findings.skipped(name, f"The path is that of the proxy {proxy.host}."),)
    small = await _ask(origin, body=b"", seconds=SMALL_SECONDS, segment=SEGMENTS[-1])
    if not small.done:
        return (findings.skipped(name, f"Not even a small question is answered; see {leg.name}."),)
    padded = b"{" + b" " * LARGE_BYTES + b"}"
    large = await _ask(origin, body=padded, seconds=LARGE_SECONDS, segment=None)
    if large.done:
        facts = {"path_mtu": large.mtu}
        shown = f"Large packets get through (path MTU {large.mtu})."
        return (findings.ok(name, shown, facts=facts),)
    clamped = await asyncio.gather(
        *(_ask(origin, body=padded, seconds=LARGE_SECONDS, segment=size) for size in SEGMENTS)
    )
    works = [size for size, asked in zip(SEGMENTS, clamped, strict=True) if asked.done]
    if not works:
        return (
            findings.transient(
                name,
                "Small questions are answered and larger ones hang, in small packets as well: the "
                f"path loses much, or {origin.authority} is overloaded.",
                command=f"ping -c 20 {origin.host}",
                facts={"path_mtu": large.mtu, "reason": large.reason},
            ),
        )
    headers = 60 if await _is_ipv6(origin) else 40
    size = works[0] + headers
    return (
        findings.needs_operator(
            name,
            f"Large packets to {origin.authority} vanish, and nobody says so (a path MTU black "
            f"hole): packets of {size} bytes get through. Joining and trust sets may hang.",
            command="sysctl -w net.ipv4.tcp_mtu_probing=1   (or lower the link's MTU: "
            f"ip link set dev DEVICE mtu {size})",
            facts={"path_mtu": large.mtu or _ETHERNET, "works_with_mtu": size},
        ),
    )


async def _is_ipv6(origin: dial.Origin) -> bool:
    infos = await asyncio.get_running_loop().getaddrinfo(
        origin.host, origin.port, type=socket.SOCK_STREAM
    )
    return infos[0][0] == socket.AF_INET6


async def _ask(origin: dial.Origin, *, body: bytes, seconds: float, segment: int | None) -> _Asked:
    """One question on a connection of its own; without a body, one that gets an empty answer."""
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(seconds):
            sock = await _connected(origin, segment=segment)
            return await _exchange(sock, origin=origin, body=body)
    except (TimeoutError, OSError, failures.NetworkFailure) as error:
        mtu = None if sock is None else _mtu_of(sock)
        return _Asked(done=False, mtu=mtu, reason=str(error) or type(error).__name__)
    finally:
        if sock is not None:
            sock.close()


async def _exchange(sock: socket.socket, *, origin: dial.Origin, body: bytes) -> _Asked:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the empty trust question alone, see above
    context.set_ecdh_curve("prime256v1")  # a share against quantum computers fills a packet
    reader, writer = await asyncio.open_connection(
        sock=sock, ssl=context, server_hostname=origin.host
    )
    try:
        answer = await client.exchange(
            reader,
            writer,
            method="POST" if body else "GET",
            target=product.TRUST_PATH,
            host=origin.authority,
            headers={"content-type": "application/json"} if body else {},
            body=body,
            max_body_bytes=statements.MAX_ANSWER_BYTES,
            timeout_s=SMALL_SECONDS + LARGE_SECONDS,
        )
        # Any answer shows that the question arrived whole; what it says is another check's part.
        return _Asked(
            done=True, mtu=_mtu_of(writer.get_extra_info("socket")), reason=str(answer.status)
        )
    finally:
        writer.transport.abort()


async def _connected(origin: dial.Origin, *, segment: int | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in infos[: legs.MOST_ADDRESSES]:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)  # noqa: FBT003 - the socket's own signature
            if segment is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
            async with asyncio.timeout(names.CONNECT_SECONDS):
                await loop.sock_connect(sock, address)
        except (OSError, TimeoutError):
            sock.close()
            continue
        return sock
    raise ConnectionError("nobody answers")


def _mtu_of(sock: socket.socket) -> int | None:
    """What the kernel knows of this path by now."""
    with contextlib.suppress(OSError):
        if sock.family == socket.AF_INET6:
            return sock.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
        return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    return None
