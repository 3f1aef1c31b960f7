"""Heartbeats of nodes that listen: asked for by the probe, in place of every other health question.

A node that stands as ready proves itself by its certificate all the same, so that the heartbeat is
as good an answer; who it says it is, is asked again by the next health question. An Agent that does
not know the question yet is asked for its health at once, and for a heartbeat much later.
"""

import datetime
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from platform_server.nodes import asking, heartbeats, liveness, roster, states
from runtime_kit import clock as clock_kit
from wire_protocol import heartbeats as wire
from wire_protocol import ids, strict_json

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 25.0  # with a question about every 15 s: every other one
_UNKNOWN_SECONDS: Final = 600.0
_OK: Final = 200
QUESTION: Final = asking.Question(method="GET", path=wire.PATH, most_bytes=wire.MAX_BYTES)


class Exchanger(Protocol):
    """Sends one question to an Agent's port; `asking.Asker` over the network."""

    async def exchange(
        self,
        target: asking.Target,
        *,
        question: asking.Question,
        timeout_s: float,
        trusted: bool = False,
    ) -> asking.Answered:
        """The answer; raises `asking.NoAnswer`."""
        ...


class Pulses:
    """When each node is due, and what was heard and not written yet."""

    def __init__(self, exchanger: Exchanger | None, *, clock: clock_kit.Clock) -> None:
        self._exchanger = exchanger
        self._clock = clock
        self._due: dict[ids.NodeId, float] = {}
        self._known: dict[ids.NodeId, tuple[str, str]] = {}  # version, capacity as written
        self._heard: dict[ids.NodeId, heartbeats.News] = {}

    def is_due(self, node_id: ids.NodeId) -> bool:
        """Whether the next question to this node is for its heartbeat."""
        if self._exchanger is None:
            return False
        return self._clock.monotonic() >= self._due.get(node_id, 0.0)

    async def ask(self, entry: roster.Entry, *, timeout_s: float) -> liveness.Report | None:
        """The answer as news; None where this Agent does not answer it. Raises `NoAnswer`."""
        if self._exchanger is None:
            return None
        node_id = entry.target.node_id
        answered = await self._exchanger.exchange(
            entry.target, question=QUESTION, timeout_s=timeout_s
        )
        heard = _read(answered, node_id=node_id)
        pause = _UNKNOWN_SECONDS if heard is None else EVERY_SECONDS
        self._due[node_id] = self._clock.monotonic() + pause
        if heard is None:
            return None
        at = answered.asked_at + datetime.timedelta(seconds=answered.seconds)
        version, capacity = self._known.get(node_id, ("", ""))
        news = heartbeats.news_of(
            heard,
            node_id=node_id,
            pin=entry.target.pin,
            at=at,
            known_version=version,
            known_capacity=capacity,
        )
        self._heard[node_id] = news
        midpoint = answered.asked_at + datetime.timedelta(seconds=answered.seconds / 2)
        return liveness.Report(
            node_id=node_id,
            pin=entry.target.pin,
            event=states.Event.ANSWER,
            version=heartbeats.well_formed(heard.version),
            answered_at=at,
            clock_offset_ms=round((heard.now - midpoint).total_seconds() * 1000),
            certificate_sha256=answered.certificate_sha256,
        )

    def take(self) -> Sequence[Sequence[heartbeats.News]]:
        """What was heard, in batches to be written."""
        heard, self._heard = list(self._heard.values()), {}
        for one in heard:
            version, capacity = self._known.get(one.node_id, ("", ""))
            self._known[one.node_id] = (one.version or version, one.capacity or capacity)
        return [
            heard[start : start + heartbeats.BATCH]
            for start in range(0, len(heard), heartbeats.BATCH)
        ]

    def forget(self, node_id: ids.NodeId | None = None) -> None:
        """Forgets a node, or all of them."""
        for kept in (self._due, self._known, self._heard):
            if node_id is None:
                kept.clear()
            else:
                kept.pop(node_id, None)


def _read(answered: asking.Answered, *, node_id: ids.NodeId) -> wire.Heartbeat | None:
    if answered.status != _OK:
        return None
    try:
        return wire.parse(answered.body)
    except strict_json.Malformed as fault:
        _LOG.warning("A heartbeat is malformed", extra={"node_id": node_id, "reason": str(fault)})
        return None
