"""The Agent's composition root: builds the parts, runs them as named tasks, ends them cleanly.

Everything it needs is on the disk from the join; it never needs a token, and an outage of the
Platform changes nothing here: identity, pins and trust set stay as they are (F16).
"""

import asyncio
import dataclasses
import logging
import os
import random
import signal
import ssl
from collections.abc import Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.http1 import limits, server
from wire_protocol import product
from wire_protocol import trust as verdicts
from worker_agent.app import anchors, health, keeper, logs
from worker_agent.door import port
from worker_agent.identity import lock, own
from worker_agent.settings import agent_file, documents, failures, modes, paths
from worker_agent.trust import refresh

LOGGER = logging.getLogger(__name__)
_DRAIN_SECONDS = 5.0  # the Platform's question takes milliseconds; systemd waits 90 s
_LOG_SECONDS = 60.0  # strangers who knock may fill one line a minute, not the disk
_LIMITS = limits.Limits(
    sockets=128,  # one Platform with a few engines; the rest are strangers
    in_work=16,
    head_bytes=8192,
    body_bytes=0,
    idle_s=45.0,  # longer than the Platform's probing interval, so that a connection is kept
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What the join left, read and proved to fit together."""

    agent: agent_file.AgentFile
    held: verdicts.Held
    identity: own.Identity


def load(where: paths.Paths) -> Joined:
    """Reads the data directory; raises `NeedsOperator` with the command that helps."""
    try:
        agent = agent_file.read(where.agent)
    except documents.Damaged as error:
        raise failures.NeedsOperator(
            str(error), hint="Repair it by joining again with a new token: enlist worker join -"
        ) from error
    if agent is None:
        raise failures.NeedsOperator(
            f"This machine has not joined a Platform (data directory {where.folder}).",
            hint=f"Run: enlist worker join - --data-dir {where.folder}",
        )
    join, held = refresh.load(where)
    if join.node_id != agent.node_id:
        raise failures.NeedsOperator(
            f"{where.join} is of node {join.node_id}, and {where.agent} of node {agent.node_id}: "
            "files of two machines were mixed.",
            hint="Restore this machine's own, or join again: enlist worker join -",
        )
    return Joined(agent=agent, held=held, identity=own.load(where))


async def run(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock,
    chance: random.Random,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Runs the Agent until SIGTERM or SIGINT; raises a `Failure` where it cannot start."""
    modes.tighten(where, warn=lambda text: logs.warning(LOGGER, text))
    joined = load(where)
    if joined.agent.connectivity is agent_file.Connectivity.DIAL_OUT:
        raise failures.NeedsOperator(
            "This node was joined to dial out, and this release of Enlist has no gateway yet. To "
            "use it now, remove the node on the Platform and join again so that it listens.",
            hint=f"Run: mv {where.folder} {where.folder}.old; enlist worker join - --address IP",
        )
    with lock.held(
        where.agent_lock, busy=f"Another Agent runs already with the data directory {where.folder}."
    ):
        await _serve(where, joined=joined, clock=clock, chance=chance, environment=environment)


async def _serve(
    where: paths.Paths,
    *,
    joined: Joined,
    clock: clock_kit.Clock,
    chance: random.Random,
    environment: Mapping[str, str],
) -> None:
    sockets = port.hold(joined.agent.port)
    if sockets is None:
        raise failures.Temporary(
            f"Port {joined.agent.port} is in use by another program. Stop it, then start the "
            "Agent again."
        )
    trusted = anchors.Anchors(where, held=joined.held, clock=clock)
    keeping = keeper.Keeper(
        where, trusted=trusted, clock=clock, chance=chance, environment=environment
    )
    knocks = Knocks(keeping, clock=clock)
    door = health.HealthDoor(joined.agent, trusted=trusted, clock=clock)
    serving = server.Server(
        door.answer, limits=_LIMITS, tls=trusted.context, handshake_failed=knocks.failed
    )
    stop = _stop_signal()
    try:
        for listener in sockets:
            serving.start(listener)
        logs.info(
            LOGGER,
            "Agent ready",
            node_id=joined.agent.node_id,
            version=product.VERSION,
            port=joined.agent.port,
            pin=joined.identity.pin,
            trust_keys=list(trusted.key_ids()),
        )
        if not trusted.key_ids():
            logs.warning(LOGGER, "No trust key is valid now, every client is refused until one is")
        await supervise.run({"trust-refresh": keeping.ask, "trust-watch": keeping.watch}, stop=stop)
    finally:
        await serving.drain(timeout_s=_DRAIN_SECONDS)
        for listener in sockets:
            listener.close()
    logs.info(LOGGER, "Agent stopped", node_id=joined.agent.node_id)


class Knocks:
    """Failed handshakes: an unknown authority may be a new trust key, the rest are strangers."""

    def __init__(self, keeping: keeper.Keeper, *, clock: clock_kit.Clock) -> None:
        self._keeping = keeping
        self._clock = clock
        self._told: float | None = None

    def failed(self, error: OSError, peer: str) -> None:
        """Takes note of one failed handshake."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return
        self._keeping.unknown_key()
        now = self._clock.monotonic()
        if self._told is None or now - self._told >= _LOG_SECONDS:
            self._told = now
            logs.warning(
                LOGGER,
                "A client's certificate is by no trust key held here",
                peer=peer,
                reason=error.verify_message,
            )


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
