"""What an interface should be, and how it was found: plain values, and `wg`'s own forms of them.

The first line of `wg show … dump` holds the private key; it is dropped here and kept nowhere.
"""

import dataclasses
import datetime
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from runtime_kit import clock, secret

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LIVE_SECONDS: Final = 180
"""After this long WireGuard itself gives a session up (its REJECT_AFTER_TIME); a peer that sends
anything has shaken hands anew within 120 s and a few tries of 5 s."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a peer is sent to: an address, never a name, so that `wg` asks no name server."""

    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer. It may send from `allowed` alone, and what is for those goes to it."""

    public_key: str
    allowed: tuple[Network, ...]
    endpoint: Endpoint | None = None
    keepalive_seconds: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A whole interface. `owner` marks it as ours, so that nobody else's is ever touched."""

    name: str
    owner: str
    private_key: secret.Secret
    listen_port: int | None
    address: Interface
    mtu: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """What the interface knows of one peer."""

    public_key: str
    endpoint: str | None
    allowed: tuple[str, ...]
    handshake_at: datetime.datetime | None
    received_bytes: int
    sent_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How an interface was found."""

    public_key: str | None
    listen_port: int
    peers: Mapping[str, PeerState]


def interface(address: Address, *, network: Network) -> Interface:
    """The address with its network, as an interface has it."""
    return ipaddress.ip_interface(f"{address}/{network.prefixlen}")


def alone(address: Address) -> Network:
    """The network of this one address."""
    if address.version == 4:
        return ipaddress.IPv4Network((int(address), 32))
    return ipaddress.IPv6Network((int(address), 128))


def render(wanted: Wanted, *, peers: Iterable[Peer]) -> bytes:
    """What `wg syncconf` reads. It holds the private key: for standard input only."""
    lines = ["[Interface]", f"PrivateKey = {wanted.private_key.reveal()}"]
    if wanted.listen_port is not None:
        lines.append(f"ListenPort = {wanted.listen_port}")
    for peer in peers:
        lines += [
            "[Peer]",
            f"PublicKey = {peer.public_key}",
            f"AllowedIPs = {','.join(str(one) for one in peer.allowed)}",
        ]
        if peer.endpoint is not None:
            lines.append(f"Endpoint = {peer.endpoint}")
        if peer.keepalive_seconds is not None:
            lines.append(f"PersistentKeepalive = {peer.keepalive_seconds}")
    return ("\n".join(lines) + "\n").encode()


def words_of(peer: Peer) -> tuple[str, ...]:
    """The peer as arguments of `wg set`; nothing in them is secret."""
    words = ["peer", peer.public_key, "allowed-ips", ",".join(str(one) for one in peer.allowed)]
    if peer.endpoint is not None:
        words += ["endpoint", str(peer.endpoint)]
    if peer.keepalive_seconds is not None:
        words += ["persistent-keepalive", str(peer.keepalive_seconds)]
    return tuple(words)


def parse_dump(raw: bytes) -> State:
    """Reads `wg show INTERFACE dump`; raises `ValueError` where it has another form."""
    first, *others = raw.decode("ascii").splitlines() or [""]
    fields = first.split("\t")
    if len(fields) != 4:
        raise ValueError("The first line of wg's dump does not have four fields.")
    peers = [_peer(line.split("\t")) for line in others]
    return State(
        public_key=_given(fields[1]),
        listen_port=int(fields[2]),
        peers={peer.public_key: peer for peer in peers},
    )


def _peer(fields: list[str]) -> PeerState:
    if len(fields) != 8:
        raise ValueError("A line of wg's dump does not have eight fields.")
    shaken = int(fields[4])
    return PeerState(
        public_key=fields[0],
        endpoint=_given(fields[2]),
        allowed=tuple(fields[3].split(",")) if _given(fields[3]) else (),
        handshake_at=clock.from_micros(shaken * 1_000_000) if shaken else None,
        received_bytes=int(fields[5]),
        sent_bytes=int(fields[6]),
    )


def _given(field: str) -> str | None:
    return None if field in ("(none)", "") else field
