"""Engines with their gateway on one store, without a port: what the gateway's tests stand on."""

import asyncio
import contextlib
import dataclasses
import datetime
import pathlib
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from platform_server.gateway import gateway as gateways
from platform_server.gateway import questions, rules
from platform_server.nodes import absence, engines, leading, records, requirement
from platform_server.store import contract
from platform_server.trust import statements
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from tests.support import domain, scripted_agent
from wire_protocol import ids


@dataclasses.dataclass(kw_only=True)
class Engine:
    """One engine's domain and its gateway."""

    domain: domain.Domain
    gate: gateways.Gateway
    opened: list[tuple[ids.NodeId, links.Link]]

    @property
    def clock(self) -> clock_kit.ManualClock:
        return self.domain.clock

    @property
    def store(self) -> contract.Store:
        return self.domain.store

    async def join(self, node_id: str, **more: Any) -> scripted_agent.Identity:
        """A machine enrolls here, and the gateway knows it at once."""
        key = domain.new_key()
        certificate = domain.certificate_of(key)
        token = await self.domain.new_token(node_id)
        said = await self.domain.knock(node_id, token, certificate=certificate, **more)
        assert said.status == 201, said.body
        identity = scripted_agent.Identity(
            node_id=ids.NodeId(node_id), key=key, certificate_pem=certificate
        )
        self.gate.joined(identity.node_id, pin=identity.pin, certificate_pem=certificate)
        return identity

    def agent(self, identity: scripted_agent.Identity, **more: Any) -> scripted_agent.Agent:
        return scripted_agent.Agent(self.gate, identity, clock=self.clock, **more)

    async def open(self, identity: scripted_agent.Identity, **more: Any) -> scripted_agent.Agent:
        """An open session whose node has been asked."""
        agent = await self.agent(identity, **more).open()
        await self.settle()
        return agent

    async def begun(self) -> None:
        """The gateway has begun to write what was confirmed."""
        async with asyncio.timeout(10):
            while not self.gate._work:  # noqa: ASYNC110 - it begins here and ends in a few turns
                await asyncio.sleep(0)

    async def answered(self, asking: Coroutine[Any, Any, bytes]) -> None:
        """The question has had its effect; what came back is thrown away."""
        await asyncio.gather(asking, return_exceptions=True)

    async def settle(self) -> None:
        """What the gateway has begun is done."""
        while self.gate._work:
            await asyncio.gather(*self.gate._work, return_exceptions=True)

    async def turn(self) -> None:
        """One round of everything that runs beside the gateway."""
        now = self.clock.now()
        await self.store.transact(
            lambda tx: engines.sign_on(tx, engine_id=self.gate._rules.engine_id, now=now)
        )
        for node_id in await self.gate._anchors.follow():
            self.gate.connections.recheck(node_id)
        self.gate._watch.close_silent()
        self.gate.connections.close_slow()
        await self.flush()
        await self.settle()

    async def flush(self) -> None:
        """Writes what was lost and heard."""
        await self.gate._watch.write_lost()
        while len(self.gate._news):
            for peer in await self.gate._news.flush():
                peer.link.close(reason="session-lost", retry_after_s=0.0)
        await self.gate._watch.write_lost()

    async def sweep(self) -> list[ids.NodeId]:
        """As the engine that leads does; gives who became unreachable."""
        lease = leading.Leading(self.store, name=absence.LEASE, clock=self.clock)
        return list(
            await absence.sweep(
                self.store,
                engine_id=self.gate._rules.engine_id,
                lease=lease,
                now=self.clock.now(),
            )
        )

    async def node(self, node_id: str) -> records.Node:
        found = await self.store.read(lambda tx: records.find(tx, node_id=ids.NodeId(node_id)))
        assert found is not None
        return found

    async def state(self, node_id: str) -> tuple[str, str | None]:
        node = await self.node(node_id)
        return node.state.value, node.reason

    async def value(self, sql: str, *values: object) -> Any:
        """The one value of a query."""
        row = await self.store.read(lambda tx: tx.fetch_one(sql, *values))
        return None if row is None else row["value"]

    async def kinds(self) -> list[str]:
        """The kinds of all events so far, oldest first."""
        rows = await self.store.read(
            lambda tx: tx.fetch_all("SELECT kind FROM events ORDER BY seq LIMIT 1000")
        )
        return [row["kind"] for row in rows]


@contextlib.asynccontextmanager
async def engine(
    store: contract.Store,
    *,
    folder: pathlib.Path,
    engine_id: str = "engine-a",
    beside: Engine | None = None,
    facts: statements.Facts | None = None,
    listens: questions.Listens | None = None,
    lack: requirement.Requirement = requirement.nothing,
    **given: Any,
) -> AsyncIterator[Engine]:
    """An engine on the store; `beside` another one, whose keys and clock it shares."""
    built = await domain.build(
        store,
        folder=folder,
        keyring=None if beside is None else beside.domain.keyring,
        clock=None if beside is None else beside.clock,
        facts=facts,
    )
    gate = gateways.Gateway(
        store,
        trust=built.trust,
        operators=built.operators,
        given=rules.Rules(engine_id=engine_id, environment="test", **given),
        clock=built.clock,
        chance=random.Random(7),
        listens=listens,
        lack=lack,
    )
    await gate.prepare()
    opened: list[tuple[ids.NodeId, links.Link]] = []
    gate.on_open.append(lambda node_id, link: opened.append((node_id, link)))
    try:
        yield Engine(domain=built, gate=gate, opened=opened)
    finally:
        await gate.drain(seconds=5.0)


async def ended(link: links.Link, *, seconds: float = 10.0) -> links.Ended:
    """How the link ended; bounded."""
    async with asyncio.timeout(seconds):
        return await link.wait_closed()


async def refusal(asking: Any) -> links.Refused:
    """The refusal of a question that must be refused."""
    try:
        said = await asking
    except links.Refused as refused:
        return refused
    raise AssertionError(f"It was answered: {said!r}")


def later(engine_: Engine, seconds: float) -> datetime.datetime:
    """Moves the clock on and gives the new moment."""
    engine_.clock.advance(seconds)
    return engine_.clock.now()
