"""Which engines run, as each of them says again and again.

An engine that has not said so for `ALIVE_SECONDS` is gone, and the sessions it held with it. On
SQLite one engine runs, so whoever signs on there is the only one: what a killed engine has left is
over at once.

Known limit: judged by the engines' own clocks, which must agree within a few seconds.
"""

import datetime
import logging
from typing import Final

from platform_server.store import contract
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 5.0
ALIVE_SECONDS: Final = 20.0


def alive_since(now: datetime.datetime) -> int:
    """An engine that was seen since then runs; in microseconds, as the rows have it."""
    return clock_kit.to_micros(now - datetime.timedelta(seconds=ALIVE_SECONDS))


async def sign_on(tx: contract.Tx, *, engine_id: str, now: datetime.datetime) -> None:
    """This engine runs from now on."""
    moment = clock_kit.to_micros(now)
    if tx.dialect is contract.Dialect.SQLITE:
        await tx.execute("DELETE FROM engines WHERE engine_id <> ?", engine_id)
    await tx.execute(
        "INSERT INTO engines(engine_id, started_at, seen_at) VALUES (?, ?, ?) "
        "ON CONFLICT (engine_id) DO UPDATE SET seen_at = excluded.seen_at",
        engine_id,
        moment,
        moment,
    )


async def sign_off(tx: contract.Tx, *, engine_id: str, now: datetime.datetime) -> None:
    """This engine goes: nobody has to wait until it is missed."""
    await tx.execute(
        "UPDATE sessions SET lost_at = ? WHERE engine_id = ? AND lost_at IS NULL",
        clock_kit.to_micros(now),
        engine_id,
    )
    await tx.execute("DELETE FROM engines WHERE engine_id = ?", engine_id)


async def keep(store: contract.Store, *, engine_id: str, clock: clock_kit.Clock) -> None:
    """Says it for ever. For a supervised task."""
    while True:
        try:
            now = clock.now()
            await store.transact(lambda tx: sign_on(tx, engine_id=engine_id, now=now))  # noqa: B023
        except contract.StoreError as fault:
            _LOG.warning("This engine was not seen by the others", extra={"reason": str(fault)})
        await clock.sleep(EVERY_SECONDS)
