"""Which addresses the Platform may dial on a machine's word.

A joining machine names the address of its Agent, and the Platform then connects to it: without
rules that would let a stranger with a token point the Platform at its own loopback services or at
the cloud's metadata service. Literal addresses are judged at the door (422), names when they are
resolved, at every dial. Ports and paths are `agent_url`'s.

Known limit: an ordinary private address is allowed, since that is where Agents are;
`[enrollment] agent_networks` narrows it.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from wire_protocol import agent_url

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Where clouds answer questions about the machine itself, beside 169.254.0.0/16 and fe80::/10.
_METADATA: Final[frozenset[Address]] = frozenset(
    ipaddress.ip_address(text)
    for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_METADATA_NAMES: Final = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")  # Linux connects it to itself
_LOOPBACK_NAMES: Final = (".localhost", ".localdomain")


class Forbidden(ValueError):
    """The Platform does not dial this address; the text says which kind is meant."""


def judge_url(
    url: agent_url.AgentUrl, *, caller_is_local: bool, networks: Sequence[Network]
) -> None:
    """Raises `Forbidden` for an address that may not be dialled, as far as it shows by itself."""
    address = url.ip
    if address is not None:
        judge(address, loopback_allowed=caller_is_local, networks=networks)
    elif url.host in _METADATA_NAMES:
        raise Forbidden(f"The Agent's address must not be a metadata service ({url.host}).")
    elif is_loopback_name(url.host) and not caller_is_local:
        raise Forbidden(
            f"The Agent's address must be one that other machines reach, not {url.host}."
        )


def judge(address: Address, *, loopback_allowed: bool, networks: Sequence[Network]) -> None:
    """Raises `Forbidden` unless the Platform may dial this address."""
    for face in _faces(address):
        if face.is_loopback:
            if not loopback_allowed:
                raise Forbidden(
                    f"The Agent's address must be one that other machines reach, not {address}."
                )
        elif (
            face.is_link_local
            or face.is_multicast
            or face.is_unspecified
            or face.is_reserved
            or face in _METADATA
            or (isinstance(face, ipaddress.IPv4Address) and face in _THIS_NETWORK)
        ):
            raise Forbidden(
                f"The Agent's address must not be link-local, multicast, reserved or a metadata "
                f"service, as {address} is."
            )
    if networks and not any(face in network for face in _faces(address) for network in networks):
        raise Forbidden(
            f"The Agent's address {address} is outside the networks that this Platform dials."
        )


def is_loopback(text: str | None) -> bool:
    """Whether a caller's address is this machine's loopback; no address means a local socket."""
    if text is None:
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return all(face.is_loopback for face in _faces(address)[-1:])


def is_loopback_name(host: str) -> bool:
    """Whether a name is this machine's by convention (RFC 6761, section 6.3)."""
    return host == "localhost" or host.endswith(_LOOPBACK_NAMES)


def _faces(address: Address) -> list[Address]:
    """The address and what it stands for: an IPv4 address may wear an IPv6 coat."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address.sixtofour is not None:
            return [address, address.sixtofour]
        if address in _NAT64:
            return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]
