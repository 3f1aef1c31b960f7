"""What the two ends of a session say to each other: the names of the questions and their forms.

A session is opened by `hello`, answered with the generation to store, and carries work only after
`confirm`. Each question is one stream of a link (`runtime_kit.mux`); a refusal is a code of
`Refusal` and one sentence. Not for: how bytes travel.
"""

import dataclasses
import datetime
import enum
import hashlib

from wire_protocol import heartbeats, ids, strict_json, times

PROTOCOL = 1
MAX_BYTES = 65_536


class Ask(enum.StrEnum):
    """The questions; the first eight go from the Agent to the Platform, the others back."""

    HELLO = "hello"  # Hello → Welcome
    CONFIRM = "confirm"  # Confirm → empty: the generation is stored on the machine
    HEARTBEAT = "heartbeat"  # heartbeats.Heartbeat → Pulse
    TRUST = "trust"  # empty → the answer of POST /trust
    RENEW = "renew"  # renewal.Request → renewal.Granted
    LEAVE = "leave"  # empty → empty: the node is removed; as an errand only while no Agent runs
    RESULT = "result"  # orders.Result → empty
    MESH = "mesh"  # mesh.Request → mesh.Answer: this machine's WireGuard key, its place

    HEALTH = "health"  # empty → health.AgentHealth
    ORDER = "order"  # orders.SignedOrder → empty: taken, to be done


class Purpose(enum.StrEnum):
    """What a connection is for."""

    SESSION = "session"  # the node's one session: it carries work
    ERRAND = "errand"  # a command, or a node that listens: renew, leave, and nothing else


class Refusal(enum.StrEnum):
    """Why a question is refused. The class of each is that of `problems`.

    After a refused hello or confirm the Platform closes the link, with the code as its reason. It
    also closes an open one with such a reason: `node-removed`, and `replaced` where the same
    process has opened another.
    """

    GENERATION_CONFLICT = "generation-conflict"  # needs-operator: a copy of this identity runs
    NODE_REMOVED = "node-removed"  # needs-operator: the node was removed on the Platform
    WORKER_NEWER = "worker-newer"  # needs-operator: update the Platform first
    INVALID = "invalid"  # permanent: the question is out of shape
    NOT_NOW = "not-now"  # transient: try again later
    UNKNOWN = "unknown"  # permanent: this end does not know that question


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The Agent opens. `instance` is random for each start of the Agent's process.

    For a session it is the process's own, and on no disk. For an errand it is `shown_instance` of
    the Agent that runs on the same machine, or anything else where none runs there.
    """

    node_id: ids.NodeId
    generation: int
    epoch: int
    version: str
    instance: str
    purpose: Purpose
    statement: tuple[int, int]

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(
            {
                "protocol": PROTOCOL,
                "node_id": self.node_id,
                "generation": self.generation,
                "epoch": self.epoch,
                "version": self.version,
                "instance": self.instance,
                "purpose": self.purpose.value,
                "statement": list(self.statement),
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The Platform's answer. `generation` is to be stored before `confirm` is sent.

    It is at least the one in hello: the same where the confirmation of that very one was lost, and
    for an errand, which stores and confirms nothing.
    """

    session_id: str
    generation: int
    epoch: int
    statement: tuple[int, int]
    heartbeat_seconds: int
    certificate_days: int
    now: datetime.datetime

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(
            {
                "session_id": self.session_id,
                "generation": self.generation,
                "epoch": self.epoch,
                "statement": list(self.statement),
                "heartbeat_seconds": self.heartbeat_seconds,
                "certificate_days": self.certificate_days,
                "now": times.to_rfc3339(self.now),
            }
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """The Agent has stored this generation."""

    generation: int

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write({"generation": self.generation})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The answer to a heartbeat: what the Platform publishes now, and its time."""

    statement: tuple[int, int]
    now: datetime.datetime

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write(
            {"statement": list(self.statement), "now": times.to_rfc3339(self.now)}
        )


def shown_instance(instance: str) -> str:
    """What a command beside the running Agent shows: enough for an errand, useless for a session.

    The Agent writes this down for such commands, so a copied disk has it too.
    """
    return hashlib.sha256(instance.encode()).hexdigest()


def parse_hello(raw: bytes) -> Hello:
    """Reads the opening; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="hello", most=MAX_BYTES)
    if fields.integer("protocol") != PROTOCOL:
        raise strict_json.Malformed(f"hello.protocol must be {PROTOCOL}.")
    with strict_json.judged():
        return Hello(
            node_id=ids.parse_node_id(fields.text("node_id", most=64)),
            generation=fields.integer("generation"),
            epoch=fields.integer("epoch"),
            version=fields.text("version", most=64),
            instance=fields.text("instance", most=64),
            purpose=Purpose(fields.text("purpose", most=16)),
            statement=heartbeats.number_of(fields),
        )


def parse_welcome(raw: bytes) -> Welcome:
    """Reads the answer; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="welcome", most=MAX_BYTES)
    return Welcome(
        session_id=fields.text("session_id", most=64),
        generation=fields.integer("generation"),
        epoch=fields.integer("epoch"),
        statement=heartbeats.number_of(fields),
        heartbeat_seconds=fields.integer("heartbeat_seconds", least=1, most=86_400 * 7),
        certificate_days=fields.integer("certificate_days", least=1, most=3660),
        now=fields.moment("now"),
    )


def parse_confirm(raw: bytes) -> Confirm:
    """Reads the confirmation; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="confirm", most=MAX_BYTES)
    return Confirm(generation=fields.integer("generation"))


def parse_pulse(raw: bytes) -> Pulse:
    """Reads the answer to a heartbeat; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="pulse", most=MAX_BYTES)
    return Pulse(statement=heartbeats.number_of(fields), now=fields.moment("now"))
