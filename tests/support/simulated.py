"""A Platform and many machines in simulated time, as real code over links in memory.

Real: the store (SQLite), trust keys and statements and their rotation, the ports' TLS keys, the
enroll door, the gateway with its sessions, and on every machine the join, the files on the disk,
the trust keeper and the session with its renewals. Simulated: time (`virtual_time`) and the network
between them, which compares pins and certificates as TLS would and loses what it is told to lose.
The Platform's own loops are turned by hand, at the pace of the simulation.

Known limit: a machine that is cut off for more than a minute skips the tries in between, which are
all the same: what it does at the beginning and at the end of the outage happens for real. A
heartbeat comes once a week, and the Platform's loops turn every other day; there is no TLS, no mesh
and no restore.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import json
import pathlib
import random
import secrets
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import serialization

from platform_server.gateway import rules
from platform_server.trust import port_certificate
from runtime_kit import clock as clock_kit
from runtime_kit import dial, pinned_handshake, server_trust
from runtime_kit import secret as secret_kit
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from tests.support import domain, simulated_platform, virtual_time
from tests.support import gateways as engines
from wire_protocol import ids, pins, product
from worker_agent.app import anchors, health, keeper
from worker_agent.door import gateway as gateway_door
from worker_agent.door import platform as platform_door
from worker_agent.enrollment import flow, plan, stored, surroundings, wish
from worker_agent.identity import certificates, replacing
from worker_agent.session import client, outside
from worker_agent.settings import failures, paths
from worker_agent.trust import refresh

DAY = simulated_platform.DAY
_NODE = "ENLIST_SIMULATED_NODE"
_SKIPPED_FROM_SECONDS = 60.0


class MachineClock(virtual_time.VirtualClock):
    """A machine's clock; in an outage its waits lead to the outage's end."""

    def __init__(self, loop: virtual_time.Loop, *, start: datetime.datetime) -> None:
        super().__init__(loop, start=start)
        self.cut_off_until = 0.0

    def cut_off(self, seconds: float) -> None:
        """Nothing can be reached for that long."""
        self.cut_off_until = max(self.cut_off_until, self.monotonic() + seconds)

    async def sleep(self, seconds: float) -> None:
        """Waits; see the class."""
        left = self.cut_off_until - self.monotonic()
        await super().sleep(left + seconds if left > _SKIPPED_FROM_SECONDS else seconds)


class Machine:
    """One machine, on or off, cut off or not, with its real files."""

    def __init__(self, world: "World", *, node_id: str, number: int) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/{node_id}")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._session: client.Client | None = None
        self._pairs: list[transports.InMemoryPair] = []
        self.node_id = ids.parse_node_id(node_id)
        self.address = f"10.{number >> 8}.{number & 255}.1"
        self.where = paths.Paths(folder=world.folder / node_id)
        self.clock = MachineClock(world.loop, start=world.start)
        self.is_cut_off = False
        self.failures: list[failures.Failure] = []
        self.keys_seen: set[pins.Pin] = set()
        self.certificates_seen: set[bytes] = set()

    @property
    def environment(self) -> Mapping[str, str]:
        """How the network knows who asks."""
        return {_NODE: self.node_id}

    @property
    def is_running(self) -> bool:
        """Whether the Agent runs."""
        return self._session is not None

    @property
    def is_open(self) -> bool:
        """Whether its session carries work."""
        return self._session is not None and self._session.is_open

    async def join(self, token: str) -> None:
        """The real join, once in its life."""
        given = wish.Given(join_token=secret_kit.Secret(token))
        decided = plan.decide(wish.parse(given), stored=stored.read(self.where))
        assert isinstance(decided, plan.Join)
        around = surroundings.Surroundings(
            clock=self.clock,
            chance=self._chance,
            environment=self.environment,
            warn=lambda _text: None,
            say=lambda _text: None,
        )
        await flow.join(decided, where=self.where, around=around)

    def start(self, *, keeps_trust: bool) -> None:
        """Starts the Agent as its composition root does for a machine that dials out."""
        _, held = refresh.load(self.where)
        trusted = anchors.Anchors(self.where, held=held, clock=self.clock)
        keeping = keeper.Keeper(
            self.where,
            trusted=trusted,
            clock=self.clock,
            chance=self._chance,
            environment=self.environment,
        )
        answers = health.Answers(
            self.node_id, folder=self.where.folder, trusted=trusted, clock=self.clock
        )
        self._session = client.Client(
            self.where,
            around=outside.Outside(
                clock=self.clock,
                chance=self._chance,
                instance=secrets.token_hex(16),
                connect=self._connect,
                trust=keeping,
                work=outside.NoWork(),
                teller=outside.Untold(),
                health=answers.health,
                heartbeat=answers.heartbeat,
            ),
        )
        self._run("session", self._session.run())
        if keeps_trust:
            self._run("trust", keeping.run())

    async def stop(self, *, is_killed: bool) -> None:
        """Ends the Agent: by its signal, or as a power cut would."""
        if is_killed:
            self.cut()
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._running.clear()
        self._session = None

    async def change_key(self) -> None:
        """As `enlist worker renew --new-key`; a session that is away is no fault."""
        if self._session is not None:
            with contextlib.suppress(failures.Temporary):
                await self._session.renew(new_key=True)

    async def outage(self, seconds: float, *, is_silent: bool) -> None:
        """The network is away that long; silent, or with connections that break at once."""
        self.is_cut_off = True
        self.clock.cut_off(seconds)
        if is_silent:
            for pair in self._pairs:
                pair.blackhole()
        else:
            self.cut()
        await asyncio.sleep(seconds)
        self.is_cut_off = False
        if is_silent:
            self.cut()  # what was under way is long forgotten by the network

    def cut(self) -> None:
        """Every connection breaks."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.cut()

    def note(self) -> None:
        """Takes note of the key and the certificate in use now."""
        present = certificates.parse_certificate(self.where.certificate.read_bytes())
        self.keys_seen.add(pins.pin_of_certificate(present))
        self.certificates_seen.add(present.public_bytes(serialization.Encoding.DER))

    def _run(self, name: str, work: Any) -> None:
        async def watched() -> None:
            try:
                await work
            except failures.Failure as failure:
                self.failures.append(failure)

        self._running[name] = asyncio.create_task(watched(), name=f"{name} {self.node_id}")

    async def _connect(
        self,
        url: str,
        *,
        pins: frozenset[pins.Pin],
        proof: replacing.Candidate,
        answer: links.Answer,
    ) -> links.Link:
        """As `door.gateway` does, with the gateway of the simulation."""
        engine = self._world.reach(self, url=url, known=simulated_platform.GATEWAY_URL)
        leaf = self._world.platform.leaf(port_certificate.GATEWAY)
        if not leaf.matches(frozenset(pins)):
            raise pinned_handshake.PinMismatch(expected=frozenset(pins), got=leaf.pin, server=url)
        shown = _shown(proof)
        name = gateway_door.server_name(proof.pin, host="platform.example")
        allowed = [one.der for one in engine.gate._anchors.of_server_name(name)]
        pair = transports.in_memory_pair(
            answer_left=answer,
            peer_left=self.address,
            peer_right="platform.example:8445",
            limits=rules.BEFORE_OPEN,
            clock=self.clock,
        )
        if shown not in allowed:
            pair.left.lost("The gateway does not know this certificate", client_refused=True)
            return pair.left
        self._pairs = [one for one in self._pairs if one.left.ended is None]
        self._pairs.append(pair)
        engine.gate.take(pair.right, engine.gate._anchors.of_leaf(shown, pin=proof.pin))
        return pair.left


