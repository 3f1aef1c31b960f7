"""What a node tells of itself all the time: the heartbeat, the same over every channel.

All of it is said by the machine: shown, compared, and never a reason to send secrets or work there.
"""

import dataclasses
import datetime

from wire_protocol import ids, strict_json, times

MAX_BYTES = 16_384
LONGEST_UPTIME_SECONDS = 100 * 366 * 86_400  # more is no uptime, and no span a calendar holds
PATH = "/heartbeat"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the machine has. Bytes; `cpu_count` are the processors the Agent may use."""

    cpu_count: int
    memory_bytes: int
    disk_bytes: int

    def to_wire(self) -> dict[str, int]:
        """The JSON object."""
        return {
            "cpu_count": self.cpu_count,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """How the machine's end of the mesh stands: `up`, `waiting` or `failed`, and why."""

    state: str
    reason: str | None = None
    handshake_age_seconds: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One heartbeat. `load_milli`: load over 1, 5 and 15 minutes, in thousandths."""

    version: str
    now: datetime.datetime
    uptime_seconds: int
    load_milli: tuple[int, int, int]
    capacity: Capacity
    memory_available_bytes: int
    disk_free_bytes: int
    trust_keys: tuple[ids.KeyId, ...]
    statement: tuple[int, int]
    mesh: MeshState | None = None
    release: str = ""  # the installed release that runs; empty where none was installed
    architecture: str = ""  # of the processor, as uname says it

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        content: dict[str, object] = {
            "version": self.version,
            "now": times.to_rfc3339(self.now),
            "uptime_seconds": self.uptime_seconds,
            "load_milli": list(self.load_milli),
            "capacity": self.capacity.to_wire(),
            "memory_available_bytes": self.memory_available_bytes,
            "disk_free_bytes": self.disk_free_bytes,
            "trust_keys": list(self.trust_keys),
            "statement": list(self.statement),
        }
        if self.release:
            content["release"] = self.release
        if self.architecture:
            content["architecture"] = self.architecture
        if self.mesh is not None:
            content["mesh"] = {
                "state": self.mesh.state,
                "reason": self.mesh.reason,
                "handshake_age_seconds": self.mesh.handshake_age_seconds,
            }
        return strict_json.write(content)


def parse(raw: bytes) -> Heartbeat:
    """Reads the body; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="heartbeat", most=MAX_BYTES)
    capacity = fields.inner("capacity")
    with strict_json.judged():
        return Heartbeat(
            version=fields.text("version", most=64),
            now=fields.moment("now"),
            uptime_seconds=fields.integer("uptime_seconds", most=LONGEST_UPTIME_SECONDS),
            load_milli=_three(fields),
            capacity=Capacity(
                cpu_count=capacity.integer("cpu_count"),
                memory_bytes=capacity.integer("memory_bytes"),
                disk_bytes=capacity.integer("disk_bytes"),
            ),
            memory_available_bytes=fields.integer("memory_available_bytes"),
            disk_free_bytes=fields.integer("disk_free_bytes"),
            trust_keys=tuple(
                ids.parse_key_id(key) for key in fields.texts("trust_keys", most=64, longest=16)
            ),
            statement=number_of(fields),
            mesh=_mesh(fields),
            release=_optional(fields, "release", most=80),
            architecture=_optional(fields, "architecture", most=32),
        )


def number_of(fields: strict_json.Fields) -> tuple[int, int]:
    """`statement`: epoch and serial of the trust statement held or published."""
    epoch, serial = _whole_numbers(fields, "statement", count=2)
    return epoch, serial


def _three(fields: strict_json.Fields) -> tuple[int, int, int]:
    one, five, fifteen = _whole_numbers(fields, "load_milli", count=3)
    return one, five, fifteen


def _whole_numbers(fields: strict_json.Fields, name: str, *, count: int) -> list[int]:
    values = fields.items(name, most=count)
    if len(values) != count or any(type(one) is not int or not 0 <= one < 2**53 for one in values):
        raise strict_json.Malformed(f"{name} must be {count} whole numbers.")
    return values


def _optional(fields: strict_json.Fields, name: str, *, most: int) -> str:
    return fields.text(name, most=most) if fields.has(name) else ""


def _mesh(fields: strict_json.Fields) -> MeshState | None:
    if not fields.has("mesh"):
        return None
    inner = fields.inner("mesh")
    return MeshState(
        state=inner.text("state", most=16),
        reason=inner.text("reason", most=200) if inner.has("reason") else None,
        handshake_age_seconds=inner.integer("handshake_age_seconds")
        if inner.has("handshake_age_seconds")
        else None,
    )
