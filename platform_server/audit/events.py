"""Events: rows with a sequence number, written in the transaction of the change they tell of.

Readers (server-sent events today, webhooks later) resume from a number. The append lock makes
numbers appear in order: a reader that has seen 7 will never find a 6 later.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.store import contract
from runtime_kit import clock

MAX_DATA_BYTES: Final = 16_384
_DATA: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class DataTooLarge(ValueError):
    """The data of one event exceed 16 KiB: name what changed, the reader can fetch it."""


async def append(
    tx: contract.Tx,
    *,
    at: datetime.datetime,
    kind: str,
    subject: str,
    infra: str = "default",
    data: Mapping[str, Any] | None = None,
) -> int:
    """Adds the event and gives its number; `kind` reads `node.ready`, `subject` is an id.

    Raises `DataTooLarge`.
    """
    text = _DATA.encode(dict(data or {}))
    if len(text) > MAX_DATA_BYTES:
        raise DataTooLarge("The data of one event are larger than 16 KiB.")
    await tx.lock_append()
    last = await tx.fetch_one("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
    seq = 1 if last is None else int(last["seq"]) + 1
    await tx.execute(
        "INSERT INTO events(seq, at, kind, subject, infra, data) VALUES (?, ?, ?, ?, ?, ?)",
        seq,
        clock.to_micros(at),
        kind,
        subject,
        infra,
        text,
    )
    return seq


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as it was written."""

    seq: int
    at: datetime.datetime
    kind: str
    subject: str
    infra: str
    data: Mapping[str, Any]


async def read_after(
    tx: contract.Tx, *, after: int, infra: str | None, limit: int
) -> tuple[list[Event], int]:
    """Events behind a number, oldest first, and the number up to which this looked."""
    rows = await tx.fetch_all(
        "SELECT seq, at, kind, subject, infra, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
        after,
        limit,
    )
    found = [
        Event(
            seq=int(row["seq"]),
            at=clock.from_micros(row["at"]),
            kind=row["kind"],
            subject=row["subject"],
            infra=row["infra"],
            data=json.loads(row["data"]),
        )
        for row in rows
        if infra is None or row["infra"] == infra
    ]
    return found, int(rows[-1]["seq"]) if rows else after
