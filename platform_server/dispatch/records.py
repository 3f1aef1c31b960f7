"""Orders as rows and as values.

Not for deciding anything: `states` and `plan` do that. Rows are kept for a while after their end;
the newest of each node is kept for ever, since the next one's number follows from it.
"""

import base64
import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import Final

from platform_server.dispatch import states
from platform_server.nodes import states as node_states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, orders, statements

MOST_OPEN: Final = 32
"""Orders of one node that may be open; more means that it takes none."""

_COLUMNS: Final = (
    "order_id, node_id, infra, epoch, sequence, kind, signed, signatures, state, purpose, "
    "created_at, created_by, expires_at, tries, accepted_at, ended_at, detail"
)
_OF_ORDER: Final = ", ".join(f"o.{name}" for name in _COLUMNS.split(", "))
_OPEN: Final = "state IN ('queued', 'accepted')"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order as it stands in the store."""

    order_id: str
    node_id: ids.NodeId
    infra: str
    epoch: int
    sequence: int
    kind: str
    signed: orders.SignedOrder = dataclasses.field(repr=False)
    state: states.State
    purpose: str | None
    created_at: datetime.datetime
    created_by: str
    expires_at: datetime.datetime
    tries: int
    accepted_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    detail: str | None = None

    @property
    def number(self) -> tuple[int, int]:
        """What orders the orders of one node."""
        return self.epoch, self.sequence

    def state_at(self, now: datetime.datetime) -> states.State:
        """The state as it is shown: a queued one whose time is over has expired."""
        if self.state is states.State.QUEUED and self.expires_at <= now:
            return states.State.EXPIRED
        return self.state


async def insert(tx: contract.Tx, *, order: Order) -> None:
    """Adds the row; of two with one number the second raises `StoreConflict`."""
    await tx.execute(
        "INSERT INTO orders(order_id, node_id, infra, epoch, sequence, kind, signed, signatures, "
        "state, purpose, created_at, created_by, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        order.order_id,
        order.node_id,
        order.infra,
        order.epoch,
        order.sequence,
        order.kind,
        order.signed.content,
        json.dumps(
            [
                [one.key_id, base64.b64encode(one.signature).decode("ascii")]
                for one in order.signed.signatures
            ]
        ),
        order.state.value,
        order.purpose,
        clock.to_micros(order.created_at),
        order.created_by,
        clock.to_micros(order.expires_at),
    )


async def find(tx: contract.Tx, *, order_id: str) -> Order | None:
    """The order of that id."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM orders WHERE order_id = ?",  # noqa: S608 - a constant
        order_id,
    )
    return None if row is None else _of_row(row)


async def find_by_number(
    tx: contract.Tx, *, node_id: ids.NodeId, number: tuple[int, int]
) -> Order | None:
    """The order of that node and number."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM orders "  # noqa: S608 - a constant
        "WHERE node_id = ? AND epoch = ? AND sequence = ?",
        node_id,
        *number,
    )
    return None if row is None else _of_row(row)


async def list_open(tx: contract.Tx, *, node_id: ids.NodeId) -> Sequence[Order]:
    """What the node has not answered, in the order in which it is to get it."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM orders WHERE node_id = ? AND {_OPEN} "  # noqa: S608 - constants
        "ORDER BY epoch, sequence LIMIT ?",
        node_id,
        2 * MOST_OPEN,
    )
    return [_of_row(row) for row in rows]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A node with open orders, as they are to be judged by."""

    orders: Sequence[Order]
    is_gone: bool
    enrolled_at: datetime.datetime | None
    epoch: int


async def look(tx: contract.Tx, *, node_id: ids.NodeId) -> Standing | None:
    """All of it in one statement, since each costs an order's way a round trip; None: none open."""
    rows = await tx.fetch_all(
        f"SELECT {_OF_ORDER}, n.state AS node_state, "  # noqa: S608 - constants
        "n.enrolled_at AS node_enrolled_at, "
        "(SELECT MAX(epoch) FROM trust_statements) AS present_epoch FROM orders o "
        "LEFT JOIN nodes n ON n.node_id = o.node_id "
        "WHERE o.node_id = ? AND o.state IN ('queued', 'accepted') "
        "ORDER BY o.epoch, o.sequence LIMIT ?",
        node_id,
        2 * MOST_OPEN,
    )
    if not rows:
        return None
    first = rows[0]
    return Standing(
        orders=[_of_row(row) for row in rows],
        is_gone=first["node_state"] in (None, node_states.State.REMOVED.value),
        enrolled_at=_moment(first["node_enrolled_at"]),
        epoch=int(first["present_epoch"] or 0),
    )


async def list_page(
    tx: contract.Tx, *, node_id: ids.NodeId, limit: int, before: tuple[int, int] | None
) -> Sequence[Order]:
    """Orders of one node, newest first."""
    epoch, sequence = before or (2**62, 0)
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM orders WHERE node_id = ? "  # noqa: S608 - a constant
        "AND (epoch, sequence) < (?, ?) ORDER BY epoch DESC, sequence DESC LIMIT ?",
        node_id,
        epoch,
        sequence,
        limit,
    )
    return [_of_row(row) for row in rows]


