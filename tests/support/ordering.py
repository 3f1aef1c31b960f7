"""Engines and Agents that give and take orders, joined in memory over a real store.

Everything between the two is the product's own: rows, plan, delivery, the link's frames, the
Agent's verdict, its journal on the disk. Not there: TLS, the gateway's opening, the API.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import json
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from platform_server.dispatch import deliver, giving, records
from platform_server.store import contract, opening
from platform_server.trust import statements as published
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from tests.support import domain, waits
from wire_protocol import ids, orders, session, statements, trust
from worker_agent.orders import work
from worker_agent.settings import failures, paths

HOUR = datetime.timedelta(hours=1)


class Trusted:
    """The trust set of one machine."""

    def __init__(self, held: trust.Held) -> None:
        self.held = held
        self.unknown_keys = 0

    def unknown_key(self) -> None:
        self.unknown_keys += 1


class _Ahead:
    """A machine's clock, which may go ahead of the Platform's."""

    def __init__(self, clock: clock_kit.Clock, *, machine: "Machine") -> None:
        self._clock = clock
        self._machine = machine

    def now(self) -> datetime.datetime:
        return self._clock.now() + self._machine.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class Machine:
    """One machine with its Agent's part in orders; `did` is what was carried out, in order."""

    def __init__(self, folder: pathlib.Path, *, node_id: str, platform: domain.Domain) -> None:
        self.node_id = ids.parse_node_id(node_id)
        self.where = paths.Paths(folder=folder / node_id)
        self.where.folder.mkdir(mode=0o700, exist_ok=True)
        self.trusted = Trusted(held_of(platform))
        self.clock = _Ahead(platform.clock, machine=self)
        self.ahead = datetime.timedelta(0)
        self.did: list[str] = []
        self.heard: list[tuple[int, int]] = []  # every order that came in, again or not
        self.gate = asyncio.Event()  # closed, whatever is begun goes on until it opens
        self.gate.set()
        self.on_heard: Callable[[], object] | None = None
        self.start()

    def start(self) -> None:
        """The Agent's process starts, with what the disk holds."""
        self.work = work.Work(
            self.where,
            node_id=self.node_id,
            kinds={
                orders.Kind.REFRESH_TRUST: self._refresh,
                orders.Kind.RENEW: self._fail,
            },
            trusted=self.trusted,
            clock=self.clock,
        )

    def knows_little(self) -> None:
        """Its Agent is an older one, which knows only to refresh the trust set."""
        self.work = work.Work(
            self.where,
            node_id=self.node_id,
            kinds={orders.Kind.REFRESH_TRUST: self._refresh},
            trusted=self.trusted,
            clock=self.clock,
        )

    async def answer(self, _link: links.Link, method: str, body: bytes) -> bytes:
        """The Agent's end of its session."""
        assert method == session.Ask.ORDER
        order = json.loads(orders.parse_signed(body).content)
        self.heard.append((order["epoch"], order["sequence"]))
        answer = await self.work.take(body)
        if self.on_heard is not None:
            self.on_heard()
        return answer

    async def _refresh(self, content: Mapping[str, Any]) -> str:
        assert content == {}
        self.did.append("refresh-trust")
        await self.gate.wait()
        return "The trust set is current."

    async def _fail(self, content: Mapping[str, Any]) -> str:
        assert content == {}
        self.did.append("renew")
        raise failures.Temporary("No session with the Platform is open.")


class Engine:
    """One engine's delivery, with the sessions that it holds."""

    def __init__(self, platform: domain.Domain) -> None:
        self.platform = platform
        self.links: dict[ids.NodeId, links.Link] = {}
        self.pairs: list[transports.InMemoryPair] = []
        self.deliverer = deliver.Deliverer(
            platform.store, asker=None, environment="test", clock=platform.clock
        )
        self.deliverer.find = self._find

    def connect(self, machine: Machine) -> transports.InMemoryPair:
        """The machine opens its session here."""

        async def answer(_link: links.Link, method: str, body: bytes) -> bytes:
            assert method == session.Ask.RESULT
            return await self.deliverer.take_result(machine.node_id, body)

        pair = transports.in_memory_pair(answer_left=machine.answer, answer_right=answer)
        self.links[machine.node_id] = pair.right
        self.pairs.append(pair)
        machine.work.session_opened(functools.partial(_ask, pair.left))
        self.deliverer.session_opened(machine.node_id, pair.right)
        return pair

    def _find(self, node_id: ids.NodeId) -> links.Link | None:
        link = self.links.get(node_id)
        return None if link is None or link.ended is not None else link

    async def give(
        self,
        node_id: str,
        kind: orders.Kind = orders.Kind.REFRESH_TRUST,
        *,
        ttl: datetime.timedelta = HOUR,
        deliver_it: bool = True,
    ) -> records.Order:
        """Gives an order as the route does; without delivery, as if killed right after."""
        wish = giving.Wish(
            node_id=ids.parse_node_id(node_id), kind=kind, ttl=ttl, created_by="local:0"
        )
        order = await self.platform.store.transact(
            lambda tx: giving.give(
                tx,
                wish=wish,
                sign=functools.partial(self.platform.trust.sign, context=orders.CONTEXT),
                operators=self.platform.operators,
                now=self.platform.clock.now(),
            )
        )
        if deliver_it:
            self.deliverer.given(order.node_id)
        return order

    async def states(self, node_id: str) -> Sequence[tuple[int, str]]:
        """Sequence and state of every order of the node, the first first."""
        found = await self.listed(node_id)
        return [(one.sequence, one.state.value) for one in found]

    async def listed(self, node_id: str) -> Sequence[records.Order]:
        """Every order of the node, the first first."""
        wanted = ids.parse_node_id(node_id)
        found = await self.platform.store.read(
            lambda tx: records.list_page(tx, node_id=wanted, limit=500, before=None)
        )
        return list(reversed(found))


