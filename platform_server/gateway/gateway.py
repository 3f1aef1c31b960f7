"""The gateway of one engine: its port, its sessions, and the loops that keep them.

API, for the program that composes it::

    gate = gateway.Gateway(store, trust=…, operators=…, given=rules.Rules(…), clock=…, chance=…)
    await gate.prepare()              # signs this engine on and reads the certificates
    gate.serve_with(identity)         # the port's key, now and whenever it changes
    gate.start(sock)                  # bound and listening
    gate.tasks                        # for `supervise`
    await gate.drain(seconds=4.0)     # sends every session away with a hint when to come back

    gate.sessions.find(node_id)       # the link of a node whose session this engine holds
    gate.on_open.append(callback)     # (node_id, link): it has just answered as that node
    gate.further = {session.Ask.RESULT: take_result}     # questions that others answer
    gate.joined(node_id, pin=…, certificate_pem=…)       # an enrollment of this engine
    gate.changed(node_id)             # this engine has changed a node: look at it now

What a node may do is decided by its row, at hello and at each question that writes. A node that is
removed or gets another key loses its session at once here, and within about a second elsewhere.
"""

import asyncio
import functools
import logging
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from platform_server.gateway import (
    anchors,
    connections,
    elsewhere,
    news,
    opening,
    peers,
    port,
    presence,
    questions,
    rules,
)
from platform_server.nodes import absence, configured, engines, registry, requirement
from platform_server.store import contract
from platform_server.trust import authority, port_certificate
from runtime_kit import clock as clock_kit
from runtime_kit import supervise
from runtime_kit.mux import link as links
from wire_protocol import ids, pins, session

_LOG = logging.getLogger(__name__)
_TICK_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 2.0
_GHOSTS_SECONDS: Final = 60.0
_ANSWERED_SECONDS: Final = 30.0
_BACK_A_SECOND: Final = 200.0  # sessions that come back after a drain
_LONGEST_BACK_SECONDS: Final = 30.0  # well within the grace
_CLOSED_SECONDS: Final = 2.0


