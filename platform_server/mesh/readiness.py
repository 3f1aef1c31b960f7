"""Who is connected: one rule, and what each engine knows for applying it.

A node takes part while the Platform's own interface has seen a handshake with its key that is not
older than `config.LIVE_SECONDS`; a handshake proves the key and both directions. What the node says
of itself is shown beside it and never decides. Every engine follows the store, where the one that
leads writes what its interface has seen.

Known limit: handshakes carry wall time; where the Platform's clock is set forward by minutes, nodes
count as silent until their next handshake, at most two minutes later.
"""

import dataclasses
import datetime
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Final

from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.wireguard import config
from wire_protocol import ids

_LOG = logging.getLogger(__name__)
FOLLOW_SECONDS: Final = 2.0
READ_ALL_SECONDS: Final = 300.0
_PAGE: Final = 1000
_OVERLAP: Final = datetime.timedelta(seconds=30)  # clocks of two engines, and commits under way
LIVE: Final = datetime.timedelta(seconds=config.LIVE_SECONDS)

NOT_JOINED: Final = "mesh-not-joined"  # it has sent no mesh key
WAITING: Final = "mesh-waiting"  # no handshake yet
SILENT: Final = "mesh-silent"  # the last handshake is too old


def lack_of(handshake_at: datetime.datetime | None, *, now: datetime.datetime) -> str | None:
    """The rule: None where the node is connected, else the reason."""
    if handshake_at is None:
        return WAITING
    return None if now - handshake_at <= LIVE else SILENT


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    handshake_at: int | None
    updated_at: int


class Watch:
    """The handshakes in one engine's memory."""

    def __init__(self, store: contract.Store, *, clock: clock_kit.Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.on_up: list[Callable[[ids.NodeId], None]] = []
        self._newest = 0

    def lack(self, node_id: ids.NodeId) -> str | None:
        """A `nodes.requirement.Requirement`."""
        seen = self._seen.get(node_id)
        if seen is None:
            return NOT_JOINED
        shaken = seen.handshake_at
        moment = None if shaken is None else clock_kit.from_micros(shaken)
        return lack_of(moment, now=self._clock.now())

    async def run(self) -> None:
        """Follows the store for ever."""
        read_all = 0.0
        while True:
            try:
                if (now := self._clock.monotonic()) >= read_all:
                    await self.read_all()
                    read_all = now + READ_ALL_SECONDS
                else:
                    await self.follow()
            except contract.StoreError as fault:
                _LOG.warning("The mesh cannot be followed", extra={"reason": str(fault)})
            await self._clock.sleep(FOLLOW_SECONDS)

    async def read_all(self) -> None:
        """Reads every member, and forgets those that are none any more."""
        found: dict[str, _Seen] = {}
        after = ""
        while rows := await self._store.read(functools.partial(_page, after=after)):
            found |= rows
            after = max(rows)
        self._take(found, before=self._seen)
        self._seen = found
        self._newest = max((seen.updated_at for seen in found.values()), default=0)

    async def follow(self) -> None:
        """Reads what has changed since the last look."""
        since = self._newest - int(_OVERLAP.total_seconds() * 1_000_000)
        changed = await self._store.read(lambda tx: _changed(tx, since=since))
        before, self._seen = self._seen, {**self._seen, **changed}
        self._take(changed, before=before)
        self._newest = max((seen.updated_at for seen in changed.values()), default=self._newest)

    def _take(self, changed: Mapping[str, _Seen], *, before: Mapping[str, _Seen]) -> None:
        """Tells of those whose handshake is newer than it was: they may have come up."""
        for node_id, seen in changed.items():
            known = before.get(node_id)
            if seen.handshake_at is not None and (known is None or known != seen):
                for callback in self.on_up:
                    callback(ids.NodeId(node_id))


async def _page(tx: contract.Tx, *, after: str) -> dict[str, _Seen]:
    rows = await tx.fetch_all(
        "SELECT node_id, handshake_at, updated_at FROM mesh_members "
        "WHERE node_id > ? ORDER BY node_id LIMIT ?",
        after,
        _PAGE,
    )
    return {row["node_id"]: _Seen(row["handshake_at"], row["updated_at"]) for row in rows}


async def _changed(tx: contract.Tx, *, since: int) -> dict[str, _Seen]:
    rows = await tx.fetch_all(
        "SELECT node_id, handshake_at, updated_at FROM mesh_members "
        "WHERE updated_at > ? ORDER BY updated_at DESC LIMIT ?",
        since,
        20 * _PAGE,
    )
    return {row["node_id"]: _Seen(row["handshake_at"], row["updated_at"]) for row in rows}