async def _ask(link: links.Link, method: str, body: bytes) -> bytes:
    return await link.ask(method, body, timeout_s=10.0)


def held_of(platform: domain.Domain) -> trust.Held:
    """What a machine holds that has just joined."""
    signed = platform.trust.published.signed
    return trust.Held(signed=signed, statement=statements.parse_statement(signed.content))


@contextlib.asynccontextmanager
async def running(*parts: Engine | Machine) -> AsyncIterator[None]:
    """These run for the length of an `async with`; then they are cut off as by a kill."""
    tasks = [
        asyncio.create_task(
            part.deliverer.run() if isinstance(part, Engine) else part.work.run(),
            name=type(part).__name__,
        )
        for part in parts
    ]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in parts:
            if isinstance(part, Engine):
                for pair in part.pairs:
                    pair.cut()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A Platform's domain on a store, and a folder for machines."""

    platform: domain.Domain
    folder: pathlib.Path

    async def machine(self, node_id: str, *, folder: str = "", replace: bool = False) -> Machine:
        """A machine that has joined; with `replace` in the place of the one that had the node."""
        token = await self.platform.new_token(node_id, replace=replace)
        said = await self.platform.knock(node_id, token)
        assert said.status == 201, said
        where = self.folder / folder
        where.mkdir(exist_ok=True)
        return Machine(where, node_id=node_id, platform=self.platform)


async def place(store: contract.Store, *, folder: pathlib.Path) -> Place:
    """A Platform on this store."""
    return Place(platform=await domain.build(store, folder=folder), folder=folder)


@contextlib.asynccontextmanager
async def second(place_: Place, *, url: str, folder: pathlib.Path) -> AsyncIterator[domain.Domain]:
    """Another engine's domain on the same PostgreSQL."""
    store = await opening.open_store(url)
    try:
        (folder / "second").mkdir()
        yield await domain.build(
            store,
            folder=folder / "second",
            keyring=place_.platform.keyring,
            clock=place_.platform.clock,
        )
    finally:
        await store.close()


async def is_heard(one: Engine, other: Engine) -> None:
    """Waits until signals of one engine reach the other."""
    heard: list[str] = []
    cancel = other.platform.store.listen("trial", heard.append)
    async for _ in waits.looks():
        one.platform.store.signal("trial", "1")
        if "1" in heard:
            break
    cancel()


async def raise_epoch(place_: Place, *, machines: Sequence[Machine]) -> None:
    """A backup was restored, and the machines have followed the new statement."""
    await place_.platform.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO platform_values (name, value) VALUES ('epoch', '2') "
            "ON CONFLICT (name) DO UPDATE SET value = '2'"
        )
    )
    await place_.platform.trust.publish(None)
    assert place_.platform.trust.published.statement.epoch == published.FIRST_EPOCH + 1
    for machine in machines:
        machine.trusted.held = held_of(place_.platform)


async def set_of_another_platform(folder: pathlib.Path, *, like: Place) -> trust.Held:
    """A trust set under the same platform id whose keys the Platform does not have."""
    (folder / "other").mkdir()
    store = await opening.open_store(f"sqlite:///{folder}/other/enlist.db")
    try:
        statement = like.platform.trust.published.statement
        await store.transact(
            lambda tx: tx.execute(
                "INSERT INTO platform_values (name, value) VALUES ('platform_id', ?)",
                statement.platform_id,
            )
        )
        return held_of(await domain.build(store, folder=folder / "other"))
    finally:
        await store.close()


async def purge(place_: Place) -> None:
    """As the housekeeper does, with orders kept for 90 days."""
    before = place_.platform.clock.now() - datetime.timedelta(days=90)
    await place_.platform.store.transact(
        lambda tx: records.purge(tx, ended_before=before, limit=500)
    )


async def ended(engine: Engine, node_id: str = "web-1") -> list[tuple[int, str]]:
    """Waits until the node has no order open; then what became of all."""
    found: list[tuple[int, str]] = []

    async def look() -> bool:
        found[:] = await engine.states(node_id)
        return all(state not in ("queued", "accepted") for _, state in found)

    async for _ in waits.looks():
        if await look():
            break
    return found


async def has_state(engine: Engine, state: str, node_id: str = "web-1") -> None:
    """Waits until the node's last order stands there."""
    async for _ in waits.looks():
        if (await engine.states(node_id))[-1][1] == state:
            break