async def find_last_number(tx: contract.Tx, *, node_id: ids.NodeId) -> tuple[int, int] | None:
    """The highest number that an order of this node ever had."""
    row = await tx.fetch_one(
        "SELECT epoch, sequence FROM orders WHERE node_id = ? "
        "ORDER BY epoch DESC, sequence DESC LIMIT 1",
        node_id,
    )
    return None if row is None else (int(row["epoch"]), int(row["sequence"]))


async def count_open(tx: contract.Tx, *, node_id: ids.NodeId) -> int:
    """How many the node has not answered."""
    row = await tx.fetch_one(
        f"SELECT COUNT(*) AS n FROM orders WHERE node_id = ? AND {_OPEN}",  # noqa: S608 - a constant
        node_id,
    )
    return 0 if row is None else int(row["n"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A node with open orders, and whether its Agent listens."""

    node_id: ids.NodeId
    listens: bool


async def list_waiting_nodes(tx: contract.Tx, *, after: str, limit: int) -> Sequence[Waiting]:
    """Nodes with open orders, by id."""
    rows = await tx.fetch_all(
        "SELECT o.node_id, n.url FROM (SELECT DISTINCT node_id FROM orders "  # noqa: S608 - a constant
        f"WHERE {_OPEN} AND node_id > ? ORDER BY node_id LIMIT ?) o "
        "LEFT JOIN nodes n ON n.node_id = o.node_id ORDER BY o.node_id",
        after,
        limit,
    )
    return [
        Waiting(node_id=ids.NodeId(row["node_id"]), listens=row["url"] is not None) for row in rows
    ]


async def list_over(tx: contract.Tx, *, now: datetime.datetime, limit: int) -> Sequence[Order]:
    """Queued orders whose time is over, and open ones of nodes that are gone."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM orders WHERE {_OPEN} AND ((state = 'queued' "  # noqa: S608 - constants
        "AND expires_at <= ?) OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.node_id = "
        "orders.node_id AND n.state <> 'removed')) ORDER BY created_at, order_id LIMIT ?",
        clock.to_micros(now),
        limit,
    )
    return [_of_row(row) for row in rows]


async def change(
    tx: contract.Tx,
    *,
    order: Order,
    event: states.Event,
    detail: str | None,
    now: datetime.datetime,
) -> states.State | None:
    """Writes what happened; None where another engine was first or the event means nothing now."""
    state = states.after(order.state, event)
    if state is None:
        return None
    moment = clock.to_micros(now)
    is_open = state in states.OPEN
    changed = await tx.execute(
        "UPDATE orders SET state = ?, detail = ?, accepted_at = COALESCE(accepted_at, ?), "
        "ended_at = ? WHERE order_id = ? AND state = ?",
        state.value,
        detail,
        moment if event is states.Event.TAKE else None,
        None if is_open else moment,
        order.order_id,
        order.state.value,
    )
    return state if changed else None


async def count_try(tx: contract.Tx, *, order_id: str) -> None:
    """The order was sent once more. One that a killed engine sent is not counted."""
    await tx.execute("UPDATE orders SET tries = tries + 1 WHERE order_id = ?", order_id)


async def purge(tx: contract.Tx, *, ended_before: datetime.datetime, limit: int) -> int:
    """Removes old orders that have ended, but never the newest of a node."""
    return await tx.execute(
        "DELETE FROM orders WHERE order_id IN (SELECT o.order_id FROM orders o "
        "WHERE o.ended_at < ? AND EXISTS (SELECT 1 FROM orders n WHERE n.node_id = o.node_id "
        "AND (n.epoch, n.sequence) > (o.epoch, o.sequence)) LIMIT ?)",
        clock.to_micros(ended_before),
        limit,
    )


def _of_row(row: contract.Row) -> Order:
    return Order(
        order_id=row["order_id"],
        node_id=ids.NodeId(row["node_id"]),
        infra=row["infra"],
        epoch=int(row["epoch"]),
        sequence=int(row["sequence"]),
        kind=row["kind"],
        signed=orders.SignedOrder(
            content=bytes(row["signed"]),
            signatures=tuple(
                statements.Signature(key_id=ids.KeyId(key_id), signature=base64.b64decode(text))
                for key_id, text in json.loads(row["signatures"])
            ),
        ),
        state=states.State(row["state"]),
        purpose=row["purpose"],
        created_at=clock.from_micros(row["created_at"]),
        created_by=row["created_by"],
        expires_at=clock.from_micros(row["expires_at"]),
        tries=int(row["tries"]),
        accepted_at=_moment(row["accepted_at"]),
        ended_at=_moment(row["ended_at"]),
        detail=row["detail"],
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
