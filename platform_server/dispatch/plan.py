"""What is to be done about the open orders of one node: a plan from plain values.

Pure; `deliver` does what it says. Orders are handed over in the order of their numbers, so the
first that cannot be handed over holds back those behind it; one that the node has taken holds back
nothing, since the Agent carries them out one after the other by itself.
"""

import dataclasses
import datetime
import enum
from collections.abc import Sequence
from typing import Final

from platform_server.dispatch import records, states

UNHEARD_FOR: Final = datetime.timedelta(days=30)
"""How long after its end a result is waited for: a machine may be off for a month."""


class Do(enum.Enum):
    """What to do about one order."""

    END = "end"
    SEND = "send"
    ASK = "ask"  # hand it over again, for its result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do; `event` and `detail` are for `Do.END`."""

    do: Do
    order: records.Order
    event: states.Event = states.Event.EXPIRE
    detail: str = ""


def plan(
    open_orders: Sequence[records.Order],
    *,
    epoch: int,
    now: datetime.datetime,
    enrolled_at: datetime.datetime | None = None,
) -> list[Step]:
    """The steps, those of lower numbers first. `enrolled_at`: when the node got its present key."""
    steps = []
    for order in sorted(open_orders, key=lambda one: one.number):
        if enrolled_at is not None and order.created_at < enrolled_at:
            steps.append(_of_former_machine(order))
            continue
        step = _step(order, epoch=epoch, now=now)
        if step is not None:
            steps.append(step)
    return steps


def _of_former_machine(order: records.Order) -> Step:
    """Whoever has the node's new key knows nothing of what the former machine has taken."""
    is_queued = order.state is states.State.QUEUED
    return Step(
        do=Do.END,
        order=order,
        event=states.Event.EXPIRE if is_queued else states.Event.GIVE_UP,
        detail="The node was enrolled anew since; give it again if it is still wanted.",
    )


def _step(order: records.Order, *, epoch: int, now: datetime.datetime) -> Step | None:
    if order.state is states.State.QUEUED:
        if order.expires_at <= now:
            return Step(do=Do.END, order=order, detail="The node did not take it in time.")
        if order.epoch < epoch:
            return Step(
                do=Do.END,
                order=order,
                detail="The Platform was restored from a backup since; give it again if needed.",
            )
        return Step(do=Do.SEND, order=order)
    if order.state is states.State.ACCEPTED:
        if order.expires_at + UNHEARD_FOR <= now:
            return Step(
                do=Do.END,
                order=order,
                event=states.Event.GIVE_UP,
                detail="The node took it and never said what became of it.",
            )
        return Step(do=Do.ASK, order=order)
    return None
