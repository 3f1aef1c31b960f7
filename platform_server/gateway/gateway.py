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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from platform_server.gateway import (
    anchors,
    elsewhere,
    generation,
    news,
    opening,
    peers,
    port,
    presence,
    questions,
    refusals,
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
_BACK_A_SECOND: Final = 200.0  # sessions that come back after a drain
_LONGEST_BACK_SECONDS: Final = 30.0  # well within the grace
_CLOSED_SECONDS: Final = 2.0

OnOpen = Callable[[ids.NodeId, links.Link], None]
_ASKS: Final = {one.value: one for one in session.Ask}


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
        self._lack = lack
        self._rules = given
        self._clock = clock
        self._chance = chance
        self.sessions = peers.Sessions()
        self.on_open: list[OnOpen] = []
        self._anchors = anchors.Anchors(store)
        self._unopened: dict[peers.Peer, None] = {}
        self._by_key: dict[pins.Pin, int] = {}
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
        self._port = port.Port(
            known=self._anchors, arrived=self.take, answer=self._answer, given=given, clock=clock
        )
        self._work: set[asyncio.Task[None]] = set()
        self._poke = asyncio.Event()
        self._draining = False
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
            "absence": functools.partial(absence.keep, self._store, clock=self._clock),
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
            self._do(self._ask_health(peer), name=f"health {node_id}")

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

    def serve_with(self, identity: port_certificate.PortIdentity) -> None:
        """Uses this key and certificate from the next handshake on; sessions are kept."""
        self._port.serve_with(identity)

    def start(self, sock: socket.socket) -> None:
        """Begins to accept from a bound, listening socket, which stays the caller's."""
        self._port.start(sock)

    def joined(self, node_id: ids.NodeId, *, pin: pins.Pin, certificate_pem: str) -> None:
        """A node has just enrolled at this engine: it is known before it has its answer."""
        self._anchors.put(node_id, pin=pin, certificate_pem=certificate_pem)
        self.changed(node_id)

    def changed(self, node_id: ids.NodeId) -> None:
        """A node was changed by this engine, and that is committed: every engine looks now."""
        self._poke.set()
        self._store.signal(registry.CHANGED, node_id)

    async def drain(self, *, seconds: float) -> None:
        """Accepts no more and sends every session away, each with its own hint; bounded."""
        self._draining = True
        self._port.stop()
        spread = min(_LONGEST_BACK_SECONDS, len(self.sessions) / _BACK_A_SECOND)
        for peer in [*self.sessions, *self._unopened]:
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
        while True:
            now = self._clock.monotonic()
            if now >= silence:
                self._watch.close_silent()
                silence = now + _SILENCE_SECONDS
            self._close_slow()
            try:
                if now >= ghosts:
                    ghosts = now + _GHOSTS_SECONDS
                    await self._watch.find_ghosts(engine_id=self._rules.engine_id)
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
                    self._recheck(node_id)
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

    def _recheck(self, node_id: ids.NodeId) -> None:
        good = {
            one.pin
            for one in self._anchors.of_node(node_id)
            if one.proof is not generation.Proof.FORMER and not one.removed
        }
        concerned = [peer for peer in self._unopened if peer.node_id == node_id]
        held = self.sessions.find_peer(node_id)
        for peer in concerned if held is None else [*concerned, held]:
            if peer.pin not in good and peer.stage is not peers.Stage.NEW:
                peer.link.close(reason=session.Refusal.NODE_REMOVED.value)

    def _close_slow(self) -> None:
        now = self._clock.monotonic()
        for peer in list(self._unopened):
            if now - peer.since > _PATIENCE.get(peer.stage, rules.CONFIRM_SECONDS):
                peer.link.close(reason="too-slow")

    # Connections.

    def take(self, link: links.Link, proved: Sequence[anchors.Anchor]) -> None:
        """A connection has proved one of these certificates; it says who it is next."""
        peer = peers.Peer(link, proved=proved, since=self._clock.monotonic())
        count = self._by_key.get(peer.pin, 0)
        if count >= rules.MOST_UNOPENED or self._draining:
            link.close(reason=session.Refusal.NOT_NOW.value, retry_after_s=1.0)
            return
        link.owner = peer
        link.answer = self._answer
        link.on_end = self._ended
        self._unopened[peer] = None
        self._by_key[peer.pin] = count + 1

    async def _answer(self, link: links.Link, method: str, body: bytes) -> bytes:
        peer = link.owner
        if not isinstance(peer, peers.Peer):
            raise refusals.not_now("The connection is not ready.")
        asked = _ASKS.get(method)
        if asked is None:
            raise refusals.of(session.Refusal.UNKNOWN, "This Platform does not know that question.")
        try:
            if peer.stage in (peers.Stage.OPEN, peers.Stage.ERRAND):
                return await self._ask(peer, asked, body)
            return await self._greet(peer, asked, body)
        except contract.StoreError as fault:
            _LOG.warning("A question was not answered", extra={"reason": str(fault)})
            raise refusals.not_now("The Platform's store is busy or away.") from fault

    async def _greet(self, peer: peers.Peer, asked: session.Ask, body: bytes) -> bytes:
        """Hello and confirm. What fails here ends the connection behind its answer."""
        try:
            if peer.stage is peers.Stage.NEW and asked is session.Ask.HELLO:
                return await self._opener.hello(peer, body)
            if peer.stage is peers.Stage.WELCOMED and asked is session.Ask.CONFIRM:
                # to its end, whatever becomes of the connection: the row that it writes is watched
                await asyncio.shield(
                    self._do(self._confirm(peer, body), name=f"opens {peer.node_id}")
                )
                asyncio.get_running_loop().call_soon(self._ask_first, peer)
                return b""
            raise refusals.out_of_turn(asked.value)
        except links.Refusal as refusal:
            self._close_behind(peer, reason=refusal.code)
            raise
        except contract.StoreError:
            self._close_behind(peer, reason=session.Refusal.NOT_NOW.value)
            raise

    async def _ask(self, peer: peers.Peer, asked: session.Ask, body: bytes) -> bytes:
        said = await self._questions.answer(peer, asked, body)
        if asked is session.Ask.RENEW:
            await self._anchors.refresh([peer.node_id])  # it may come with the new one at once
            self.changed(peer.node_id)
        elif asked is session.Ask.LEAVE:
            self.changed(peer.node_id)
            self._close_behind(peer, reason=session.Refusal.NODE_REMOVED.value)
        elif asked is session.Ask.HEARTBEAT and (
            news.needs_asking(peer) or self._lack(peer.node_id) is not None
        ):
            self._do(self._ask_health(peer), name=f"health {peer.node_id}")
        return said

    async def _confirm(self, peer: peers.Peer, body: bytes) -> None:
        former = await self._opener.confirm(peer, body)
        if self._unopened.pop(peer, ...) is None:
            self._forget_key(peer)
        if peer.link.ended is not None and self.sessions.leave(peer):  # while it was written
            self._watch.note_lost(peer)
        if former is not None:
            former.stage = peers.Stage.OVER
            former.link.close(reason="replaced")
        if peer.anchor.proof is not generation.Proof.PRESENT:
            self.changed(peer.node_id)
        _LOG.debug("A session is open", extra={"node_id": peer.node_id, "address": peer.address})

    def _ask_first(self, peer: peers.Peer) -> None:
        """The answer to confirm has left: now the node is asked whether it is itself."""
        if peer.link.ended is None:
            self._do(self._ask_health(peer), name=f"health {peer.node_id}")

    async def _ask_health(self, peer: peers.Peer) -> None:
        try:
            ready = await self._watch.ask(peer)
        except contract.StoreError as fault:
            _LOG.warning("A node's answer was not written", extra={"reason": str(fault)})
            return
        if ready and self.sessions.find_peer(peer.node_id) is peer and not peer.carries_work:
            peer.carries_work = True
            for callback in self.on_open:
                callback(peer.node_id, peer.link)

    def _ended(self, link: links.Link, ended: links.Ended) -> None:
        peer = link.owner
        if not isinstance(peer, peers.Peer):
            return
        if self._unopened.pop(peer, ...) is None:
            self._forget_key(peer)
        self._news.forget(peer)
        if self.sessions.leave(peer):
            self._watch.note_lost(peer)
            _LOG.info(
                "A session has ended",
                extra={
                    "node_id": peer.node_id,
                    "address": peer.address,
                    "reason": ended.reason,
                },
            )
        peer.stage = peers.Stage.OVER
        link.owner = None

    def _forget_key(self, peer: peers.Peer) -> None:
        left = self._by_key.get(peer.proved[0].pin, 0) - 1
        if left > 0:
            self._by_key[peer.proved[0].pin] = left
        else:
            self._by_key.pop(peer.proved[0].pin, None)

    def _close_behind(self, peer: peers.Peer, *, reason: str) -> None:
        """Ends the connection once the answer under way has left."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, functools.partial(peer.link.close, reason=reason))

    def _do(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, links.Refusal | contract.StoreError):
            _LOG.error("The gateway met a fault of ours", exc_info=fault)

    # For the other engines.

    async def _ping(self, node_id: ids.NodeId, session_id: str) -> bool | None:
        held = self.sessions.find_session(node_id, session_id=session_id)
        return None if held is None else await opening.answers_ping(held.link)

    def _end_replaced(self, node_id: ids.NodeId, session_id: str) -> None:
        held = self.sessions.find_session(node_id, session_id=session_id)
        if held is not None:
            held.link.close(reason="replaced")


_PATIENCE: Final = {
    peers.Stage.NEW: rules.HELLO_SECONDS,
    peers.Stage.GREETING: rules.CONFIRM_SECONDS,
    peers.Stage.WELCOMED: rules.CONFIRM_SECONDS,
    peers.Stage.CONFIRMING: rules.CONFIRM_SECONDS,
    peers.Stage.ERRAND: rules.ERRAND_SECONDS,
}
