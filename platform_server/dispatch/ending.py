"""Writes down what happened to an order: the row, the event, and for an end the action log."""

import datetime
from typing import Final

from platform_server.audit import actions, events
from platform_server.dispatch import records, states
from platform_server.store import contract

_PLATFORM: Final = "platform:dispatch"
LONGEST_DETAIL: Final = 1024


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

    The detail is what the other side said; characters that no store takes are dropped.
    """
    kept = "".join(one if one.isprintable() else " " for one in detail)[:LONGEST_DETAIL] or None
    state = await records.change(tx, order=order, event=event, detail=kept, now=now)
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
