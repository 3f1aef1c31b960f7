"""Nodes whose session has ended and did not come back: they become unreachable.

One engine does it (see `leading`). What an engine held that has died is lost since that engine was
last seen; what an engine has lost by itself says since when. After `GRACE_SECONDS` of silence the
node is written down as unreachable, with its event: a change of networks or a replaced engine takes
less and is no news.
"""

import dataclasses
import datetime
import logging
from collections.abc import Sequence
from typing import Final

from platform_server.nodes import engines, leading, liveness, states
from platform_server.store import contract, leases
from runtime_kit import clock as clock_kit
from wire_protocol import ids, pins

_LOG = logging.getLogger(__name__)
LEASE: Final = "absence"
EVERY_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 60.0
REASON: Final = "session-lost"
_BATCH: Final = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    node_id: ids.NodeId
    session_id: str
    pin: pins.Pin


async def keep(store: contract.Store, *, engine_id: str, clock: clock_kit.Clock) -> None:
    """Looks for ever. For a supervised task.

    After the store was away nobody could say for a while that he runs: until all have had the time
    to, no engine is taken for dead.
    """
    lease = leading.Leading(store, name=LEASE, clock=clock)
    steady_since = clock.monotonic()
    while True:
        try:
            if await lease.holds():
                steady = clock.monotonic() - steady_since >= engines.ALIVE_SECONDS
                await sweep(
                    store, engine_id=engine_id, lease=lease, now=clock.now(), engines_too=steady
                )
        except (contract.StoreError, leases.LeaseLost) as fault:
            steady_since = clock.monotonic()
            _LOG.warning("Lost sessions were not looked at", extra={"reason": str(fault)})
        await clock.sleep(EVERY_SECONDS)


async def sweep(
    store: contract.Store,
    *,
    engine_id: str,
    lease: leading.Leading,
    now: datetime.datetime,
    engines_too: bool = True,
) -> Sequence[ids.NodeId]:
    """Does it once and gives who became unreachable; raises `StoreError`, `LeaseLost`.

    Never takes this engine itself for dead, and others only with `engines_too`. Only looks where
    there is nothing to do, which is nearly always.
    """
    orphans: Sequence[str] = []
    if engines_too:
        orphans = await store.read(lambda tx: _find_orphans(tx, but=engine_id, now=now))
    found = await store.read(lambda tx: _find_missing(tx, now=now))
    if not orphans and not found:
        return []

    async def work(tx: contract.Tx) -> list[_Missing]:
        await lease.fence(tx)
        for orphan in orphans:
            await _orphan(tx, engine_id=orphan, now=now)
        return [one for one in found if await _miss(tx, one=one, now=now)]

    missing = await store.transact(work)
    if missing:
        _LOG.info("Nodes did not come back", extra={"nodes": len(missing)})
    return [one.node_id for one in missing]


async def _find_orphans(tx: contract.Tx, *, but: str, now: datetime.datetime) -> Sequence[str]:
    """Engines that hold sessions, by their word, and have not been seen."""
    rows = await tx.fetch_all(
        "SELECT DISTINCT s.engine_id FROM sessions s LEFT JOIN engines e "
        "ON e.engine_id = s.engine_id WHERE s.lost_at IS NULL AND s.engine_id <> ? "
        "AND (e.seen_at IS NULL OR e.seen_at < ?) LIMIT ?",
        but,
        engines.alive_since(now),
        _BATCH,
    )
    return [row["engine_id"] for row in rows]


async def _orphan(tx: contract.Tx, *, engine_id: str, now: datetime.datetime) -> None:
    alive_since = engines.alive_since(now)
    # asked again here: an engine that only was slow says so before anything is taken from it
    gone = await tx.execute(
        "DELETE FROM engines WHERE engine_id = ? AND seen_at < ?", engine_id, alive_since
    )
    left = await tx.fetch_one("SELECT seen_at FROM engines WHERE engine_id = ?", engine_id)
    if left is not None:
        return
    await tx.execute(
        "UPDATE sessions SET lost_at = ? WHERE engine_id = ? AND lost_at IS NULL",
        alive_since if gone else clock_kit.to_micros(now),
        engine_id,
    )


async def _find_missing(tx: contract.Tx, *, now: datetime.datetime) -> Sequence[_Missing]:
    rows = await tx.fetch_all(
        "SELECT s.node_id, s.session_id, n.pin FROM sessions s JOIN nodes n "
        "ON n.node_id = s.node_id WHERE s.lost_at IS NOT NULL AND s.lost_at <= ? LIMIT ?",
        clock_kit.to_micros(now - datetime.timedelta(seconds=GRACE_SECONDS)),
        _BATCH,
    )
    return [
        _Missing(
            node_id=ids.NodeId(row["node_id"]),
            session_id=row["session_id"],
            pin=pins.Pin(row["pin"]),
        )
        for row in rows
    ]


async def _miss(tx: contract.Tx, *, one: _Missing, now: datetime.datetime) -> bool:
    """Whether the node is unreachable now; not where it came back in between."""
    lost = await tx.execute(
        "DELETE FROM sessions WHERE session_id = ? AND lost_at IS NOT NULL", one.session_id
    )
    if not lost:
        return False
    report = liveness.Report(
        node_id=one.node_id, pin=one.pin, event=states.Event.MISS, reason=REASON
    )
    return await liveness.write_change(tx, report=report, now=now) is states.State.UNREACHABLE
