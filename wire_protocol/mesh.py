"""The mesh: what a node says to become a peer, and what it is told.

Each end makes its WireGuard key on its own machine; only public keys travel, at the enrollment or
over the node's proved session. A node is told one address, which is all it may send from, and one
peer, the Platform. Not for: how the interface is made.
"""

import base64
import binascii
import dataclasses
import ipaddress
import re
from typing import Final

from wire_protocol import strict_json

MAX_BYTES: Final = 4096
KEY_LENGTH: Final = 44
_KEY_BYTES: Final = 32
_LONGEST_ENDPOINT: Final = 300
_PRIME: Final = 2**255 - 19
# the points with which every exchange has the same known result (RFC 7748, 6.1)
_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        _PRIME - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    }
)
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")

KEY_IN_USE: Final = "key-in-use"  # another node has this key: make a new one and ask again
NETWORK_FULL: Final = "network-full"  # no address is free

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the Platform takes WireGuard's datagrams: an address or a name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A node's place in the mesh."""

    address: Address
    network: Network
    platform_address: Address
    platform_public_key: str
    endpoint: Endpoint
    keepalive_seconds: int
    mtu: int

    def to_wire(self) -> dict[str, object]:
        """The JSON object, as the enroll answer carries it under `mesh`."""
        return {
            "address": str(self.address),
            "network": str(self.network),
            "platform_address": str(self.platform_address),
            "platform_public_key": self.platform_public_key,
            "endpoint": str(self.endpoint),
            "keepalive_seconds": self.keepalive_seconds,
            "mtu": self.mtu,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A node's present public key; the same one again asks for what holds now."""

    public_key: str

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write({"mesh_public_key": self.public_key})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The grant; without one `refused` says why, and without both this Platform has no mesh."""

    grant: Grant | None = None
    refused: str | None = None

    def to_wire(self) -> dict[str, object]:
        """The two fields, as the enroll answer carries them too."""
        return {
            "mesh": None if self.grant is None else self.grant.to_wire(),
            "mesh_refused": self.refused,
        }

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(self.to_wire())


def parse_request(raw: bytes) -> Request:
    """Reads the question; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="mesh request", most=MAX_BYTES)
    try:
        return Request(public_key=parse_public_key(fields.text("mesh_public_key", most=64)))
    except strict_json.Malformed:
        raise
    except ValueError as fault:
        raise strict_json.Malformed(str(fault)) from fault


def parse_answer(raw: bytes) -> Answer:
    """Reads the answer; raises `strict_json.Malformed`."""
    return answer_of(strict_json.read(raw, what="mesh answer", most=MAX_BYTES))


def answer_of(fields: strict_json.Fields) -> Answer:
    """Reads the two fields out of an enroll answer or of their own; raises `Malformed`."""
    return Answer(
        grant=parse_grant(fields.inner("mesh")) if fields.has("mesh") else None,
        refused=fields.text("mesh_refused", most=64) if fields.has("mesh_refused") else None,
    )


def parse_grant(fields: strict_json.Fields) -> Grant:
    """Reads a grant; raises `strict_json.Malformed`, also where its parts do not fit together."""
    try:
        grant = Grant(
            address=ipaddress.ip_address(fields.text("address", most=64)),
            network=ipaddress.ip_network(fields.text("network", most=64)),
            platform_address=ipaddress.ip_address(fields.text("platform_address", most=64)),
            platform_public_key=parse_public_key(fields.text("platform_public_key", most=64)),
            endpoint=parse_endpoint(fields.text("endpoint", most=_LONGEST_ENDPOINT)),
            keepalive_seconds=fields.integer("keepalive_seconds", least=1, most=65_535),
            mtu=fields.integer("mtu", least=1280, most=65_535),
        )
    except strict_json.Malformed:
        raise
    except ValueError as fault:
        raise strict_json.Malformed(str(fault)) from fault
    for one in (grant.address, grant.platform_address):
        if one not in grant.network:
            raise strict_json.Malformed(f"The mesh address {one} is not in {grant.network}.")
    if grant.address == grant.platform_address:
        raise strict_json.Malformed("The mesh gives the node the Platform's own address.")
    return grant


def parse_endpoint(text: str) -> Endpoint:
    """Reads `host:port` or `[address]:port`; raises `ValueError`."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError("A mesh endpoint is HOST:PORT.")
    if host.startswith("[") and host.endswith("]"):
        return Endpoint(host=str(ipaddress.IPv6Address(host[1:-1])), port=int(port))
    if _HOST.fullmatch(host) is None:
        raise ValueError(
            "A mesh endpoint's host is a name, an IPv4 address or an IPv6 in brackets."
        )
    return Endpoint(host=host, port=int(port))


def parse_endpoint_or_host(text: str, *, port: int) -> Endpoint:
    """Reads an endpoint, or a host alone, at this port; raises `ValueError`."""
    try:
        return Endpoint(host=str(ipaddress.ip_address(text)), port=port)
    except ValueError:
        pass
    if _HOST.fullmatch(text) is not None or (text.startswith("[") and text.endswith("]")):
        return parse_endpoint(f"{text}:{port}")
    return parse_endpoint(text)


def parse_public_key(text: str) -> str:
    """The WireGuard public key as it was given, if it is one; raises `ValueError`.

    There is one way to write each, and of the few points with which every exchange has the same
    known result none is a key.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("A WireGuard public key is written in base64.") from None
    if len(raw) != _KEY_BYTES or base64.b64encode(raw).decode() != text:
        raise ValueError(f"A WireGuard public key is {_KEY_BYTES} bytes in standard base64.")
    if int.from_bytes(raw, "little") % 2**255 % _PRIME in _SMALL_ORDER:
        raise ValueError("With this WireGuard public key nothing stays secret.")
    return text
