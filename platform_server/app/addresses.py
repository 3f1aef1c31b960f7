"""The addresses under which this machine can be reached, where the operator names none.

The first routable IPv4, the first routable IPv6 if there is one, and localhost. The kernel is
asked which source address it would use; nothing is sent (connect on a datagram socket only picks
a route). Known limit: behind address translation this is the inner address; name the outer one.
"""

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

# Documentation addresses (RFC 5737, RFC 3849): never reachable, always routed by a default route.
_FAR: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def names_of_this_machine() -> tuple[str, ...]:
    """Addresses first, then localhost."""
    found = [_source_towards(family, far) for family, far in _FAR]
    return (*(one for one in found if one is not None), "localhost")


def certificate_names(bound: Sequence[str]) -> tuple[str, ...]:
    """The names for a certificate of a port bound to these addresses."""
    if any(ipaddress.ip_address(one).is_unspecified for one in bound):
        return (*names_of_this_machine(), "127.0.0.1", "::1")
    return (*bound, "localhost")


def from_elsewhere(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that other machines can use; all, where none of them is for others."""
    return tuple(name for name in names if not _is_this_machine_only(name)) or tuple(names)


def _is_this_machine_only(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.removesuffix(".").lower() == "localhost"


def url(scheme: str, *, host: str, port: int) -> str:
    """The URL of a host and port, with brackets where they belong."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _source_towards(family: socket.AddressFamily, far: str) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            address = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
    except OSError:
        return None
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return None
    return str(address)
