"""Opens a TCP connection to a named server, straight or through the proxy of the environment.

API::

    origin = dial.parse_https_origin("https://[2001:db8::1]:8444")   # .host .port .authority
    sock = await dial.dial(origin.host, port=origin.port)    # connected, non-blocking, yours

For: every outgoing leg of the product, so that all obey one rule. A name is resolved anew at each
call, never remembered. Several addresses are tried side by side (RFC 8305): the next one starts
250 ms after the former, so a black-holed IPv6 costs a quarter of a second.
Proxies, one rule: ``https_proxy`` or ``HTTPS_PROXY``, else ``all_proxy`` or ``ALL_PROXY``, used by
HTTP CONNECT unless ``no_proxy`` or ``NO_PROXY`` names the target (``*``, a host, a parent domain,
an address, a network, each with an optional ``:port``). Lower case wins.
Not for: TLS (see ``server_trust``) and requests (see ``http1``).
Known limit: only ``http://`` proxies; a socks or https proxy is refused by name. Loopback is no
exception to the rule: name it in ``no_proxy``.
"""

import asyncio
import base64
import contextlib
import dataclasses
import ipaddress
import os
import re
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import ClassVar

import aiohappyeyeballs

from runtime_kit import failures, small_packets

_FALLBACK_DELAY_S = 0.25  # RFC 8305 section 8: the recommended Connection Attempt Delay
_MAX_ADDRESSES = 16  # a name with more is a mistake or an attack
_MAX_PROXY_HEAD_BYTES = 16_384
_HTTP_OK = range(200, 300)
_HTTP_PROXY_AUTHENTICATION = 407
_HTTP_TRY_LATER = frozenset({429, 500, 502, 503, 504})
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")


class DialFailed(failures.NetworkFailure):
    """No connection came about: nobody listens, nothing answers, or the name does not resolve."""


class InvalidUrl(failures.NetworkFailure):
    """The URL is not an https origin; nothing was sent."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT


class ProxyMisconfigured(failures.NetworkFailure):
    """The proxy named in the environment cannot be used; the variable must be corrected."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


class ProxyAsksForCredentials(failures.NetworkFailure):
    """The proxy answered 407: its URL needs a user and a password, or has the wrong ones."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


class ProxyRefused(failures.NetworkFailure):
    """The proxy does not let this connection through; its administrator has to allow it."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an https URL points: a host without brackets or trailing dot, and a port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """``host:port`` as a Host header and a CONNECT line want it."""
        return _authority(self.host, port=self.port)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy of the environment; the credentials stay out of every representation."""

    host: str
    port: int
    authorization: str | None = dataclasses.field(default=None, repr=False)


