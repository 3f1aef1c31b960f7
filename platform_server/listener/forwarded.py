"""Who the caller is when a trusted proxy stands in between, by ``Forwarded`` (RFC 7239).

For: rules bound to the caller's address. The header counts only when the connection itself comes
from a trusted proxy; everybody else's is ignored, since anyone can write one.
Not for: ``X-Forwarded-For``, which has no grammar, and PROXY headers, which come before TLS.
Known limit: a proxy that hides its client (``unknown``, ``_hidden``) hides it here too, and that
is refused, since a rule bound to an address could not be checked.
"""

import ipaddress
import re
from collections.abc import Sequence

from runtime_kit.http1 import server

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_BYTES = 2048
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PAIR = re.compile(rf"""[ \t]*({_WORD})=("(?:[^"\\]|\\.)*+"|{_WORD})[ \t]*""")
_NODE_V6 = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?")
_NODE_V4 = re.compile(r"([0-9.]+)(?::[0-9]{1,5})?")


class Malformed(Exception):
    """A trusted proxy sent a header that names no address; answer 400."""


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Read the networks of trusted proxies; a lone address is a network of one.

    Raises:
        ValueError: One of them is neither.
    """
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts)


def is_trusted(peer: str, *, proxies: Sequence[Network]) -> bool:
    """Whether this address is a trusted proxy's; an empty one (a Unix socket's) never is."""
    if not peer or not proxies:
        return False
    address = ipaddress.ip_address(peer)
    return any(address in network for network in proxies)


def caller_of(peer: str, *, header: str | None, proxies: Sequence[Network]) -> str:
    """The caller's address: the last one in the header that is not a trusted proxy's own.

    Args:
        peer: The other end of the connection, in plain form.
        header: The ``Forwarded`` header, repeated ones joined by commas; None without one.
        proxies: Whose word counts.

    Raises:
        Malformed: The peer is trusted and its header does not say who the caller is.
    """
    if header is None or not is_trusted(peer, proxies=proxies):
        return peer
    caller = peer
    for address in reversed(_addresses(header)):
        caller = address
        if not is_trusted(address, proxies=proxies):
            break
    return caller


def _addresses(header: str) -> list[str]:
    """The ``for`` of each element; later proxies append, so the last is the nearest."""
    if len(header) > _MAX_BYTES:
        raise Malformed("The Forwarded header is too long")
    found: list[str] = []
    position = 0
    current: str | None = None
    seen: set[str] = set()
    while True:
        match = _PAIR.match(header, position)
        if match is None:
            raise Malformed("The Forwarded header cannot be read")
        name = match[1].lower()
        if name in seen:
            raise Malformed("The Forwarded header names one thing twice")
        seen.add(name)
        if name == "for":
            current = _node(match[2])
        position = match.end()
        separator = header[position : position + 1]
        position += 1
        if separator == ";":
            continue
        if separator not in ("", ","):
            raise Malformed("The Forwarded header cannot be read")
        if current is None:
            raise Malformed("The Forwarded header does not say for whom")
        found.append(current)
        if not separator:
            return found
        current, seen = None, set()


def _node(text: str) -> str:
    value = re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
    match = _NODE_V6.fullmatch(value) or _NODE_V4.fullmatch(value)
    try:
        address = ipaddress.ip_address(match[1] if match else value)
    except ValueError:
        raise Malformed("The Forwarded header names no address") from None
    return server.peer_of((str(address),))
