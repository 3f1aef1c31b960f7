"""What a node may ask once it is welcome: its heartbeat, trust, renewal, leaving.

An errand may renew, leave, and ask for trust and its mesh place. Leaving ends the node, so it is
believed of the one that runs, or of nobody running: a copy that leaves must not take the original
with it (lessons C4).
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cryptography import x509

from platform_server.audit import actions, events
from platform_server.enrollment import certificate as certificates
from platform_server.gateway import elsewhere, news, opening, peers, refusals, rules, tally
from platform_server.nodes import configured, registry, renewal, sessions, states
from platform_server.store import contract
from platform_server.trust import authority
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import ids, pins, session, strict_json
from wire_protocol import renewal as wire

_LOG = logging.getLogger(__name__)
_RENEWALS_A_MINUTE: Final = 12
_PLACES_A_MINUTE: Final = 12
_RESULTS_A_MINUTE: Final = 300
_HEARTBEATS_AN_INTERVAL: Final = 40  # of which one is due

RENEWED = crash_points.declare(
    "gateway.renewal-stored", story="the next certificate is committed, the machine has no answer"
)
LEFT = crash_points.declare(
    "gateway.left", story="the node is removed at its own word, the machine has no answer yet"
)

Further = Callable[[ids.NodeId, bytes], Awaitable[bytes]]
"""Answers a question of an open session that other parts of the Platform know about."""
Listens = Callable[[ids.NodeId], Awaitable[bool]]
"""Whether a node that listens answers at its address now."""


class Questions:
    """Answers the questions of nodes that are welcome."""

    def __init__(
        self,
        store: contract.Store,
        *,
        opener: opening.Opener,
        heard: news.News,
        trust: authority.Authority,
        operators: configured.ConfiguredNodes,
        given: rules.Rules,
        clock: clock_kit.Clock,
        listens: Listens | None = None,
    ) -> None:
        self._store = store
        self._opener = opener
        self._news = heard
        self._trust = trust
        self._operators = operators
        self._rules = given
        self._clock = clock
        self._listens = listens
        self._renewals = tally.Tally(most=_RENEWALS_A_MINUTE)
        self._places = tally.Tally(most=_PLACES_A_MINUTE)
        self._results = tally.Tally(most=_RESULTS_A_MINUTE)
        self._heartbeats = tally.Tally(
            most=max(1, _HEARTBEATS_AN_INTERVAL * 60 // given.heartbeat_seconds)
        )
        self.further: Mapping[session.Ask, Further] = {}

    async def answer(self, peer: peers.Peer, asked: session.Ask, body: bytes) -> bytes:
        """Answers one question of a session or of an errand; raises `Refusal`."""
        is_open = peer.stage is peers.Stage.OPEN
        if asked is session.Ask.TRUST:
            return self._trust.answers.trust
        if asked is session.Ask.RENEW:
            return await self._renew(peer, body)
        if asked is session.Ask.LEAVE:
            return await self._leave(peer)
        if asked is session.Ask.MESH and not self._places.take(
            peer.node_id, now=self._clock.monotonic()
        ):  # each new key writes a row, an event and an entry of the log
            raise refusals.not_now("Too many questions for a place in the mesh in this minute.")
        if asked is session.Ask.RESULT and not self._results.take(
            peer.node_id, now=self._clock.monotonic()
        ):
            raise refusals.not_now("Too many results of orders in this minute.")
        if asked in self.further and (is_open or asked is session.Ask.MESH):
            return await self.further[asked](peer.node_id, body)
        raise refusals.out_of_turn(asked.value)

    def heartbeat(self, peer: peers.Peer, body: bytes) -> bytes:
        """Takes the heartbeat of an open session; raises `Refusal`."""
        if not self._heartbeats.take(peer.node_id, now=self._clock.monotonic()):
            raise refusals.not_now("Too many heartbeats in this minute.")
        now = self._clock.now()
        self._news.take(peer, body, at=now)
        peer.beat_at = self._clock.monotonic()
        return session.Pulse(statement=self._trust.published.statement.number, now=now).to_bytes()

    async def _renew(self, peer: peers.Peer, body: bytes) -> bytes:
        if not self._renewals.take(peer.node_id, now=self._clock.monotonic()):
            raise refusals.not_now("Too many renewals in this minute.")
        if peer.stage is peers.Stage.ERRAND:
            await self._require_no_other_session(peer)
        try:
            request = wire.parse_request(body)
            offered = renewal.read(request, proved=_key_of(peer))
            now = self._clock.now()
            fresh = await self._store.transact(
                lambda tx: renewal.grant(
                    tx,
                    node_id=peer.node_id,
                    proved_pin=peer.pin,
                    offered=offered,
                    operators=self._operators,
                    now=now,
                )
            )
        except (strict_json.Malformed, renewal.Refused) as fault:
            raise refusals.invalid(str(fault)) from fault
        crash_points.reach(RENEWED)
        new = offered.certificate
        if fresh:
            _LOG.info(
                "A node has handed in its next certificate",
                extra={"node_id": peer.node_id, "certificate_sha256": new.sha256},
            )
        return wire.Granted(certificate_sha256=pins.Pin(new.sha256), pin=new.pin).to_bytes()

    async def _leave(self, peer: peers.Peer) -> bytes:
        node_id = peer.node_id
        if peer.stage is peers.Stage.ERRAND:
            await self._require_nobody_running(peer)
        now = self._clock.now()
        remove = functools.partial(
            registry.remove, node_id=node_id, operators=self._operators, now=now
        )

        async def work(tx: contract.Tx) -> None:
            node = await remove(tx)
            await actions.append(
                tx,
                action=actions.Action(
                    at=now,
                    actor=f"node:{node_id}",
                    action="node.left",
                    target=node_id,
                    infra=node.infra,
                    environment=self._rules.environment,
                    details={"pin": node.pin, "address": peer.address},
                ),
            )
            await events.append(tx, at=now, kind="node.removed", subject=node_id, infra=node.infra)

        try:
            await self._store.transact(work)
        except (registry.NoSuchNode, states.WrongState):
            raise refusals.removed(node_id) from None
        except registry.OperatorsNode as fault:
            raise refusals.invalid(str(fault)) from fault
        crash_points.reach(LEFT)
        _LOG.info("A node has left", extra={"node_id": node_id, "address": peer.address})
        return b""

    async def _require_nobody_running(self, peer: peers.Peer) -> None:
        """Raises `Refusal` while another Agent of the node runs: then this may be a copy.

        A command beside the running Agent shows the hash of that Agent's `instance`, which a copied
        disk has as well; the command shows it only where the Agent itself runs.
        """
        node_id = peer.node_id
        standing = await self._look(node_id)
        if _is_of_running(peer, standing=standing):
            return
        presence = await self._opener.presence(standing)
        runs = presence is not elsewhere.Presence.SILENT
        if not runs and standing.url is not None and self._listens is not None:
            runs = await self._listens(node_id)
        if runs:
            where = standing.url or (standing.session and standing.session.address)
            raise refusals.not_now(
                f"The Agent of {node_id} runs, at {where}. Only that machine may leave: stop its "
                "Agent there first (systemctl stop enlist-agent), or remove the node on the "
                f"Platform: enlist nodes remove {node_id}"
            )

    async def _require_no_other_session(self, peer: peers.Peer) -> None:
        """Raises `Refusal` while the node has a session that answers, held by another machine."""
        standing = await self._look(peer.node_id)
        if _is_of_running(peer, standing=standing):
            return
        if await self._opener.presence(standing) is not elsewhere.Presence.SILENT:
            where = standing.session and standing.session.address
            raise refusals.not_now(
                f"The Agent of {peer.node_id} runs, at {where}. Only that machine may renew."
            )

    async def _look(self, node_id: ids.NodeId) -> sessions.Standing:
        now = self._clock.now()
        standing = await self._store.read(lambda tx: sessions.look(tx, node_id=node_id, now=now))
        if standing is None or standing.state is states.State.REMOVED:
            raise refusals.removed(node_id)
        return standing


def _is_of_running(peer: peers.Peer, *, standing: sessions.Standing) -> bool:
    """Whether an errand shows the node's running Agent, as its machine alone does of itself."""
    if peer.hello is None or standing.session is None:
        return False
    return peer.hello.instance == session.shown_instance(standing.session.instance)


def _key_of(peer: peers.Peer) -> certificates.MachineKey:
    key = x509.load_der_x509_certificate(peer.anchor.der).public_key()
    if not isinstance(key, certificates.MachineKey):
        raise refusals.invalid("A key of this kind cannot renew.")
    return key
