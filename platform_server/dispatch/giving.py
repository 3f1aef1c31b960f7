"""Gives an order: numbered, signed and stored in one transaction, and takes one back.

Every trust key that is valid now signs, so that a machine which missed the newest rotation can
check it as well as one that holds the newest alone; an order lives a week at most, keys a month
beside one another. The caller records the action.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from platform_server.audit import events
from platform_server.dispatch import ending, records, states
from platform_server.nodes import configured, registry
from platform_server.nodes import states as node_states
from platform_server.store import contract
from platform_server.trust import statements
from runtime_kit import crash_points
from wire_protocol import ids, orders
from wire_protocol import statements as wire_statements

STORED = crash_points.declare(
    "order.stored", story="an order is stored, nobody has been answered and nothing was sent"
)


class TooMany(Exception):
    """The node has so many orders open that another would only wait: see `enlist nodes orders`."""


class NotQueued(Exception):
    """The order is not queued any more, so it cannot be taken back."""


class NoSuchOrder(Exception):
    """The node has no order of that id; see `enlist nodes orders`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be ordered, by whom, and until when it makes sense."""

    node_id: ids.NodeId
    kind: orders.Kind
    ttl: datetime.timedelta
    created_by: str
    purpose: str | None = None
    content: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Signer = Callable[[bytes], tuple[wire_statements.Signature, ...]]


async def give(
    tx: contract.Tx,
    *,
    wish: Wish,
    sign: Signer,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
) -> records.Order:
    """Stores the order as the node's next one.

    Raises `registry.NoSuchNode`, `registry.OperatorsNode`, `node_states.WrongState`, `TooMany`.
    """
    node_id = wish.node_id
    registry.require_ours(node_id, operators=operators)
    await ending.lock(tx, node_ids=[node_id])
    node = await registry.get(tx, node_id=node_id)
    if node.state is node_states.State.REMOVED:
        raise node_states.already_removed(node_id)
    if await records.count_open(tx, node_id=node_id) >= records.MOST_OPEN:
        raise TooMany(
            f"The node {node_id} has {records.MOST_OPEN} orders open. See them, and take back what "
            f"is no longer wanted: enlist nodes orders {node_id}"
        )
    epoch, sequence = await _next_number(tx, node_id=node_id)
    content = orders.Order(
        platform_id=await statements.ensure_platform_id(tx),
        epoch=epoch,
        sequence=sequence,
        node_id=node_id,
        agent_id=ids.agent_id_of(node_id),
        expires_at=now + wish.ttl,
        kind=wish.kind.value,
        content=wish.content,
    ).to_bytes()
    order = records.Order(
        order_id=secrets.token_hex(8),
        node_id=node_id,
        infra=node.infra,
        epoch=epoch,
        sequence=sequence,
        kind=wish.kind.value,
        signed=orders.SignedOrder(content=content, signatures=sign(content)),
        state=states.State.QUEUED,
        purpose=wish.purpose,
        created_at=now,
        created_by=wish.created_by,
        expires_at=now + wish.ttl,
        tries=0,
    )
    await records.insert(tx, order=order)
    await events.append(
        tx,
        at=now,
        kind="order.queued",
        subject=node_id,
        infra=node.infra,
        data={"order_id": order.order_id, "kind": order.kind},
    )
    return order


async def cancel(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    order_id: str,
    environment: str,
    now: datetime.datetime,
) -> records.Order:
    """Takes back an order that the node has not taken; gives it as it was.

    One that was sent without an answer may have been taken all the same; then the node's word
    about it still counts. Raises `NoSuchOrder` and `NotQueued`.
    """
    await ending.lock(tx, node_ids=[node_id])
    order = await records.find(tx, order_id=order_id)
    if order is None or order.node_id != node_id:
        raise NoSuchOrder(f"The node {node_id} has no order {order_id}.")
    shown = order.state_at(now)
    if shown is not states.State.QUEUED or not await ending.happened(
        tx, order=order, event=states.Event.CANCEL, environment=environment, now=now
    ):
        raise NotQueued(f"The order {order_id} is {shown}: only a queued one can be taken back.")
    return order


async def cancel_all(
    tx: contract.Tx, *, node_id: ids.NodeId, environment: str, now: datetime.datetime
) -> None:
    """Ends what is queued for a node that is removed: its next machine is to get none of it.

    Before anything is appended to the logs in this transaction; see `ending.lock`.
    """
    await ending.lock(tx, node_ids=[node_id])
    for order in await records.list_open(tx, node_id=node_id):
        await end_of_removed(tx, order=order, environment=environment, now=now)


async def end_of_removed(
    tx: contract.Tx, *, order: records.Order, environment: str, now: datetime.datetime
) -> None:
    """Ends one order of a node that is gone."""
    queued = order.state is states.State.QUEUED
    await ending.happened(
        tx,
        order=order,
        event=states.Event.CANCEL if queued else states.Event.GIVE_UP,
        environment=environment,
        now=now,
        detail="The node was removed.",
    )


async def _next_number(tx: contract.Tx, *, node_id: ids.NodeId) -> tuple[int, int]:
    published = await statements.find_number(tx)
    epoch = statements.FIRST_EPOCH if published is None else published[0]
    last = await records.find_last_number(tx, node_id=node_id)
    if last is None or last[0] < epoch:
        return epoch, 1
    return last[0], last[1] + 1
