"""A node that dials out, inside the test's own process: its real client, and what it told.

`over_network` uses real connections; `in_memory` a pair of links, so that with a virtual clock
months pass at once. The files are real in both.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import random
from collections.abc import AsyncIterator, Mapping

from cryptography.hazmat.primitives import serialization

from runtime_kit import clock as clock_kit
from runtime_kit import dial, pinned_handshake
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from tests.support import imaginary_gateway, imaginary_platform
from wire_protocol import ids, pins, statements, trust
from worker_agent.app import anchors, health, keeper
from worker_agent.door import gateway as gateway_door
from worker_agent.identity import own, replacing
from worker_agent.session import client, outside
from worker_agent.settings import agent_file, failures, join_file, paths, trust_file


@dataclasses.dataclass(slots=True)
class Told:
    """Remembers what the session told."""

    states: list[dict[str, object]] = dataclasses.field(default_factory=list)
    heartbeats: int = 0

    def tell(self, **fields: object) -> None:
        self.states.append(fields)

    def heard(self) -> None:
        self.heartbeats += 1

    @property
    def waits(self) -> list[float]:
        """The waits that were announced."""
        return [float(str(one["next_try_seconds"])) for one in self.states if "reason" in one]

    @property
    def reasons(self) -> list[str]:
        """Why it waited, each time."""
        return [str(one["reason"]) for one in self.states if "reason" in one]


@dataclasses.dataclass(slots=True)
class HeldTrust:
    """A trust set that asks nobody; a test says what comes of asking."""

    held: trust.Held
    where: paths.Paths
    answer: failures.Failure | None = None
    asked: int = 0
    taken: int = 0

    async def take(self, answer: bytes, *, source: str) -> None:
        """Believes what comes over the session, by the real verdict."""
        assert source
        self.taken += 1
        now = self.held.statement.issued_at
        self.held = trust.accept(self.held, statements.parse_answer(answer), now=now)
        trust_file.write(self.where.trust, self.held)

    async def ask(self) -> None:
        """What the test says."""
        self.asked += 1
        if self.answer is not None:
            raise self.answer

    def unknown_key(self) -> None:
        """Nothing follows."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Node:
    """One node that dials out."""

    where: paths.Paths
    around: outside.Outside
    told: Told
    trust: HeldTrust
    ended: BaseException | None = None

    @property
    def agent(self) -> agent_file.AgentFile:
        """Its agent.json now."""
        found = agent_file.read(self.where.agent)
        assert found is not None
        return found

    @property
    def certificate(self) -> str:
        """The certificate in its place now."""
        return own.load(self.where).certificate_pem

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[client.Client]:
        """Its client, for the length of an `async with`; how it ended stands in `ended`."""
        holding = client.Client(self.where, around=self.around)

        async def hold() -> None:
            try:
                await holding.run()
            except failures.Failure as failure:
                self.ended = failure

        task = asyncio.create_task(hold())
        try:
            yield holding
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class InMemory:
    """The way to an imaginary gateway without a network; `down` and `other_key` are the test's."""

    def __init__(
        self, gateway: imaginary_gateway.ImaginaryGateway, *, clock: clock_kit.Clock
    ) -> None:
        self.gateway = gateway
        self.clock = clock
        self.down = False
        self.other_key = False
        self.dialled: list[float] = []
        self.pairs: list[transports.InMemoryPair] = []

    async def connect(
        self,
        url: str,
        *,
        pins: frozenset[pins.Pin],
        proof: replacing.Candidate,
        answer: links.Answer,
    ) -> links.Link:
        """A link, or what the test wants."""
        self.dialled.append(self.clock.monotonic())
        if self.down:
            raise dial.DialFailed(f"Could not connect to {url}: Connection refused")
        if self.other_key:
            raise pinned_handshake.PinMismatch(
                expected=frozenset(pins), got="sha256:" + "0" * 64, server=url
            )
        der = replacing.certificate_of(proof).public_bytes(serialization.Encoding.DER)
        pair = transports.in_memory_pair(answer_left=answer, clock=self.clock)
        self.pairs.append(pair)
        if not self.gateway.take(pair.right, der=der):
            pair.left.lost("refused this client's certificate", client_refused=True)
        return pair.left


async def passes(seconds: float) -> None:
    """That much time passes; at once where the loop's time is virtual."""
    await asyncio.sleep(seconds)


def join(
    folder: pathlib.Path,
    *,
    gateway: imaginary_gateway.ImaginaryGateway,
    clock: clock_kit.Clock,
    node_id: str = "web-1",
) -> paths.Paths:
    """The files of a joined machine, and the node at the gateway, without a network."""
    where = paths.Paths(folder=folder)
    where.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name, now, platform = ids.NodeId(node_id), clock.now(), gateway.platform
    identity = own.ensure(where, node_id=name, addresses=(), now=now, warn=print)
    signed = platform.statement()
    held = trust.Held(signed=signed, statement=statements.parse_statement(signed.content))
    trust_file.write(where.trust, held)
    join_file.write(
        where.join,
        join_file.JoinFile(
            platform_url=platform.url,
            platform_id=imaginary_platform.PLATFORM_ID,
            node_id=name,
            mode=join_file.Mode.PINS,
            given_pins=(pins.Pin(platform.tls_identity.pin),),
            pins=(pins.Pin(platform.tls_identity.pin),),
            ca_pem=None,
            enrollment_id=ids.EnrollmentId("0123456789abcdef"),
            joined_at=now,
        ),
    )
    agent_file.write(
        where.agent,
        agent_file.AgentFile(
            node_id=name,
            generation=1,
            connectivity=agent_file.Connectivity.DIAL_OUT,
            addresses=(),
            port=8443,
            reported_labels={},
            gateway_url=gateway.url,
            gateway_pins=(gateway.pin,),
            joined_at=now,
        ),
    )
    gateway.nodes[node_id] = imaginary_gateway.Node(node_id=name, present=identity.certificate)
    return where


def node(
    where: paths.Paths,
    *,
    connect: outside.Connector,
    clock: clock_kit.Clock,
    seed: int = 1,
    instance: str = "here",
) -> Node:
    """The node whose files these are."""
    held = trust_file.read(where.trust)
    assert held is not None
    told, keeping = Told(), HeldTrust(held=held, where=where)
    trusted = anchors.Anchors(where, held=held, clock=clock)
    answers = health.Answers(ids.NodeId("web-1"), folder=where.folder, trusted=trusted, clock=clock)
    around = outside.Outside(
        clock=clock,
        chance=random.Random(seed),
        instance=instance,
        connect=connect,
        trust=keeping,
        work=outside.NoWork(),
        teller=told,
        health=answers.health,
        heartbeat=answers.heartbeat,
    )
    return Node(where=where, around=around, told=told, trust=keeping)


def over_network(
    where: paths.Paths,
    *,
    clock: clock_kit.Clock | None = None,
    environment: Mapping[str, str] | None = None,
    instance: str = "here",
) -> Node:
    """The node over real connections, with the Agent's own trust keeper."""
    time = clock or clock_kit.SystemClock()
    way = gateway_door.Gateway(clock=time, environment=environment or {})
    made = node(where, connect=way.connect, clock=time, instance=instance)
    held = made.trust.held
    keeping = keeper.Keeper(
        where,
        trusted=anchors.Anchors(where, held=held, clock=time),
        clock=time,
        chance=random.Random(1),
        environment=environment or {},
    )
    made.around = dataclasses.replace(made.around, trust=keeping)
    return made
