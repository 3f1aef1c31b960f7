"""Heartbeats between their arrival and the store: kept in memory, written in batches.

A flush also asks the store how it sees the sessions it writes for, in the same transaction: a node
that another engine has since, or that was taken for lost, is closed here, and one that does not
stand as ready is asked again. Heartbeats that an engine took with it when it was killed are no
loss: the next ones are half a minute away.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.gateway import peers, refusals
from platform_server.nodes import heartbeats, sessions, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import heartbeats as wire
from wire_protocol import ids, strict_json

FLUSH_AFTER_SECONDS: Final = 5.0


class News:
    """What was heard and is not written yet."""

    def __init__(self, store: contract.Store, *, clock: clock_kit.Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: dict[str, peers.Peer] = {}
        self._oldest = 0.0

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, peer: peers.Peer, body: bytes, *, at: datetime.datetime) -> None:
        """Keeps a heartbeat; raises `Refusal` for one out of shape."""
        try:
            peer.news = heartbeats.news_of(
                wire.parse(body),
                node_id=peer.node_id,
                pin=peer.pin,
                at=at,
                known_version=peer.version,
                known_capacity=peer.capacity,
            )
        except strict_json.Malformed as fault:
            raise refusals.invalid(str(fault)) from fault
        except UnicodeEncodeError as fault:  # half a character, which JSON lets through
            raise refusals.invalid("heartbeat holds what is no text.") from fault
        if not self._pending:
            self._oldest = self._clock.monotonic()
        self._pending[peer.session_id] = peer

    @property
    def is_due(self) -> bool:
        """Whether enough waits, or has waited long enough."""
        waited = self._clock.monotonic() - self._oldest
        return len(self._pending) >= heartbeats.BATCH or (
            bool(self._pending) and waited >= FLUSH_AFTER_SECONDS
        )

    async def flush(self) -> Sequence[peers.Peer]:
        """Writes one batch; gives the sessions that do not stand any more. Raises `StoreError`."""
        batch = [
            self._pending.pop(session_id) for session_id in list(self._pending)[: heartbeats.BATCH]
        ]
        self._oldest = self._clock.monotonic()
        batch = [peer for peer in batch if peer.link.ended is None]
        news = [peer.news for peer in batch if peer.news is not None]
        if not news:
            return []

        async def work(tx: contract.Tx) -> Mapping[ids.NodeId, sessions.Still]:
            await heartbeats.write(tx, news=news)
            return await sessions.stand(tx, node_ids=[peer.node_id for peer in batch])

        try:
            stood = await self._store.transact(work)
        except contract.StoreError:
            for peer in batch:  # a newer one may have come meanwhile
                self._pending.setdefault(peer.session_id, peer)
            raise
        fallen = []
        for peer, written in zip(batch, news, strict=True):
            peer.version = written.version or peer.version
            peer.capacity = written.capacity or peer.capacity
            if peer.news is written:
                peer.news = None
            still = stood.get(peer.node_id)
            if still is None or still.session_id != peer.session_id:
                fallen.append(peer)
            else:
                peer.state = still.state
        return fallen

    def forget(self, peer: peers.Peer) -> None:
        """The session has ended; its last heartbeat is written with its loss, if at all."""
        self._pending.pop(peer.session_id, None)


def needs_asking(peer: peers.Peer) -> bool:
    """Whether the node does not stand as ready although it is there."""
    return peer.state is not states.State.READY
