"""What the Agent answers to the Platform: the same over a session and over its own port."""

import pathlib
from collections.abc import Callable

from runtime_kit import clock as clock_kit
from wire_protocol import health, heartbeats, ids, product
from worker_agent.app import anchors
from worker_agent.session import facts


class Answers:
    """Who this is, and how it does."""

    def __init__(
        self,
        node_id: ids.NodeId,
        *,
        folder: pathlib.Path,
        trusted: anchors.Anchors,
        clock: clock_kit.Clock,
        mesh: Callable[[], heartbeats.MeshState | None] = lambda: None,
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._folder = folder
        self._trusted = trusted
        self._clock = clock
        self._started = clock.monotonic()
        self._release = facts.release()

    def health(self) -> bytes:
        """The answer to the health question."""
        return health.AgentHealth(
            node_id=self._node_id,
            agent_id=ids.agent_id_of(self._node_id),
            version=product.VERSION,
            now=self._clock.now(),
            trust_keys=self._trusted.key_ids(),
        ).to_bytes()

    def heartbeat(self) -> heartbeats.Heartbeat:
        """What a heartbeat tells."""
        memory = facts.memory()
        return heartbeats.Heartbeat(
            version=product.VERSION,
            now=self._clock.now(),
            uptime_seconds=int(self._clock.monotonic() - self._started),
            load_milli=facts.load_milli(),
            capacity=facts.capacity(self._folder, memory=memory),
            memory_available_bytes=memory.get("MemAvailable", 0),
            disk_free_bytes=facts.disk(self._folder)[1],
            trust_keys=self._trusted.key_ids(),
            statement=self._trusted.held.statement.number,
            mesh=self._mesh(),
            release=self._release,
            architecture=facts.architecture(),
        )
