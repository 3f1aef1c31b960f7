"""Hello and confirm: how a connection becomes the node's one session.

Two small accesses to the store an opening: hello looks at node and session in one read, confirm
raises the generation and writes the session in one transaction, and whoever else has opened
meanwhile makes that write fail. What decides is `generation`; what stands in the way of a newcomer
is asked first, here or at the engine that holds it. A refusal closes the connection behind it.
"""

import hashlib
import logging
import secrets
from typing import Final

from platform_server.gateway import (
    anchors,
    elsewhere,
    generation,
    peers,
    refusals,
    rules,
    tally,
)
from platform_server.nodes import conflicts, sessions, states
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from runtime_kit.mux import link as links
from wire_protocol import ids, product, session, strict_json, versions

_LOG = logging.getLogger(__name__)
_CONFLICTS_A_MINUTE: Final = 6  # of one node: more are refused all the same, not written
_CONFIRMS_A_MINUTE: Final = 30  # of one node: each is a write
_CLAIMS_EVERY_SECONDS: Final = 3600.0

CONFIRMED = crash_points.declare(
    "gateway.confirmed", story="the session is committed, the machine has no answer yet"
)


class Opener:
    """Judges openings and turns connections into sessions."""

    def __init__(
        self,
        store: contract.Store,
        *,
        open_sessions: peers.Sessions,
        others: elsewhere.Elsewhere,
        trust: authority.Authority,
        given: rules.Rules,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._sessions = open_sessions
        self._others = others
        self._trust = trust
        self._rules = given
        self._clock = clock
        self._written = tally.Tally(most=_CONFLICTS_A_MINUTE)
        self._confirms = tally.Tally(most=_CONFIRMS_A_MINUTE)
        self._claims = tally.Seldom(seconds=_CLAIMS_EVERY_SECONDS)
        self._confirming: dict[str, peers.Peer] = {}  # by session; its row may stand already

    async def hello(self, peer: peers.Peer, body: bytes) -> bytes:
        """Answers the opening with what to store; raises `Refusal`."""
        peer.move(peers.Stage.GREETING, now=self._clock.monotonic())
        hello = self._read(peer, body)
        self._require_no_later_epoch(hello)
        now = self._clock.now()
        standing = await self._store.read(
            lambda tx: sessions.look(tx, node_id=hello.node_id, now=now)
        )
        if standing is None:
            raise refusals.removed(hello.node_id)
        decision = generation.decide(
            hello,
            known=self._known(standing),
            proof=_proof(peer.anchor, standing=standing),
            epoch=self._trust.published.statement.epoch,
            platform_version=product.VERSION,
        )
        if decision.refusal is not None:
            raise await self._refusal(decision.refusal, peer=peer, hello=hello, standing=standing)
        if decision.verdict is generation.Verdict.ASK_RUNNING:
            presence = await self.presence(standing)
            if presence is elsewhere.Presence.UNKNOWN:
                raise refusals.not_now(
                    f"Whether the node {hello.node_id} runs elsewhere is not known now."
                )
            if presence is elsewhere.Presence.ANSWERS:
                raise await self._refusal(
                    session.Refusal.GENERATION_CONFLICT, peer=peer, hello=hello, standing=standing
                )
        if hello.purpose is session.Purpose.SESSION and standing.url is not None:
            raise refusals.invalid(
                f"The node {hello.node_id} listens at {standing.url}; it needs no session."
            )
        return self._welcome(peer, hello=hello, standing=standing, decision=decision)

    def _require_no_later_epoch(self, hello: session.Hello) -> None:
        """A machine says that it holds a statement of a later epoch; raises `Refusal` then.

        If that is so, this Platform was restored elsewhere, and what is stored here is of the past:
        it judges nothing of that machine, neither as removed nor as a copy. It is only that
        machine's word, so it is told as such, once an hour, and does nothing else.
        """
        if hello.epoch <= self._trust.published.statement.epoch:
            return
        if self._claims.take(hello.node_id, now=self._clock.monotonic()):
            _LOG.warning(
                "A node says that this Platform was restored elsewhere from a backup: if that is "
                "so, stop this one",
                extra={"node_id": hello.node_id, "epoch": hello.epoch},
            )
        raise refusals.not_now(
            "By what this machine holds, this Platform was restored elsewhere from a backup. Stop "
            "the old Platform, or let its name lead to the new one."
        )

    async def confirm(self, peer: peers.Peer, body: bytes) -> peers.Peer | None:
        """Opens the session; gives the one of this engine that it replaces. Raises `Refusal`.

        Run it to its end, even where the connection ends meanwhile: what it writes may stand.
        """
        welcome, hello = peer.welcome, peer.hello
        if welcome is None or hello is None:
            raise refusals.out_of_turn("confirm")
        peer.move(peers.Stage.CONFIRMING, now=self._clock.monotonic())
        try:
            confirm = session.parse_confirm(body)
        except strict_json.Malformed as fault:
            raise refusals.invalid(str(fault)) from fault
        if confirm.generation != welcome.generation:
            raise refusals.invalid("Another generation was given.")
        if not self._confirms.take(hello.node_id, now=self._clock.monotonic()):
            raise refusals.not_now("This node has opened too many sessions in this minute.")
        opening = sessions.Opening(
            node_id=hello.node_id,
            session_id=peer.session_id,
            engine_id=self._rules.engine_id,
            address=peer.address,
            instance=hello.instance,
            former_generation=welcome.former_generation,
            generation=welcome.generation,
            certificate_sha256=_sha256_of(peer.anchor.der),
            version=hello.version,
            adopted_epoch=welcome.adopted_epoch,
        )
        now = self._clock.now()
        self._confirming[peer.session_id] = peer
        try:
            opened = await self._store.transact(
                lambda tx: sessions.open_one(
                    tx, opening=opening, environment=self._rules.environment, now=now
                )
            )
        finally:
            del self._confirming[peer.session_id]
        if opened is None:
            raise refusals.not_now("Another connection of this node was opened meanwhile.")
        crash_points.reach(CONFIRMED)
        peer.state = opened.state
        peer.started_at = now
        peer.welcome = peer.hello = None  # there are tens of thousands: nothing is kept for nothing
        peer.link.limits = rules.ONCE_OPEN
        peer.move(peers.Stage.OPEN, now=self._clock.monotonic())
        peer.beat_at = peer.since
        if welcome.replaces is not None:
            engine_id, session_id = welcome.replaces
            if engine_id != self._rules.engine_id:
                self._others.end(hello.node_id, session_id=session_id, engine_id=engine_id)
        return self._sessions.take_place(peer)

    async def presence(self, standing: sessions.Standing) -> elsewhere.Presence:
        """Whether the session that stands is alive: it is pinged, wherever it is held."""
        found = self._held(standing)
        if found is None:
            return elsewhere.Presence.SILENT
        if found.engine_id != self._rules.engine_id:
            return await self._others.ask(
                standing.node_id, session_id=found.session_id, engine_id=found.engine_id
            )
        running = self._find_here(standing.node_id, session_id=found.session_id)
        answers = running is not None and await answers_ping(running.link)
        return elsewhere.Presence.ANSWERS if answers else elsewhere.Presence.SILENT

    def _held(self, standing: sessions.Standing) -> sessions.Session | None:
        """The session that stands. Of this engine's, memory alone says whether it does.

        Neither a clock that was set nor a store that could not be written makes place for anybody.
        """
        found = standing.session
        if found is None:
            return None
        if found.engine_id != self._rules.engine_id:
            return found if found.is_held else None
        here = self._find_here(standing.node_id, session_id=found.session_id)
        return None if here is None else found

    def _find_here(self, node_id: ids.NodeId, *, session_id: str) -> peers.Peer | None:
        found = self._sessions.find_session(node_id, session_id=session_id)
        if found is not None:
            return found
        coming = self._confirming.get(session_id)
        return None if coming is None or coming.link.ended is not None else coming

    def _known(self, standing: sessions.Standing) -> generation.Known:
        held = self._held(standing)
        return generation.Known(
            removed=standing.state is states.State.REMOVED,
            generation=standing.generation,
            adopted_epoch=standing.adopted_epoch,
            running_instance=None if held is None else held.instance,
        )

    def _read(self, peer: peers.Peer, body: bytes) -> session.Hello:
        try:
            hello = session.parse_hello(body)
            versions.parse(hello.version)
        except (strict_json.Malformed, ValueError) as fault:
            raise refusals.invalid(str(fault)) from fault
        anchor = next((one for one in peer.proved if one.node_id == hello.node_id), None)
        if anchor is None:
            raise refusals.invalid(
                f"This connection was opened with a certificate that is not {hello.node_id}'s."
            )
        peer.anchor = anchor
        peer.hello = hello
        return hello

    def _welcome(
        self,
        peer: peers.Peer,
        *,
        hello: session.Hello,
        standing: sessions.Standing,
        decision: generation.Decision,
    ) -> bytes:
        now = self._clock.monotonic()
        peer.session_id = secrets.token_hex(8)
        peer.version, peer.capacity = hello.version, standing.capacity
        peer.state = standing.state
        number = self._trust.published.statement.number
        if hello.purpose is session.Purpose.ERRAND:
            peer.move(peers.Stage.ERRAND, now=now)
        else:
            held = self._held(standing)
            peer.welcome = peers.Welcomed(
                former_generation=standing.generation,
                generation=decision.generation,
                adopted_epoch=number[0] if decision.adopts else None,
                replaces=None if held is None else (held.engine_id, held.session_id),
            )
            peer.move(peers.Stage.WELCOMED, now=now)
        return session.Welcome(
            session_id=peer.session_id,
            generation=decision.generation,
            epoch=number[0],
            statement=number,
            heartbeat_seconds=self._rules.heartbeat_seconds,
            certificate_days=self._rules.certificate_days,
            now=self._clock.now(),
        ).to_bytes()

    async def _refusal(
        self,
        code: session.Refusal,
        *,
        peer: peers.Peer,
        hello: session.Hello,
        standing: sessions.Standing,
    ) -> links.Refusal:
        if code is session.Refusal.NODE_REMOVED:
            return refusals.removed(hello.node_id)
        if code is session.Refusal.WORKER_NEWER:
            return refusals.newer(hello.version)
        now = self._clock.now()
        held = standing.session
        running_at = None if held is None else held.address
        first_at = now
        if self._written.take(hello.node_id, now=self._clock.monotonic()):
            recorded = await self._store.transact(
                lambda tx: conflicts.record(
                    tx,
                    node_id=hello.node_id,
                    infra=standing.infra,
                    address=peer.address,
                    running_at=running_at,
                    environment=self._rules.environment,
                    now=now,
                )
            )
            first_at = recorded.first_at
            _LOG.warning(
                "The identity of a node is used twice",
                extra={
                    "node_id": hello.node_id,
                    "address": peer.address,
                    "running_at": running_at,
                },
            )
        return refusals.conflict(
            hello.node_id,
            address=peer.address,
            first_at=first_at,
            running_at=running_at,
            running_since=None if held is None else held.started_at,
        )


async def answers_ping(link: links.Link) -> bool:
    """Whether the other side is there, within five seconds."""
    try:
        await link.ping(timeout_s=rules.PING_SECONDS)
    except (links.Silent, links.Closed):
        return False
    return True


def _proof(anchor: anchors.Anchor, *, standing: sessions.Standing) -> generation.Proof:
    """With which certificate, as the row has it now: the map may be a second old."""
    sha256 = _sha256_of(anchor.der)
    if sha256 == standing.certificate_sha256:
        return generation.Proof.PRESENT
    if sha256 == standing.next_certificate_sha256:
        return generation.Proof.NEXT
    return generation.Proof.FORMER


def _sha256_of(der: bytes) -> str:
    return f"sha256:{hashlib.sha256(der).hexdigest()}"
