"""Nodes that the operator wrote into the settings, and the Platform's own id.

They win: such an id can be neither issued, enrolled nor removed, and a registered node of the same
id is hidden by it (Z-10). They have no row; what the probe learns of them is kept as one small
document in `platform_values`, so that every engine shows the same.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.settings import groups
from platform_server.store import contract
from wire_protocol import agent_url, ids, pins

_VALUE: Final = "configured-nodes"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredNode:
    """Where its Agent listens and the pin of its key."""

    node_id: ids.NodeId
    url: str
    pin: pins.Pin


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the probe last learned of a configured node; times in microseconds."""

    state: str
    reason: str | None = None
    version: str | None = None
    last_seen_at: int | None = None
    clock_offset_ms: int | None = None
    certificate_sha256: str | None = None


class ConfiguredNodes:
    """All of them, by id."""

    def __init__(self, nodes: Mapping[ids.NodeId, ConfiguredNode], *, own_id: ids.NodeId) -> None:
        self._nodes = dict(nodes)
        self._own_id = own_id
        self._pins = {node.pin: node.node_id for node in nodes.values()}

    @property
    def nodes(self) -> Mapping[ids.NodeId, ConfiguredNode]:
        """Those that have an Agent; the Platform's own id has none here."""
        return self._nodes

    def holds(self, node_id: ids.NodeId) -> bool:
        """Whether this id is the operator's: configured, or the Platform's own."""
        return node_id == self._own_id or node_id in self._nodes

    def has_key(self, pin: pins.Pin) -> bool:
        """Whether a configured node has this key."""
        return pin in self._pins


def of_settings(settings: groups.Settings) -> ConfiguredNodes:
    """Reads `[nodes.<id>]` and `[platform] node_id`; raises `ValueError` for a malformed id."""
    nodes: dict[ids.NodeId, ConfiguredNode] = {}
    for name, group in settings.nodes.items():
        node_id = ids.parse_node_id(name)
        if node_id in nodes:
            raise ValueError(f"The node {node_id} is configured twice.")
        nodes[node_id] = ConfiguredNode(
            node_id=node_id,
            url=str(agent_url.parse(group.url)),
            pin=pins.parse_pin(group.pin),
        )
    return ConfiguredNodes(nodes, own_id=ids.parse_node_id(settings.platform.node_id))


async def read_learned(tx: contract.Tx) -> Mapping[str, Learned]:
    """What is known of configured nodes, by id."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", _VALUE)
    if row is None:
        return {}
    content: dict[str, dict[str, Any]] = json.loads(row["value"])
    return {node_id: Learned(**fields) for node_id, fields in content.items()}


async def write_learned(tx: contract.Tx, *, learned: Mapping[str, Learned]) -> None:
    """Replaces what is known of configured nodes."""
    content = {node_id: dataclasses.asdict(one) for node_id, one in learned.items()}
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _VALUE,
        json.dumps(content, sort_keys=True, separators=(",", ":")),
    )
