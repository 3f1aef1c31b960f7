"""Writes down what happened to an order: the row, the event, and for an end the action log."""

import datetime
from collections.abc import Iterable
from typing import Final

from platform_server.audit import actions, events
from platform_server.dispatch import records, states
from platform_server.store import contract
from wire_protocol import ids

_PLATFORM: Final = "platform:dispatch"
LONGEST_DETAIL: Final = 1024


async def lock(tx: contract.Tx, *, node_ids: Iterable[ids.NodeId]) -> None:
    """Orders of these nodes are changed by nobody else until the end.

    Before the append lock, which every event takes: never after one, or two engines wait for one
    another. So whoever changes orders of several nodes locks all of them first.
    """
    for node_id in sorted(set(node_ids)):
        await tx.lock(f"orders:{node_id}")


async def happened(
    tx: contract.Tx,
    *,
    order: records.Order,
    event: states.Event,
    environment: str,
    now: datetime.datetime,
    actor: str = _PLATFORM,
    detail: str = "",
) -> bool:
    """Says whether it changed anything: another engine may have been first.

    What counts is the order as it stands behind the node's lock, not as the caller read it: that
    it was taken and what became of it may come in at one moment. The detail is what the other side
    said; characters that no store takes are dropped.
    """
    await lock(tx, node_ids=[order.node_id])
    present = await records.find(tx, order_id=order.order_id)
    kept = "".join(one if one.isprintable() else " " for one in detail)[:LONGEST_DETAIL] or None
    state = None
    if present is not None:
        state = await records.change(tx, order=present, event=event, detail=kept, now=now)
    if state is None:
        return False
    await events.append(
        tx,
        at=now,
        kind=f"order.{state}",
        subject=order.node_id,
        infra=order.infra,
        data={"order_id": order.order_id, "kind": order.kind, "detail": kept},
    )
    if state not in states.OPEN and event is not states.Event.CANCEL:
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=actor,
                action=f"order.{state}",
                target=order.node_id,
                environment=environment,
                infra=order.infra,
                details={"order_id": order.order_id, "kind": order.kind, "detail": kept},
            ),
        )
    return True
