"""Every connection of one engine, from its handshake to its end: who may ask what, and when.

A connection says hello, confirms, and is a session then; or it says hello for an errand. A refusal
on the way ends it behind its answer. What a question means is `opening`'s and `questions`'s; here
stands only the order, and what follows from an answer. Everything that is begun here is a task with
a name in `work`.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from platform_server.gateway import (
    anchors,
    generation,
    news,
    opening,
    peers,
    presence,
    questions,
    refusals,
    rules,
)
from platform_server.nodes import requirement
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from wire_protocol import ids, pins, session

_LOG = logging.getLogger(__name__)
_ASKS: Final = {one.value: one for one in session.Ask}

OnOpen = Callable[[ids.NodeId, links.Link], None]
Changed = Callable[[ids.NodeId], None]


class Connections:
    """Takes connections, answers them, and knows those that are no sessions yet."""

    def __init__(
        self,
        *,
        known: anchors.Anchors,
        open_sessions: peers.Sessions,
        opener: opening.Opener,
        asked: questions.Questions,
        watch: presence.Watch,
        heard: news.News,
        changed: Changed,
        lack: requirement.Requirement,
        clock: clock_kit.Clock,
    ) -> None:
        self._anchors = known
        self._sessions = open_sessions
        self._opener = opener
        self._questions = asked
        self._watch = watch
        self._news = heard
        self._changed = changed
        self._lack = lack
        self._clock = clock
        self.on_open: list[OnOpen] = []
        self.unopened: dict[peers.Peer, None] = {}
        self.work: set[asyncio.Task[None]] = set()
        self.draining = False
        self._by_key: dict[pins.Pin, int] = {}
        # once: bound anew for every connection they would be a hundred bytes each
        self.answer: links.Answer = self._answer
        self._at_once: links.AnswerNow = self._answer_now
        self._on_end = self._ended

    def take(self, link: links.Link, proved: Sequence[anchors.Anchor]) -> None:
        """A connection has proved one of these certificates; it says who it is next."""
        peer = peers.Peer(link, proved=proved, since=self._clock.monotonic())
        count = self._by_key.get(peer.pin, 0)
        if count >= rules.MOST_UNOPENED or self.draining:
            link.close(reason=session.Refusal.NOT_NOW.value, retry_after_s=1.0)
            return
        link.owner = peer
        link.answer = self.answer
        link.answer_now = self._at_once
        link.on_end = self._on_end
        self.unopened[peer] = None
        self._by_key[peer.pin] = count + 1

    def _answer_now(self, link: links.Link, method: str, body: bytes) -> bytes | None:
        """Heartbeats: by far most of what is asked, and nothing in them has to be waited for."""
        peer = link.owner
        if (
            method != session.Ask.HEARTBEAT
            or not isinstance(peer, peers.Peer)
            or peer.stage is not peers.Stage.OPEN
        ):
            return None
        said = self._questions.heartbeat(peer, body)
        if (
            news.needs_asking(peer)
            or self._watch.is_due(peer)
            or self._lack(peer.node_id) is not None
        ):
            self.ask_health_soon(peer)
        return said

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
                asyncio.get_running_loop().call_soon(
                    self.ask_health_soon, peer
                )  # the answer leaves first
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
            self._changed(peer.node_id)
        elif asked is session.Ask.LEAVE:
            self._changed(peer.node_id)
            self._close_behind(peer, reason=session.Refusal.NODE_REMOVED.value)
        return said

    async def _confirm(self, peer: peers.Peer, body: bytes) -> None:
        former = await self._opener.confirm(peer, body)
        if self.unopened.pop(peer, ...) is None:
            self._forget_key(peer)
        if peer.link.ended is not None and self._sessions.leave(peer):  # while it was written
            self._watch.note_lost(peer)
        if former is not None:
            former.stage = peers.Stage.OVER
            former.link.close(reason="replaced")
        if peer.anchor.proof is not generation.Proof.PRESENT:
            self._changed(peer.node_id)
        _LOG.debug("A session is open", extra={"node_id": peer.node_id, "address": peer.address})

    def ask_health_soon(self, peer: peers.Peer) -> None:
        """Asks whether the node is itself, beside everything else."""
        if peer.link.ended is None:
            self._do(self._ask_health(peer), name=f"health {peer.node_id}")

    async def _ask_health(self, peer: peers.Peer) -> None:
        try:
            ready = await self._watch.ask(peer)
        except contract.StoreError as fault:
            _LOG.warning("A node's answer was not written", extra={"reason": str(fault)})
            return
        if ready and self._sessions.find_peer(peer.node_id) is peer and not peer.carries_work:
            peer.carries_work = True
            for callback in self.on_open:
                callback(peer.node_id, peer.link)

    def _ended(self, link: links.Link, ended: links.Ended) -> None:
        peer = link.owner
        if not isinstance(peer, peers.Peer):
            return
        if self.unopened.pop(peer, ...) is None:
            self._forget_key(peer)
        self._news.forget(peer)
        if self._sessions.leave(peer):
            self._watch.note_lost(peer)
            _LOG.log(
                logging.DEBUG if self.draining else logging.INFO,
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
        self.work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self.work.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None and not isinstance(fault, links.Refusal | contract.StoreError):
            _LOG.error("The gateway met a fault of ours", exc_info=fault)

    def recheck(self, node_id: ids.NodeId) -> None:
        """Ends the connections of a node whose key counts no more."""
        good = {
            one.pin
            for one in self._anchors.of_node(node_id)
            if one.proof is not generation.Proof.FORMER and not one.removed
        }
        concerned = [peer for peer in self.unopened if peer.node_id == node_id]
        held = self._sessions.find_peer(node_id)
        for peer in concerned if held is None else [*concerned, held]:
            if peer.pin not in good and peer.stage is not peers.Stage.NEW:
                peer.link.close(reason=session.Refusal.NODE_REMOVED.value)

    def close_slow(self) -> None:
        """Ends those that take too long to become a session, or with an errand."""
        now = self._clock.monotonic()
        for peer in list(self.unopened):
            if now - peer.since > _PATIENCE.get(peer.stage, rules.CONFIRM_SECONDS):
                peer.link.close(reason="too-slow")


_PATIENCE: Final = {
    peers.Stage.NEW: rules.HELLO_SECONDS,
    peers.Stage.GREETING: rules.CONFIRM_SECONDS,
    peers.Stage.WELCOMED: rules.CONFIRM_SECONDS,
    peers.Stage.CONFIRMING: rules.CONFIRM_SECONDS,
    peers.Stage.ERRAND: rules.ERRAND_SECONDS,
}
