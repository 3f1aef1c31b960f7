"""Whom the probe has to ask: the nodes that listen, kept in memory and kept up to date.

Read whole at the start and once in a while, and in between by following the events, so that ten
thousand nodes cost the store one small read a second. A node that dials out is not here: it is
heard over its session.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.nodes import asking, configured, renewal, states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, pins

_PAGE: Final = 1000
_EVENTS: Final = 500
_COLUMNS: Final = (
    "node_id, url, pin, certificate_pem, next_certificate_pem, next_certificate_sha256, state, "
    "enrolled_at, infra"
)
_WHERE: Final = "url IS NOT NULL AND state <> 'removed'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A node to ask. `state` is what the store said when it was read."""

    target: asking.Target
    state: states.State
    enrolled_at: datetime.datetime | None
    infra: str
    is_configured: bool = False
    next_certificate_sha256: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What events said: entries that are new or changed, ids that went, and where to go on."""

    changed: Sequence[Entry]
    gone: Sequence[ids.NodeId]
    seen: int


async def read_all(
    tx: contract.Tx, *, operators: configured.ConfiguredNodes
) -> tuple[Mapping[ids.NodeId, Entry], int]:
    """Every node to ask, and the number of the last event that this knows of."""
    last = await tx.fetch_one("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
    entries: dict[ids.NodeId, Entry] = {}
    after = ""
    while True:
        rows = await tx.fetch_all(
            f"SELECT {_COLUMNS} FROM nodes "  # noqa: S608 - constants
            f"WHERE node_id > ? AND {_WHERE} ORDER BY node_id LIMIT ?",
            after,
            _PAGE,
        )
        for row in rows:
            entry = _of_row(row)
            entries[entry.target.node_id] = entry
        if len(rows) < _PAGE:
            break
        after = rows[-1]["node_id"]
    for node_id, node in operators.nodes.items():
        entries[node_id] = Entry(
            target=asking.Target(node_id=node_id, url=node.url, pin=node.pin),
            state=states.State.UNREACHABLE,
            enrolled_at=None,
            infra="default",
            is_configured=True,
        )
    return entries, 0 if last is None else int(last["seq"])


async def find(tx: contract.Tx, *, node_id: ids.NodeId) -> Entry | None:
    """One node that enrolled to listen."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM nodes WHERE node_id = ? AND {_WHERE}",  # noqa: S608 - constants
        node_id,
    )
    return None if row is None else _of_row(row)


async def follow(tx: contract.Tx, *, seen: int, operators: configured.ConfiguredNodes) -> Followed:
    """What has changed since the event `seen`, at most a bounded number of events at a time."""
    rows = await tx.fetch_all(
        "SELECT seq, kind, subject FROM events WHERE seq > ? ORDER BY seq LIMIT ?", seen, _EVENTS
    )
    touched = {
        row["subject"]
        for row in rows
        if row["kind"] in _CHANGES and not operators.holds(ids.NodeId(row["subject"]))
    }
    changed: list[Entry] = []
    gone: list[ids.NodeId] = []
    for node_id in sorted(touched):
        row = await tx.fetch_one(
            f"SELECT {_COLUMNS} FROM nodes WHERE node_id = ? AND {_WHERE}",  # noqa: S608
            node_id,
        )
        if row is None:
            gone.append(ids.NodeId(node_id))
        else:
            changed.append(_of_row(row))
    return Followed(changed=changed, gone=gone, seen=int(rows[-1]["seq"]) if rows else seen)


_CHANGES: Final = frozenset(
    {
        "node.enrolled",
        "node.key-changed",
        "node.address-changed",
        "node.certificate-changed",
        "node.ready",
        "node.unreachable",
        "node.removed",
        "node.allowed",
        renewal.BEGUN,
        renewal.RENEWED,
        renewal.REKEYED,
    }
)


def _of_row(row: contract.Row) -> Entry:
    node_id = ids.NodeId(row["node_id"])
    return Entry(
        target=asking.Target(
            node_id=node_id,
            url=row["url"],
            pin=pins.Pin(row["pin"]),
            certificate_pem=row["certificate_pem"],
            next_certificate_pem=row["next_certificate_pem"],
        ),
        state=states.State(row["state"]),
        enrolled_at=clock.from_micros(row["enrolled_at"]),
        infra=row["infra"],
        next_certificate_sha256=row["next_certificate_sha256"],
    )
