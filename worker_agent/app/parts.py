"""What both modes of the Agent stand on: read from the disk, built once, handed on together."""

import asyncio
import dataclasses
import logging
import random
import secrets
import signal
from collections.abc import Callable, Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import service_manager
from wire_protocol import product
from wire_protocol import trust as verdicts
from worker_agent.app import (
    anchors,
    carrying,
    health,
    keeper,
    logs,
    releasing,
    work_and_mesh,
)
from worker_agent.door import gateway
from worker_agent.identity import own
from worker_agent.mesh import keeper as mesh_keeper
from worker_agent.orders import archive, root_helper, work
from worker_agent.session import outside, told
from worker_agent.settings import agent_file, documents, failures, paths
from worker_agent.trust import refresh

LOGGER = logging.getLogger(__name__)


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
    manager: service_manager.Manager


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


def build(
    where: paths.Paths,
    *,
    joined: Joined,
    clock: clock_kit.Clock,
    chance: random.Random,
    environment: Mapping[str, str],
) -> Parts:
    """Builds the parts; nothing runs yet."""
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
    releasing_it = releasing.Releasing(
        where,
        using=root_helper.of(environment),
        around=archive.Around(clock=clock, chance=chance, environment=environment),
    )
    releasing_it.tidy()
    working = work.Work(
        where,
        node_id=joined.agent.node_id,
        kinds=doing.kinds(),
        handed_on=releasing_it.kinds(),
        trusted=keeping,
        clock=clock,
    )
    instance = secrets.token_hex(16)
    around = outside.Outside(
        clock=clock,
        chance=chance,
        instance=instance,
        connect=gateway.Gateway(clock=clock, environment=environment).connect,
        trust=keeping,
        work=work_and_mesh.WorkAndMesh(working, mesh=mesh),
        teller=told.Teller(where, instance=instance, clock=clock),
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
        manager=_manager(environment),
    )


def tell_ready(parts: Parts, *, port: int | None) -> None:
    """The Agent does its work from now on: its port is held, or it dials and goes on dialling.

    Not that the Platform was reached: one that is away is no failed start of this machine's.
    """
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
    status = "Dials out to the Platform" if port is None else f"Listens on port {port}"
    node_id = parts.joined.agent.node_id
    _tell_manager(lambda: parts.manager.ready(f"{status} as node {node_id}"))


def stop_signal(parts: Parts) -> asyncio.Event:
    """Set by SIGTERM or SIGINT from now on; the service manager hears of it."""
    stop = asyncio.Event()

    def begin() -> None:
        stop.set()
        _tell_manager(parts.manager.stopping)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin)
    return stop


def _manager(environment: Mapping[str, str]) -> service_manager.Manager:
    try:
        return service_manager.of(environment)
    except service_manager.BadSurroundings as error:
        raise failures.Misuse(str(error)) from error


def _tell_manager(tell: Callable[[], None]) -> None:
    """A manager that does not hear changes nothing about the work; it acts by its own time-outs."""
    try:
        tell()
    except OSError as error:
        logs.warning(LOGGER, "The service manager was not told", reason=error.strerror)
