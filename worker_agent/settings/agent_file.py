"""`agent.json`: what the Agent starts from. Where it stands, the machine has joined."""

import dataclasses
import datetime
import enum
import pathlib

from runtime_kit import private_files
from wire_protocol import agent_url, ids, labels, pins, times
from worker_agent.settings import documents

_MOST = 64  # of anything listed here; a join writes at most 16 of each


class Connectivity(enum.StrEnum):
    """Who dials whom."""

    LISTEN = "listen"
    DIAL_OUT = "dial-out"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """One node's Agent: who it is and where it listens."""

    node_id: ids.NodeId
    generation: int
    connectivity: Connectivity
    addresses: tuple[str, ...]
    port: int
    reported_labels: dict[str, str]
    gateway_url: str | None
    gateway_pins: tuple[pins.Pin, ...]
    joined_at: datetime.datetime

    @property
    def agent_id(self) -> ids.AgentId:
        """The Agent's id, which follows from the node's."""
        return ids.agent_id_of(self.node_id)

    @property
    def origin(self) -> str | None:
        """The address under which the Platform dials this machine, in listen mode."""
        if self.connectivity is Connectivity.DIAL_OUT or not self.addresses:
            return None
        return str(agent_url.AgentUrl(host=self.addresses[0], port=self.port))


def read(
    path: pathlib.Path, *, reader: private_files.Reader = private_files.read_private
) -> AgentFile | None:
    """The file's content, or None on a machine that has not joined; raises `Damaged`."""
    fields = documents.read(path, reader=reader)
    if fields is None:
        return None
    try:
        return AgentFile(
            node_id=ids.parse_node_id(fields.text("node_id")),
            generation=fields.integer("generation"),
            connectivity=Connectivity(fields.text("connectivity")),
            addresses=fields.texts("addresses", most=_MOST),
            port=fields.integer("port", most=65_535),
            reported_labels=labels.parse(fields.texts("reported_labels", most=_MOST)),
            gateway_url=fields.text("gateway_url") if fields.has("gateway_url") else None,
            gateway_pins=tuple(
                pins.parse_pin(text) for text in fields.texts("gateway_pins", most=_MOST)
            ),
            joined_at=fields.moment("joined_at"),
        )
    except ValueError as error:
        raise documents.Damaged(f"{path} is damaged: {error}") from error


def write(path: pathlib.Path, content: AgentFile) -> None:
    """Replaces the file in one step."""
    documents.write(
        path,
        {
            "node_id": content.node_id,
            "agent_id": content.agent_id,
            "generation": content.generation,
            "connectivity": content.connectivity.value,
            "addresses": list(content.addresses),
            "port": content.port,
            "reported_labels": [f"{key}={value}" for key, value in content.reported_labels.items()],
            "gateway_url": content.gateway_url,
            "gateway_pins": list(content.gateway_pins),
            "joined_at": times.to_rfc3339(content.joined_at),
        },
    )
