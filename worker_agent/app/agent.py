"""The Agent's composition root: builds the parts, runs them as named tasks, ends them cleanly.

Everything it needs is on the disk from the join; it never needs a token, and an outage of the
Platform changes nothing here: identity, pins and trust set stay as they are (F16). It listens on a
port, or it dials out and opens none; the questions and orders are the same.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import random
import secrets
import signal
import ssl
from collections.abc import AsyncIterator, Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.http1 import limits, server
from wire_protocol import orders as wire_orders
from wire_protocol import product
from wire_protocol import trust as verdicts
from worker_agent.app import anchors, carrying, health, keeper, logs, work_and_mesh
from worker_agent.door import gateway, port
from worker_agent.identity import lock, own, replacing
from worker_agent.mesh import keeper as mesh_keeper
from worker_agent.orders import work
from worker_agent.session import client, errands, outside, told, upkeep
from worker_agent.settings import agent_file, documents, failures, modes, paths
from worker_agent.trust import refresh

LOGGER = logging.getLogger(__name__)
_DRAIN_SECONDS = 5.0  # the Platform's question takes milliseconds; systemd waits 90 s
_LOG_SECONDS = 60.0  # strangers who knock may fill one line a minute, not the disk
_LIMITS = limits.Limits(
    sockets=128,  # one Platform with a few engines; the rest are strangers
    in_work=16,
    head_bytes=8192,
    body_bytes=2 * wire_orders.MAX_BYTES,  # an order in base64, with its signatures
    idle_s=45.0,  # longer than the Platform's probing interval, so that a connection is kept
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What the join left, read and proved to fit together."""

    agent: agent_file.AgentFile
    held: verdicts.Held
    identity: own.Identity


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What both modes stand on."""

    where: paths.Paths
    joined: Joined
    trusted: anchors.Anchors
    keeping: keeper.Keeper
    answers: health.Answers
    carrying: carrying.Carrying
    work: work.Work
    around: outside.Outside
    mesh: mesh_keeper.Keeper


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
    """Runs the Agent until SIGTERM or SIGINT.

    Raises a `Failure` where it cannot start, and `NeedsOperator` where it runs no further without
    a person; what the machine holds is then as it was.
    """
    modes.tighten(where, warn=lambda text: logs.warning(LOGGER, text))
    load(where)  # before anything is written into what may be no data directory
    with lock.held(
        where.agent_lock, busy=f"Another Agent runs already with the data directory {where.folder}."
    ):
        joined = load(where)
        await _finish_renewal(where, clock=clock)
        parts = _parts(where, joined=joined, clock=clock, chance=chance, environment=environment)
        if joined.agent.connectivity is agent_file.Connectivity.DIAL_OUT:
            await _dial_out(parts)
        else:
            await _listen(parts)
    logs.info(LOGGER, "Agent stopped", node_id=joined.agent.node_id)


async def _finish_renewal(where: paths.Paths, *, clock: clock_kit.Clock) -> None:
    """A renewal that was cut off between its two files is finished; otherwise it can wait."""
    if not own.is_half_replaced(where):
        return
    try:
        async with lock.waited_for(where, clock=clock):
            replacing.finish(where)
    except OSError as error:
        logs.warning(LOGGER, "A renewal could not be finished", reason=error.strerror)


def _parts(
    where: paths.Paths,
    *,
    joined: Joined,
    clock: clock_kit.Clock,
    chance: random.Random,
    environment: Mapping[str, str],
) -> Parts:
    trusted = anchors.Anchors(where, held=joined.held, clock=clock)
    keeping = keeper.Keeper(
        where, trusted=trusted, clock=clock, chance=chance, environment=environment
    )
    mesh = mesh_keeper.Keeper(
        where,
        member=mesh_keeper.Member(
            platform_id=joined.held.statement.platform_id, node_id=joined.agent.node_id
        ),
        clock=clock,
        chance=chance,
    )
    answers = health.Answers(
        joined.agent.node_id,
        folder=where.folder,
        trusted=trusted,
        clock=clock,
        mesh=lambda: mesh.state,
    )
    doing = carrying.Carrying(keeping)
    working = work.Work(
        where, node_id=joined.agent.node_id, kinds=doing.kinds(), trusted=keeping, clock=clock
    )
    instance = secrets.token_hex(16)
    around = outside.Outside(
        clock=clock,
        chance=chance,
        instance=instance,
        connect=gateway.Gateway(clock=clock, environment=environment).connect,
        trust=keeping,
        work=work_and_mesh.WorkAndMesh(working, mesh=mesh),
        teller=told.Teller(where.session, instance=instance, clock=clock),
        health=answers.health,
        heartbeat=answers.heartbeat,
    )
    return Parts(
        where=where,
        joined=joined,
        trusted=trusted,
        keeping=keeping,
        answers=answers,
        carrying=doing,
        work=working,
        around=around,
        mesh=mesh,
    )


async def _dial_out(parts: Parts) -> None:
    """Holds the session; no port is open."""
    session = client.Client(parts.where, around=parts.around)
    parts.carrying.renew = lambda new_key: session.renew(new_key=new_key)
    stop, ended = _stop_signal(), _Ended()
    _tell_ready(parts, port=None)
    try:
        await supervise.run(
            {
                "session": lambda: ended.watch(session.run, stop=stop),
                "orders": parts.work.run,
                "trust-refresh": parts.keeping.run,
                "trust-watch": parts.keeping.watch,
                "mesh": parts.mesh.run,
            },
            stop=stop,
        )
    finally:
        failure = ended.failure
        if parts.where.agent.exists():  # gone where a command beside it has left the Platform
            parts.around.teller.tell(
                state="stopped",
                reason=None if failure is None else str(failure),
                kind=None if failure is None else "needs-operator",
            )
    if ended.failure is not None:
        raise ended.failure


async def _listen(parts: Parts) -> None:
    """Answers on the port, and runs errands on the gateway."""
    number = parts.joined.agent.port
    door = health.Door(
        parts.answers, work=parts.around.work, trusted=parts.trusted, clock=parts.around.clock
    )
    errands_of_it = upkeep.Upkeep(parts.where, around=parts.around)
    parts.carrying.renew = lambda new_key: errands_of_it.renew(new_key=new_key)
    knocks = Knocks(parts.keeping, clock=parts.around.clock)
    parts.mesh.session_opened(functools.partial(errands.ask, parts.where, around=parts.around))
    stop = _stop_signal()
    async with _port_open(number, door=door, knocks=knocks, trusted=parts.trusted):
        _tell_ready(parts, port=number)
        if not parts.trusted.key_ids():
            logs.warning(LOGGER, "No trust key is valid now, every client is refused until one is")
        await supervise.run(
            {
                "trust-refresh": parts.keeping.run,
                "trust-watch": parts.keeping.watch,
                "upkeep": errands_of_it.run,
                "mesh": parts.mesh.run,
                "orders": parts.work.run,
            },
            stop=stop,
        )


@contextlib.asynccontextmanager
async def _port_open(
    number: int, *, door: health.Door, knocks: "Knocks", trusted: anchors.Anchors
) -> AsyncIterator[None]:
    sockets = port.hold(number)
    if sockets is None:
        raise failures.Temporary(
            f"Port {number} is in use by another program. Stop it, then start the Agent again."
        )
    serving = server.Server(
        door.answer, limits=_LIMITS, tls=trusted.context, handshake_failed=knocks.failed
    )
    try:
        for listener in sockets:
            serving.start(listener)
        yield
    finally:
        await serving.drain(timeout_s=_DRAIN_SECONDS)
        for listener in sockets:
            listener.close()


def _tell_ready(parts: Parts, *, port: int | None) -> None:
    logs.info(
        LOGGER,
        "Agent ready",
        node_id=parts.joined.agent.node_id,
        version=product.VERSION,
        connectivity=parts.joined.agent.connectivity.value,
        port=port,
        pin=parts.joined.identity.pin,
        trust_keys=list(parts.trusted.key_ids()),
    )


class _Ended:
    """How a part ended that may end by a failure which a person must settle."""

    def __init__(self) -> None:
        self.failure: failures.Failure | None = None

    async def watch(self, work: supervise.Work, *, stop: asyncio.Event) -> None:
        """Runs it; its failure ends the program with that failure's sentence and exit code."""
        try:
            await work()
        except failures.Failure as failure:
            self.failure = failure
            stop.set()


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