class Gateway:
    """Holds the sessions of one engine."""

    def __init__(
        self,
        store: contract.Store,
        *,
        trust: authority.Authority,
        operators: configured.ConfiguredNodes,
        given: rules.Rules,
        clock: clock_kit.Clock,
        chance: random.Random,
        listens: questions.Listens | None = None,
        lack: requirement.Requirement = requirement.nothing,
    ) -> None:
        self._store = store
        self._rules = given
        self._clock = clock
        self._chance = chance
        self.sessions = peers.Sessions()
        self._anchors = anchors.Anchors(store)
        self._others = elsewhere.Elsewhere(
            store, engine_id=given.engine_id, ping=self._ping, end=self._end_replaced
        )
        self._opener = opening.Opener(
            store,
            open_sessions=self.sessions,
            others=self._others,
            trust=trust,
            given=given,
            clock=clock,
        )
        self._news = news.News(store, clock=clock)
        self._watch = presence.Watch(
            store,
            open_sessions=self.sessions,
            clock=clock,
            silent_seconds=given.silent_seconds,
            heartbeat_seconds=given.heartbeat_seconds,
            lack=lack,
        )
        self._questions = questions.Questions(
            store,
            opener=self._opener,
            heard=self._news,
            trust=trust,
            operators=operators,
            given=given,
            clock=clock,
            listens=listens,
        )
        self.connections = connections.Connections(
            known=self._anchors,
            open_sessions=self.sessions,
            opener=self._opener,
            asked=self._questions,
            watch=self._watch,
            heard=self._news,
            changed=self.changed,
            lack=lack,
            clock=clock,
        )
        self.on_open = self.connections.on_open
        self._work = self.connections.work
        self._port = port.Port(
            known=self._anchors,
            arrived=self.take,
            answer=self.connections.answer,
            given=given,
            clock=clock,
        )
        self._poke = asyncio.Event()
        self._cancels: list[Callable[[], None]] = []

    # What the program asks of it.

    @property
    def tasks(self) -> Mapping[str, supervise.Work]:
        """What runs beside it; for `supervise`."""
        return {
            "engine-presence": functools.partial(
                engines.keep, self._store, engine_id=self._rules.engine_id, clock=self._clock
            ),
            "gateway": self.keep,
            "gateway-follow": self.follow,
            "absence": functools.partial(
                absence.keep, self._store, engine_id=self._rules.engine_id, clock=self._clock
            ),
        }

    @property
    def further(self) -> Mapping[session.Ask, questions.Further]:
        """Questions of open sessions that other parts of the Platform answer."""
        return self._questions.further

    @further.setter
    def further(self, answers: Mapping[session.Ask, questions.Further]) -> None:
        self._questions.further = answers

    def ask_health(self, node_id: ids.NodeId) -> None:
        """Something else that counts for this node's readiness has changed: asks it soon."""
        peer = self.sessions.find_peer(node_id)
        if peer is not None and news.needs_asking(peer):
            peer.asked_at = -1e9  # what was asked a moment ago was asked too early
            self.connections.ask_health_soon(peer)

    @property
    def refused_handshakes(self) -> int:
        """How many handshakes came to nothing."""
        return self._port.refused

    async def prepare(self) -> None:
        """Signs this engine on and reads every node's certificates; raises `StoreError`."""
        now = self._clock.now()
        await self._store.transact(
            lambda tx: engines.sign_on(tx, engine_id=self._rules.engine_id, now=now)
        )
        await self._anchors.load()
        self._cancels = [
            self._others.start(),
            self._store.listen(registry.CHANGED, lambda _payload: self._poke.set()),
        ]
        _LOG.info("The gateway knows its nodes", extra={"nodes": len(self._anchors)})

    def take(self, link: links.Link, proved: Sequence[anchors.Anchor]) -> None:
        """A connection has proved one of these certificates: the port, or a test, hands it on."""
        self.connections.take(link, proved)

    def serve_with(self, identity: port_certificate.PortIdentity) -> None:
        """Uses this key and certificate from the next handshake on; sessions are kept."""
        self._port.serve_with(identity)

    def start(self, sock: socket.socket) -> None:
        """Begins to accept from a bound, listening socket, which stays the caller's."""
        self._port.start(sock)

    def joined(self, node_id: ids.NodeId, *, pin: pins.Pin, certificate_pem: str) -> None:
        """A node has just enrolled at this engine: it is known before it has its answer."""
        self._anchors.put(node_id, pin=pin, certificate_pem=certificate_pem)
        self.connections.recheck(node_id)  # of another key that it had
        if self._store.dialect is contract.Dialect.POSTGRESQL:
            self._store.signal(registry.CHANGED, node_id)

    def changed(self, node_id: ids.NodeId) -> None:
        """A node was changed by this engine, and that is committed: every engine looks now."""
        self._poke.set()
        self._store.signal(registry.CHANGED, node_id)

    async def drain(self, *, seconds: float) -> None:
        """Accepts no more and sends every session away, each with its own hint; bounded."""
        self.connections.draining = True
        self._port.stop()
        spread = min(_LONGEST_BACK_SECONDS, len(self.sessions) / _BACK_A_SECOND)
        for peer in [*self.sessions, *self.connections.unopened]:
            peer.link.close(reason="engine-replaced", retry_after_s=self._chance.uniform(0, spread))
        for cancel in self._cancels:
            cancel()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._others.stop()
        await self._port.finish(seconds=min(seconds, _CLOSED_SECONDS))
        now = self._clock.now()
        try:
            async with asyncio.timeout(seconds):
                await self._watch.write_lost()
                await self._store.transact(
                    lambda tx: engines.sign_off(tx, engine_id=self._rules.engine_id, now=now)
                )
        except (contract.StoreError, TimeoutError) as fault:
            _LOG.warning("The gateway could not sign off", extra={"reason": str(fault)})

    # Loops.

    async def keep(self) -> None:
        """Writes what was heard and lost, and ends what is silent or too slow. Runs for ever."""
        silence = 0.0
        ghosts = self._clock.monotonic() + _GHOSTS_SECONDS
        answered = self._clock.monotonic() + _ANSWERED_SECONDS
        while True:
            now = self._clock.monotonic()
            if now >= silence:
                self._watch.close_silent()
                silence = now + _SILENCE_SECONDS
            self.connections.close_slow()
            try:
                if now >= ghosts:
                    ghosts = now + _GHOSTS_SECONDS
                    await self._watch.find_ghosts(engine_id=self._rules.engine_id)
                if now >= answered:
                    answered = now + _ANSWERED_SECONDS
                    await self._watch.write_answered()
                await self._watch.write_lost()
                while self._news.is_due:
                    for peer in await self._news.flush():
                        peer.link.close(reason="session-lost", retry_after_s=0.0)
            except contract.StoreError as fault:
                _LOG.warning("The gateway's news were not written", extra={"reason": str(fault)})
            await self._clock.sleep(_TICK_SECONDS)

    async def follow(self) -> None:
        """Takes over what has changed about nodes, and ends sessions that may be no more."""
        while True:
            try:
                for node_id in await self._anchors.follow():
                    self.connections.recheck(node_id)
            except contract.StoreError as fault:
                _LOG.warning("Changes of nodes were not read", extra={"reason": str(fault)})
            await self._poked()

    async def _poked(self) -> None:
        """Waits for a second, or until somebody says that there is something to see."""
        poke = asyncio.ensure_future(self._poke.wait())
        tick = asyncio.ensure_future(self._clock.sleep(_TICK_SECONDS))
        try:
            await asyncio.wait({poke, tick}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            poke.cancel()
            tick.cancel()
        self._poke.clear()

    # For the other engines.

    async def _ping(self, node_id: ids.NodeId, session_id: str) -> bool | None:
        held = self.sessions.find_session(node_id, session_id=session_id)
        return None if held is None else await opening.answers_ping(held.link)

    def _end_replaced(self, node_id: ids.NodeId, session_id: str) -> None:
        held = self.sessions.find_session(node_id, session_id=session_id)
        if held is not None:
            held.link.close(reason="replaced")
