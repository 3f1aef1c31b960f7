"""Which addresses a statement names: those of every engine that publishes, not of the last one.

Each engine writes its own under its place (its host and data directory, the same after a restart)
and says again and again that they stand. A statement names the gateways of all places seen within a
day, in an order that does not depend on who publishes; and the enrollment address that it named
before, as long as some place still has it. So engines come and go without a new statement, one that
is gone for good is forgotten after a day, and one that moved replaces its addresses at once. On
SQLite one engine runs, so there is one place.

Known limit: a place is told by host name and folder; where both change at each start, as in some
containers, old addresses are named for up to a day, and machines try the next one.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.store import contract
from platform_server.trust import statements
from runtime_kit import clock
from wire_protocol import statements as wire_statements

KEPT: Final = datetime.timedelta(days=1)
EVERY: Final = datetime.timedelta(minutes=10)
"""How often each engine says that its addresses stand; a hundredth of `KEPT`."""

_ENROLLMENT: Final = "enrollment"
_GATEWAY: Final = "gateway"
_ONLY: Final = "the only engine"


async def join(
    tx: contract.Tx,
    *,
    place: str,
    own: statements.Facts,
    now: datetime.datetime,
    present: statements.Facts | None,
) -> statements.Facts:
    """Writes this engine's addresses down, and gives its facts with those of all engines.

    The caller holds `statements.LOCK`.
    """
    if tx.dialect is contract.Dialect.SQLITE:
        place = _ONLY
        await tx.execute("DELETE FROM published_addresses WHERE place <> ?", place)
    await tx.execute("DELETE FROM published_addresses WHERE place = ?", place)
    await _forget_old(tx, now=now)
    enrollment = () if own.enrollment_url is None else (own.enrollment_url,)
    for purpose, urls in ((_ENROLLMENT, enrollment), (_GATEWAY, own.gateway_urls)):
        for rank, url in enumerate(dict.fromkeys(urls)):
            await tx.execute(
                "INSERT INTO published_addresses(place, purpose, url, rank, seen_at) "
                "VALUES (?, ?, ?, ?, ?)",
                place,
                purpose,
                url,
                rank,
                clock.to_micros(now),
            )
    gateways = await _all(tx, purpose=_GATEWAY)
    keeps = present is not None and present.enrollment_url in await _all(tx, purpose=_ENROLLMENT)
    keeps_pins = present is not None and bool(gateways) and not own.gateway_urls
    return dataclasses.replace(
        own,
        enrollment_url=present.enrollment_url if present and keeps else own.enrollment_url,
        gateway_urls=tuple(gateways),
        gateway_pins=present.gateway_pins if present and keeps_pins else own.gateway_pins,
    )


async def without_old(
    tx: contract.Tx, *, facts: statements.Facts, now: datetime.datetime
) -> statements.Facts:
    """The facts without the gateways of engines that are gone. The caller holds the lock."""
    await _forget_old(tx, now=now)
    gateways = tuple(await _all(tx, purpose=_GATEWAY))
    return dataclasses.replace(facts, gateway_urls=gateways) if gateways else facts


async def stand(tx: contract.Tx, *, place: str, now: datetime.datetime) -> int:
    """This engine's addresses stand as it wrote them; gives how many there are."""
    if tx.dialect is contract.Dialect.SQLITE:
        place = _ONLY
    return await tx.execute(
        "UPDATE published_addresses SET seen_at = ? WHERE place = ?",
        clock.to_micros(now),
        place,
    )


async def _forget_old(tx: contract.Tx, *, now: datetime.datetime) -> None:
    await tx.execute(
        "DELETE FROM published_addresses WHERE seen_at < ?", clock.to_micros(now - KEPT)
    )


async def _all(tx: contract.Tx, *, purpose: str) -> Sequence[str]:
    rows = await tx.fetch_all(
        "SELECT url FROM published_addresses WHERE purpose = ? "
        "GROUP BY url ORDER BY MIN(rank), url LIMIT ?",
        purpose,
        wire_statements.MAX_URLS,
    )
    return [row["url"] for row in rows]
