"""The Agent's answer to the health question, the same over every channel."""

import dataclasses
import datetime

from wire_protocol import ids, strict_json, times

MAX_BYTES = 16_384
PATH = "/health"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentHealth:
    """Who answers, in which version, at what time by its clock, holding which trust keys."""

    node_id: ids.NodeId
    agent_id: ids.AgentId
    version: str
    now: datetime.datetime
    trust_keys: tuple[ids.KeyId, ...]

    def to_bytes(self) -> bytes:
        """The body of the answer."""
        return strict_json.write(
            {
                "node_id": self.node_id,
                "agent_id": self.agent_id,
                "version": self.version,
                "now": times.to_rfc3339(self.now),
                "trust_keys": list(self.trust_keys),
            }
        )


def parse(raw: bytes) -> AgentHealth:
    """Reads the body; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="health", most=MAX_BYTES)
    with strict_json.judged():
        return AgentHealth(
            node_id=ids.parse_node_id(fields.text("node_id", most=64)),
            agent_id=ids.AgentId(fields.text("agent_id", most=80)),
            version=fields.text("version", most=64),
            now=fields.moment("now"),
            trust_keys=tuple(
                ids.parse_key_id(key) for key in fields.texts("trust_keys", most=64, longest=16)
            ),
        )
