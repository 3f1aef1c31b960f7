"""Whether the nodes behind the sessions are there: asked once they have opened, missed when silent.

A node becomes ready by answering the health question over its session, the same rule as for one
that listens. No task and no timer belongs to an idle session: one sweep looks at when each was last
heard. A session whose link ends is written down with the moment it was last heard; what follows
from that is `nodes.absence`'s.
"""

import datetime
import logging
from typing import Final

from platform_server.gateway import peers, rules
from platform_server.nodes import heartbeats, liveness, requirement, sessions, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from wire_protocol import health, ids, session, strict_json

_LOG = logging.getLogger(__name__)
_ASK_AGAIN_SECONDS: Final = 5.0
_BEATS_MISSED: Final = 3  # that many intervals without one, whatever else it sends
_STALE_SECONDS: Final = 300.0  # heartbeats say that it is there; this, that it is itself
_LOST_BATCH: Final = 500
_SETTLED: Final = datetime.timedelta(seconds=60)  # a session being opened is here by then


class Watch:
    """Asks, sweeps and writes losses."""

    def __init__(
        self,
        store: contract.Store,
        *,
        open_sessions: peers.Sessions,
        clock: clock_kit.Clock,
        silent_seconds: float,
        heartbeat_seconds: float,
        lack: requirement.Requirement = requirement.nothing,
    ) -> None:
        self._store = store
        self._lack = lack
        self._sessions = open_sessions
        self._silent_seconds = silent_seconds
        self._beatless_seconds = max(silent_seconds, _BEATS_MISSED * heartbeat_seconds)
        self._clock = clock
        self._lost: dict[str, datetime.datetime] = {}
        self._answered: dict[ids.NodeId, liveness.Report] = {}

    def is_due(self, peer: peers.Peer) -> bool:
        """Whether the node is to be asked again who it is."""
        return self._clock.monotonic() - peer.asked_at >= _STALE_SECONDS

    async def ask(self, peer: peers.Peer) -> bool:
        """Asks the health question and writes what the answer means; whether the node is ready.

        Not more than once in five seconds. Raises `StoreError`.
        """
        now = self._clock.monotonic()
        if now - peer.asked_at < _ASK_AGAIN_SECONDS:
            return peer.state is states.State.READY
        peer.asked_at = now
        report = await self._question(peer)
        if report is None:
            return False
        if report.event is states.Event.ANSWER and peer.state is states.State.READY:
            self._answered[peer.node_id] = report  # it was and it is: written with many others
            return True
        if report.event is states.Event.MISS:
            if peer.lacks == report.reason and peer.state is not states.State.READY:
                return False  # it was said already
            peer.lacks = report.reason
        moment = self._clock.now()
        stands = await self._store.transact(
            lambda tx: liveness.write_change(tx, report=report, now=moment)
        )
        if stands is not None and stands is not peer.state:
            _LOG.info(
                "A node's state changed",
                extra={"node_id": peer.node_id, "state": stands.value, "reason": report.reason},
            )
        peer.state = stands
        if report.event is states.Event.CONFLICT:
            peer.link.close(reason=session.Refusal.INVALID.value)
        return stands is states.State.READY

    async def _question(self, peer: peers.Peer) -> liveness.Report | None:
        """What the answer means; None where there was none, or one that says nothing."""
        before = self._clock.now()
        started = self._clock.monotonic()
        try:
            said = await peer.link.ask(
                session.Ask.HEALTH,
                b"",
                timeout_s=rules.HEALTH_SECONDS,
                max_bytes=health.MAX_BYTES,
            )
            heard = health.parse(said)
        except (links.Silent, links.Closed):
            return None  # the sweep and the link's end tell of it
        except (links.Refused, links.AnswerTooLong, strict_json.Malformed) as fault:
            _LOG.warning(
                "A node does not answer the health question",
                extra={"node_id": peer.node_id, "reason": str(fault)},
            )
            return None
        elapsed = self._clock.monotonic() - started
        if heard.node_id != peer.node_id or heard.agent_id != ids.agent_id_of(peer.node_id):
            return liveness.Report(
                node_id=peer.node_id,
                pin=peer.pin,
                event=states.Event.CONFLICT,
                reason="answers-as-another-node",
            )
        if not heard.trust_keys:
            return None  # it could verify no work yet
        lack = self._lack(peer.node_id)
        if lack is not None:
            return liveness.Report(
                node_id=peer.node_id, pin=peer.pin, event=states.Event.MISS, reason=lack
            )
        peer.lacks = None
        midpoint = before + datetime.timedelta(seconds=elapsed / 2)
        return liveness.Report(
            node_id=peer.node_id,
            pin=peer.pin,
            event=states.Event.ANSWER,
            version=heartbeats.well_formed(heard.version),
            answered_at=before + datetime.timedelta(seconds=elapsed),
            clock_offset_ms=round((heard.now - midpoint).total_seconds() * 1000),
        )

    def close_silent(self) -> int:
        """Ends the sessions that were not heard for too long, or sent no heartbeat; how many."""
        now = self._clock.monotonic()
        before, beatless = now - self._silent_seconds, now - self._beatless_seconds
        silent = [
            peer
            for peer in self._sessions
            if peer.link.heard_at() <= before or peer.beat_at <= beatless
        ]
        for peer in silent:
            peer.link.close(reason="silent")
        return len(silent)

    def note_lost(self, peer: peers.Peer) -> None:
        """The session's link has ended: it is written soon, with when the node was last there.

        That is now where the connection said its end itself, and long ago where it fell silent.
        """
        silence = max(0.0, self._clock.monotonic() - peer.link.heard_at())
        if silence < self._silent_seconds:
            silence = 0.0
        self._lost[peer.session_id] = self._clock.now() - datetime.timedelta(seconds=silence)

    async def write_lost(self) -> None:
        """Writes what has ended since; raises `StoreError`, then it is written the next time."""
        while self._lost:
            batch = dict(list(self._lost.items())[:_LOST_BATCH])
            await self._store.transact(lambda tx: sessions.lose(tx, lost=batch))  # noqa: B023
            for session_id in batch:
                del self._lost[session_id]

    async def write_answered(self) -> None:
        """Writes who went on answering as itself; raises `StoreError`, then that is not written."""
        reports, self._answered = list(self._answered.values()), {}
        for start in range(0, len(reports), heartbeats.BATCH):
            batch = reports[start : start + heartbeats.BATCH]
            await self._store.transact(lambda tx: liveness.write_seen(tx, reports=batch))  # noqa: B023

    async def find_ghosts(self, *, engine_id: str) -> int:
        """Looks for rows of this engine that stand for no session of it, and writes them as lost.

        There are some after a write whose outcome the store could not tell. Gives how many; raises
        `StoreError`.
        """
        now = self._clock.now()
        found = 0
        after = ""
        while True:
            page = await self._store.read(
                lambda tx: sessions.list_held(tx, engine_id=engine_id, after=after)  # noqa: B023
            )
            for held in page:
                is_here = self._sessions.find_session(held.node_id, session_id=held.session_id)
                if is_here is None and now - held.started_at > _SETTLED:
                    self._lost.setdefault(held.session_id, now)
                    found += 1
            if len(page) < sessions.PAGE:
                return found
            after = page[-1].node_id
