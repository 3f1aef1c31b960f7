"""What is to be done about a node's open orders: a table of cases."""

import dataclasses
import datetime

import pytest

from platform_server.dispatch import plan, records, states
from wire_protocol import ids, orders

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
DAY = 24 * HOUR
Do, State = plan.Do, states.State

ORDER = records.Order(
    order_id="1",
    node_id=ids.NodeId("web-1"),
    infra="default",
    epoch=2,
    sequence=1,
    kind="renew",
    signed=orders.SignedOrder(content=b"", signatures=()),
    state=State.QUEUED,
    purpose=None,
    created_at=NOW,
    created_by="local:0",
    expires_at=NOW + HOUR,
    tries=0,
)
TAKEN = dataclasses.replace(ORDER, state=State.ACCEPTED)

CASES: dict[str, tuple[records.Order, datetime.timedelta, tuple[plan.Do, str] | None]] = {
    "queued, in time": (ORDER, 0 * HOUR, (Do.SEND, "")),
    "queued, at its very end": (ORDER, HOUR, (Do.END, "in time")),
    "queued, long over": (ORDER, 30 * DAY, (Do.END, "in time")),
    "queued, given before a restore": (
        dataclasses.replace(ORDER, epoch=1),
        0 * HOUR,
        (Do.END, "restored"),
    ),
    "taken, in time": (TAKEN, 0 * HOUR, (Do.ASK, "")),
    "taken, its time is over: the result may still come": (TAKEN, 2 * HOUR, (Do.ASK, "")),
    "taken before a restore: the node knows": (
        dataclasses.replace(TAKEN, epoch=1),
        0 * HOUR,
        (Do.ASK, ""),
    ),
    "taken, and never heard of for a month": (TAKEN, 30 * DAY + HOUR, (Do.END, "never said")),
    "done": (dataclasses.replace(ORDER, state=State.DONE), 0 * HOUR, None),
}


@pytest.mark.parametrize("case", CASES)
def test_one_order(case: str) -> None:
    order, later, wanted = CASES[case]
    steps = plan.plan([order], epoch=2, now=NOW + later)
    if wanted is None:
        assert steps == []
        return
    (step,) = steps
    assert step.do is wanted[0]
    assert wanted[1] in step.detail


def test_an_end_for_want_of_news_is_no_expiry() -> None:
    (expired,) = plan.plan([ORDER], epoch=2, now=NOW + HOUR)
    (unheard,) = plan.plan([TAKEN], epoch=2, now=NOW + 40 * DAY)
    assert (expired.event, unheard.event) == (states.Event.EXPIRE, states.Event.GIVE_UP)


def test_orders_are_taken_by_their_numbers_whatever_their_order() -> None:
    shuffled = [
        dataclasses.replace(ORDER, order_id=f"{epoch}.{sequence}", epoch=epoch, sequence=sequence)
        for epoch, sequence in ((3, 1), (2, 10), (2, 9), (3, 2))
    ]
    steps = plan.plan(shuffled, epoch=2, now=NOW)
    assert [step.order.order_id for step in steps] == ["2.9", "2.10", "3.1", "3.2"]


def test_what_was_given_to_the_machine_that_had_the_node_before_ends() -> None:
    later = NOW + datetime.timedelta(seconds=1)
    steps = plan.plan([ORDER, TAKEN], epoch=2, now=later, enrolled_at=later)
    assert [(step.do, step.event) for step in steps] == [
        (Do.END, states.Event.EXPIRE),
        (Do.END, states.Event.GIVE_UP),
    ]
    (step,) = plan.plan([ORDER], epoch=2, now=later, enrolled_at=NOW)
    assert step.do is Do.SEND
