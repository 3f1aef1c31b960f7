"""What the root helper is told of the mesh, and what it tells of itself.

The interface has one address and one peer with one address; nothing else can be said. The form
alone: which addresses root lends its hand to, the helper judges.
"""

import dataclasses
import ipaddress
from typing import Final

from wire_protocol import helper_protocol as helper
from wire_protocol import mesh, strict_json

_MOST_PEERS: Final = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshUp:
    """The machine's end of the mesh: one address, and one peer with one address."""

    private_key: str = dataclasses.field(repr=False)
    address: mesh.Address
    mtu: int
    platform_address: mesh.Address
    platform_public_key: str
    endpoint_address: mesh.Address
    endpoint_port: int
    keepalive_seconds: int

    def to_line(self) -> bytes:
        """The line that asks for it. It holds the private key."""
        return helper.write_line(
            {
                "verb": helper.Verb.MESH_UP.value,
                "private_key": self.private_key,
                "address": str(self.address),
                "mtu": self.mtu,
                "platform_address": str(self.platform_address),
                "platform_public_key": self.platform_public_key,
                "endpoint_address": str(self.endpoint_address),
                "endpoint_port": self.endpoint_port,
                "keepalive_seconds": self.keepalive_seconds,
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshPeer:
    """What the interface knows of the Platform."""

    public_key: str
    endpoint: str
    handshake_at: int  # seconds since 1970; 0: never
    received_bytes: int
    sent_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """How the interface was found."""

    interface: str
    public_key: str
    listen_port: int
    peers: tuple[MeshPeer, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the helper stands: the release in use, the trust set's number, the mesh."""

    release: str
    trust: tuple[int, int] | None
    outcome: dict[str, object] | None  # of the last change of release, as `last_order` writes it
    mesh: MeshState | None


def parse_mesh_up(fields: strict_json.Fields) -> MeshUp:
    """Reads what is asked for; raises `strict_json.Malformed`."""
    with strict_json.judged():
        return MeshUp(
            private_key=fields.text("private_key", most=mesh.KEY_LENGTH),
            address=ipaddress.ip_address(fields.text("address", most=64)),
            mtu=fields.integer("mtu", least=1280, most=65_535),
            platform_address=ipaddress.ip_address(fields.text("platform_address", most=64)),
            platform_public_key=mesh.parse_public_key(fields.text("platform_public_key", most=64)),
            endpoint_address=ipaddress.ip_address(fields.text("endpoint_address", most=64)),
            endpoint_port=fields.integer("endpoint_port", least=1, most=65_535),
            keepalive_seconds=fields.integer("keepalive_seconds", least=1, most=65_535),
        )


def write_status(status: Status) -> bytes:
    """The answer to `status`."""
    found = status.mesh
    return helper.write_line(
        {
            "state": "status",
            "release": status.release,
            "trust": None if status.trust is None else list(status.trust),
            "outcome": status.outcome,
            "mesh": None
            if found is None
            else {
                "interface": found.interface,
                "public_key": found.public_key,
                "listen_port": found.listen_port,
                "peers": [dataclasses.asdict(peer) for peer in found.peers],
            },
        }
    )


def parse_status(line: bytes) -> Status:
    """Reads the answer to `status`; raises `Refused` and `strict_json.Malformed`."""
    fields = helper.read_answer(line)
    outcome = fields.value("outcome")
    if outcome is not None and not isinstance(outcome, dict):
        raise strict_json.Malformed("answer.outcome must be a JSON object.")
    return Status(
        release=fields.text("release", most=80),
        trust=_number(fields),
        outcome=outcome,
        mesh=_mesh_state(fields.inner("mesh")) if fields.has("mesh") else None,
    )


def _mesh_state(fields: strict_json.Fields) -> MeshState:
    peers = [
        strict_json.Fields(one, what="peer") for one in fields.items("peers", most=_MOST_PEERS)
    ]
    return MeshState(
        interface=fields.text("interface", most=16),
        public_key=fields.text("public_key", most=64),
        listen_port=fields.integer("listen_port", most=65_535),
        peers=tuple(
            MeshPeer(
                public_key=one.text("public_key", most=64),
                endpoint=one.text("endpoint", most=80),
                handshake_at=one.integer("handshake_at"),
                received_bytes=one.integer("received_bytes", most=2**63),
                sent_bytes=one.integer("sent_bytes", most=2**63),
            )
            for one in peers
        ),
    )


def _number(fields: strict_json.Fields) -> tuple[int, int] | None:
    if not fields.has("trust"):
        return None
    found = fields.items("trust", most=2)
    if len(found) != 2 or not all(type(one) is int for one in found):
        raise strict_json.Malformed("answer.trust must be two whole numbers.")
    return found[0], found[1]
