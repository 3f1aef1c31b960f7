"""Whose request a proxy passes on: `Forwarded` (RFC 7239) and `X-Forwarded-For`.

Believed only from trusted proxies, and only as far back as the chain is trusted: read from the
right, the first address that is not a trusted proxy is the caller. Anything unreadable stops
there, at the last address that was certain.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.settings import groups

_FOR = re.compile(r'(?:^|;)\s*for=("?)(?P<node>[^";,]+)\1', re.IGNORECASE)
_HEADERS: Final = ("forwarded", "x-forwarded-for")
_MAX_HOPS: Final = 16


def claims_a_proxy(headers: Mapping[str, str]) -> bool:
    """Whether somebody says that this request was passed on."""
    return any(name in headers for name in _HEADERS)


def address_of(
    peer: str | None, *, headers: Mapping[str, str], trusted: Sequence[groups.Network]
) -> str | None:
    """The caller's address; the peer's own unless the peer is a trusted proxy."""
    if peer is None or not _within(peer, trusted=trusted):
        return peer
    address = peer
    for hop in reversed(_hops(headers)):
        if hop is None:
            return address
        address = hop
        if not _within(hop, trusted=trusted):
            return address
    return address


def _hops(headers: Mapping[str, str]) -> list[str | None]:
    if "forwarded" in headers:
        parts = headers["forwarded"].split(",")[-_MAX_HOPS:]
        found = [_FOR.search(part) for part in parts]
        return [_read(one.group("node")) if one else None for one in found]
    if "x-forwarded-for" in headers:
        return [_read(part) for part in headers["x-forwarded-for"].split(",")[-_MAX_HOPS:]]
    return []


def _read(text: str) -> str | None:
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return _plain(ipaddress.ip_address(bare))
    except ValueError:
        return None


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _within(text: str, *, trusted: Sequence[groups.Network]) -> bool:
    try:
        address = ipaddress.ip_address(_plain(ipaddress.ip_address(text)))
    except ValueError:
        return False
    return any(address in network for network in trusted)