def parse_https_origin(url: str) -> Origin:
    """Read an https URL without path, query, fragment and user.

    Raises:
        InvalidUrl: It is something else; the sentence says what. Nothing was sent.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidUrl(f"{url!r} is not a URL: {error}") from error
    if parts.scheme != "https":
        raise InvalidUrl(f"{_shown(url)!r} must start with https://, since a secret crosses it")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrl("The URL must not hold a user or a password")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidUrl(f"{url!r} must be an origin such as https://host:8444, without a path")
    host = (parts.hostname or "").removesuffix(".")
    if not host or port == 0 or any(c.isspace() for c in host):
        raise InvalidUrl(f"{url!r} names no host or no port")
    return Origin(host=host, port=443 if port is None else port)


def find_proxy(
    host: str, *, port: int, environment: Mapping[str, str] = os.environ
) -> Proxy | None:
    """Name the proxy that the environment asks for on the way to this host, if any.

    Raises:
        ProxyMisconfigured: The variable holds something that cannot be used.
    """
    found = _first(environment, "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    if found is None:
        return None
    exceptions = _first(environment, "no_proxy", "NO_PROXY")
    if exceptions is not None and _excepted(host, port=port, exceptions=exceptions[1]):
        return None
    name, value = found
    try:
        parts = urllib.parse.urlsplit(value if "://" in value else f"http://{value}")
        proxy_port = parts.port or 80
    except ValueError:
        raise ProxyMisconfigured(f"{name} does not hold a URL such as http://proxy:3128") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ProxyMisconfigured(
            f"{name} names a {parts.scheme or 'nameless'} proxy; "
            "only http:// proxies are understood, such as http://proxy:3128"
        )
    authorization = None
    if parts.username is not None:
        pair = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(host=parts.hostname, port=proxy_port, authorization=authorization)


async def dial(
    host: str,
    *,
    port: int,
    timeout_s: float = 10.0,
    environment: Mapping[str, str] = os.environ,
) -> socket.socket:
    """Connect to a host, through a proxy where the environment asks for one.

    Args:
        host: A name or an address, IPv6 without brackets.
        port: The TCP port.
        timeout_s: Limit on everything together: resolving, connecting, the proxy's answer.
        environment: Where proxies are looked up.

    Returns:
        A connected, non-blocking socket that the caller owns and closes.

    Raises:
        DialFailed: Nobody answered in time; trying again may help.
        ProxyMisconfigured: The proxy variable must be corrected.
        ProxyAsksForCredentials: The proxy wants a user and a password.
        ProxyRefused: The proxy forbids the target.
    """
    proxy = find_proxy(host, port=port, environment=environment)
    target = _authority(host, port=port)
    try:
        async with asyncio.timeout(timeout_s):
            if proxy is None:
                return await _connect(host, port=port)
            sock = await _connect(proxy.host, port=proxy.port)
            try:
                await _tunnel(sock, proxy=proxy, target=target)
            except BaseException:
                sock.close()
                raise
            return sock
    except TimeoutError as error:
        via = "" if proxy is None else f" through the proxy {proxy.host}:{proxy.port}"
        raise DialFailed(f"{target} did not answer within {timeout_s:g} s{via}") from error


async def _connect(host: str, *, port: int) -> socket.socket:
    infos = await _resolve(host, port=port)
    try:
        sock = await aiohappyeyeballs.start_connection(
            infos[:_MAX_ADDRESSES],
            happy_eyeballs_delay=_FALLBACK_DELAY_S,
            interleave=1,
            socket_factory=_small_packets,
        )
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise DialFailed(f"Could not connect to {_authority(host, port=port)}: {reason}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _small_packets(info: aiohappyeyeballs.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    sock = socket.socket(family, kind, protocol)
    small_packets.ensure(sock)
    return sock


async def _resolve(host: str, *, port: int) -> Sequence[aiohappyeyeballs.AddrInfoType]:
    # An address needs no thread and no name server.
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise DialFailed(f"The name {host} could not be resolved: {reason}") from error
    if not infos:
        raise DialFailed(f"The name {host} has no address")
    return infos


async def _tunnel(sock: socket.socket, *, proxy: Proxy, target: str) -> None:
    loop = asyncio.get_running_loop()
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    where = f"The proxy {proxy.host}:{proxy.port}"
    head = b""
    try:
        await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        while b"\r\n\r\n" not in head:
            data = await loop.sock_recv(sock, 4096)
            head += data
            if not data or len(head) > _MAX_PROXY_HEAD_BYTES:
                raise DialFailed(f"{where} did not answer as a proxy does")
    except OSError as error:
        raise DialFailed(f"{where} broke off: {error.strerror}") from error
    match = _STATUS_LINE.match(head)
    if match is None:
        raise DialFailed(f"{where} did not answer as a proxy does")
    status = int(match[1])
    if status == _HTTP_PROXY_AUTHENTICATION:
        raise ProxyAsksForCredentials(
            f"The proxy asked for credentials (407), at {proxy.host}:{proxy.port}; "
            "put the right user and password into https_proxy"
        )
    if status in _HTTP_TRY_LATER:
        raise DialFailed(f"{where} could not reach {target} (status {status})")
    if status not in _HTTP_OK:
        raise ProxyRefused(f"{where} does not let connections to {target} through ({status})")
    if not head.endswith(b"\r\n\r\n"):
        # The server speaks only after our TLS hello, so these bytes are nobody's answer.
        raise DialFailed(f"{where} sent bytes that belong to no answer")


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str] | None:
    for name in names:
        value = environment.get(name, "").strip()
        if value:
            return name, value
    return None


def _excepted(host: str, *, port: int, exceptions: str) -> bool:
    name = host.lower().removesuffix(".")
    address = _address(name)
    for entry in exceptions.lower().split(","):
        pattern, only_port = _split_port(entry.strip())
        if not pattern or (only_port is not None and only_port != port):
            continue
        if pattern == "*":
            return True
        if address is not None:
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(pattern, strict=False):
                    return True
            continue
        domain = pattern.removeprefix("*").strip(".")
        if domain and (name == domain or name.endswith(f".{domain}")):
            return True
    return False


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        inner, _, rest = entry[1:].partition("]")
        return inner, int(rest[1:]) if rest[1:].isdecimal() else None
    head, colon, tail = entry.rpartition(":")
    if colon and ":" not in head and tail.isdecimal():
        return head, int(tail)
    return entry, None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _authority(host: str, *, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else url