class World:
    """All of it, and the network between."""

    def __init__(
        self, *, folder: pathlib.Path, loop: virtual_time.Loop, start: datetime.datetime, seed: int
    ) -> None:
        self.folder = folder
        self.loop = loop
        self.start = start
        self.seed = seed
        self.platform = simulated_platform.Platform(
            folder=folder,
            loop=loop,
            clock=virtual_time.VirtualClock(loop, start=start),
            chance=random.Random(f"{seed}/platform"),
        )
        self.machines: dict[str, Machine] = {}

    def add(self, node_id: str) -> Machine:
        """A machine that has not joined yet."""
        machine = Machine(self, node_id=node_id, number=len(self.machines))
        self.machines[node_id] = machine
        return machine

    def reach(self, machine: Machine, *, url: str, known: str) -> engines.Engine:
        """The engine, if the machine's packets get there now; raises as a dial does."""
        engine = self.platform.engine
        if machine.is_cut_off or engine is None or url != known:
            raise dial.DialFailed(f"{url} cannot be reached")
        return engine

    async def ask(
        self,
        url: str,
        *,
        question: platform_door.Question,
        trust: server_trust.ServerTrust | None,
        clock: clock_kit.Clock,
        within_s: float,  # noqa: ARG002 - answers come at once
        environment: Mapping[str, str],
        on_proved: Any = None,
    ) -> platform_door.Answer:
        """In place of `door.platform.ask`: the enrollment listener of the simulation."""
        machine = self.machines[environment[_NODE]]
        engine = self.reach(machine, url=url, known=simulated_platform.ENROLLMENT_URL)
        leaf = self.platform.leaf(port_certificate.ENROLLMENT)
        if trust is not None:
            if not leaf.matches(trust.pins):
                raise pinned_handshake.PinMismatch(expected=trust.pins, got=leaf.pin, server=url)
            if on_proved is not None:
                on_proved(leaf)
        door = engine.domain.door
        ask = door.answer_enroll if question.path == product.ENROLL_PATH else door.answer_trust
        said = await ask(question.body, address=machine.address, request_id=domain.REQUEST)
        return platform_door.Answer(
            status=said.status,
            body=said.body,
            location=None,
            retry_after=said.retry_after_seconds,
            clock_ahead=clock.now() - self.platform.clock.now(),
            leaf=leaf,
        )

    async def outage(self, seconds: float, *, is_killed: bool) -> None:
        """The Platform is stopped, or its machine loses power, and starts that much later."""
        for machine in self.machines.values():
            machine.clock.cut_off(seconds)
        if is_killed:
            await self.platform.kill()
            for machine in self.machines.values():
                machine.cut()
        else:
            await self.platform.stop()
        await asyncio.sleep(seconds)
        await self.platform.start()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run in figures, for whoever looks at it."""

    seed: int
    machines: int
    days: float
    sessions: int
    renewals: int
    key_changes: int
    statements: int

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def _shown(proof: replacing.Candidate) -> bytes:
    """The certificate, of which the machine has the key; what a handshake proves."""
    pair = proof.certificate.read_bytes()
    certificate = certificates.parse_certificate(pair)
    key = certificates.parse_key(proof.key.read_bytes())
    assert key.public_key() == certificate.public_key()
    return certificate.public_bytes(serialization.Encoding.DER)
