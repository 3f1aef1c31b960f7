"""What is done next about a node that is to run another release: sentences and rows."""

import dataclasses
import datetime
from typing import Any

import pytest

from platform_server.dispatch import records as orders
from platform_server.dispatch import states as order_states
from platform_server.nodes import states as node_states
from platform_server.operations import holding, kinds, plan, records, states
from wire_protocol import ids, updates
from wire_protocol import orders as wire_orders

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
S, E, ORDER, N = states.State, states.Event, order_states.State, node_states.State
NEW = updates.Update(
    version="0.2.0",
    release="0.2.0-0123456789ab",
    archive_sha256="ab" * 32,
    size=1,
    urls=(),
)
OLD_ID, OTHER_ID = "0.1.0-aaaaaaaaaaaa", "0.0.9-bbbbbbbbbbbb"
LIMITS = plan.Limits(
    ready_seconds=60,
    staging_seconds=600,
    restart_seconds=120,
    settle_seconds=25,
    healthy_seconds=15,
)


def at(seconds: float) -> datetime.datetime:
    """That many seconds before now."""
    return NOW - datetime.timedelta(seconds=seconds)


def runs(release: str, *, since: float, heard: float = 0.0) -> plan.Runs:
    """What the Agent tells, started and heard so many seconds ago."""
    version = release.partition("-")[0]
    told = release if "-" in release else ""
    return plan.Runs(heard_at=at(heard), started_at=at(since), version=version, release=told)


def operation(state: states.State, *, made: float = 300, **more: Any) -> records.Operation:
    """One that has come so far; it was told that the node ran the old release."""
    events = {S.PREPARING: 1, S.STAGING: 2, S.RESTARTING: 3}.get(state, 0)
    steps = [
        records.Step(
            position=position,
            at=at(200),
            event=event,
            state=state,
            detail="",
            output={"version": "0.1.0", "release": OLD_ID, "order_id": "1"},
        )
        for position, event in enumerate((E.PREPARE, E.ORDER, E.STAGE)[:events], start=1)
    ]
    return dataclasses.replace(
        records.Operation(
            operation_id="1",
            kind="update-node",
            infra="default",
            subject="web-1",
            parent_id=None,
            state=state,
            request={},
            created_at=at(made),
            created_by="local:0",
            updated_at=at(100),
            next_at=NOW,
            steps=steps,
        ),
        **more,
    )


def order(state: order_states.State, *, detail: str = "", ended: float = 60) -> orders.Order:
    """The node's order, taken 100 s ago."""
    return orders.Order(
        order_id="1",
        node_id=ids.NodeId("web-1"),
        infra="default",
        epoch=1,
        sequence=1,
        kind="update",
        signed=wire_orders.SignedOrder(content=b"", signatures=()),
        state=state,
        purpose=None,
        created_at=at(110),
        created_by="local:0",
        expires_at=NOW,
        tries=1,
        accepted_at=at(100),
        ended_at=at(ended),
        detail=detail,
    )


READY: dict[str, Any] = {"node_state": N.READY, "runs": runs(OLD_ID, since=900)}
STAGED: dict[str, Any] = {"node_state": N.READY, "order": order(ORDER.DONE)}
Row = tuple[records.Operation, dict[str, Any], str]
BEGINNING: dict[str, Row] = {
    "a ready node is prepared": (operation(S.REQUESTED), READY, "prepare"),
    "a node that runs it already is done": (
        operation(S.REQUESTED),
        {**READY, "runs": runs(NEW.release, since=900)},
        "succeed",
    ),
    "a node of the same version without a release id is done": (
        operation(S.REQUESTED),
        {**READY, "runs": runs("0.2.0", since=900)},
        "succeed",
    ),
    "another release of the same version is prepared": (
        operation(S.REQUESTED),
        {**READY, "runs": runs("0.2.0-ffffffffffff", since=900)},
        "prepare",
    ),
    "a node that is not there is waited for": (
        operation(S.REQUESTED, made=59),
        {**READY, "node_state": N.UNREACHABLE},
        "wait",
    ),
    "but not for ever": (
        operation(S.REQUESTED, made=61),
        {**READY, "node_state": N.UNREACHABLE},
        "fail: not ready within 60 s",
    ),
    "a node that was never heard is waited for": (
        operation(S.REQUESTED, made=1),
        {"node_state": N.READY},
        "wait",
    ),
    "a removed node is none": (
        operation(S.REQUESTED),
        {"node_state": N.REMOVED},
        "fail: was removed",
    ),
    "the one before is waited for": (
        operation(S.REQUESTED),
        {**READY, "formers": [operation(S.STAGING)]},
        "wait",
    ),
    "after one that failed it is never begun": (
        operation(S.REQUESTED),
        {**READY, "formers": [operation(S.FAILED)]},
        "cancel: Not begun",
    ),
    "nor after one that was never begun": (
        operation(S.REQUESTED),
        {**READY, "formers": [operation(S.CANCELLED)]},
        "cancel: Not begun",
    ),
    "its time to be ready begins with its turn": (
        operation(S.REQUESTED, made=900),
        {
            "node_state": N.UNREACHABLE,
            "formers": [operation(S.DONE, ended_at=at(30))],
        },
        "wait",
    ),
}
GOING_ON: dict[str, Row] = {
    "a prepared node gets its order": (operation(S.PREPARING), READY, "order"),
    "a queued order is waited for": (
        operation(S.STAGING),
        {**READY, "order": order(ORDER.QUEUED)},
        "wait",
    ),
    "until the time for it is over": (
        operation(S.STAGING, deadline_at=at(0)),
        {**READY, "order": order(ORDER.ACCEPTED)},
        "fail: in time",
    ),
    "an order that is done is staged": (operation(S.STAGING), STAGED, "stage"),
    "an order that failed fails": (
        operation(S.STAGING),
        {**READY, "order": order(ORDER.FAILED, detail="No room.")},
        "fail: No room.",
    ),
    "an order that nobody took fails": (
        operation(S.STAGING),
        {**READY, "order": order(ORDER.EXPIRED)},
        "fail: expired",
    ),
    "an Agent that was cut off is waited for": (
        operation(S.STAGING),
        {**READY, "order": order(ORDER.FAILED, detail=wire_orders.INTERRUPTED)},
        "wait",
    ),
    "but not for ever either": (
        operation(S.STAGING),
        {**READY, "order": order(ORDER.FAILED, detail=wire_orders.INTERRUPTED, ended=121)},
        "fail: not known",
    ),
    "and counts by what is heard": (
        operation(S.STAGING),
        {
            "node_state": N.READY,
            "runs": runs(NEW.release, since=20),
            "order": order(ORDER.FAILED, detail=wire_orders.INTERRUPTED),
        },
        "hear",
    ),
    "the release heard from a new Agent is heard": (
        operation(S.RESTARTING),
        {**STAGED, "runs": runs(NEW.release, since=16)},
        "hear",
    ),
    "one that has not stayed yet is waited for": (
        operation(S.RESTARTING),
        {**STAGED, "runs": runs(NEW.release, since=14)},
        "wait",
    ),
    "so is one that is not ready": (
        operation(S.RESTARTING),
        {**STAGED, "node_state": N.UNREACHABLE, "runs": runs(NEW.release, since=16)},
        "wait",
    ),
    "and one whose session was lost": (
        operation(S.RESTARTING),
        {**STAGED, "is_connected": False, "runs": runs(NEW.release, since=16)},
        "wait",
    ),
    "the Agent from before says nothing of it": (
        operation(S.RESTARTING),
        {**STAGED, "runs": runs(OLD_ID, since=900)},
        "wait",
    ),
    "the release before from a new Agent is a roll back": (
        operation(S.RESTARTING),
        {**STAGED, "runs": runs(OLD_ID, since=30)},
        f"fail: it runs {OLD_ID}",
    ),
    "but not while the helper may still be at it": (
        operation(S.RESTARTING),
        {
            "node_state": N.READY,
            "order": order(ORDER.DONE, ended=20),
            "runs": runs(OLD_ID, since=30),
        },
        "wait",
    ),
    "nothing heard in time fails": (
        operation(S.RESTARTING, deadline_at=at(0)),
        {**STAGED, "node_state": N.UNREACHABLE},
        "fail: was not heard within 120 s",
    ),
    "a node removed meanwhile fails": (
        operation(S.RESTARTING),
        {**STAGED, "node_state": N.REMOVED},
        "fail: was removed",
    ),
    "what runs is resumed": (operation(S.RESUMING), {"node_state": None}, "succeed"),
    "what failed is undone": (operation(S.UNDOING), {"node_state": None}, "undo"),
}


def told(todo: plan.Todo) -> str:
    """The plan as the rows write it."""
    if isinstance(todo, kinds.Wait):
        return "wait"
    assert isinstance(todo, holding.Move)
    return f"{todo.event}: {todo.failure.reason}" if todo.failure else todo.event.value


@pytest.mark.parametrize(
    "row", [*BEGINNING.values(), *GOING_ON.values()], ids=[*BEGINNING, *GOING_ON]
)
def test_the_plan_of_an_update(row: Row) -> None:
    one, facts, wanted = row
    found = told(plan.plan(one, target=NEW, facts=plan.Facts(**facts), limits=LIMITS, now=NOW))
    event, _, reason = wanted.partition(": ")
    assert found.partition(": ")[0] == event
    assert reason in found


ROLLING: dict[str, tuple[plan.Runs, str]] = {
    "another release than before is heard": (runs(OTHER_ID, since=20), "hear"),
    "the same one again has not gone back": (runs(OLD_ID, since=30), "fail"),
    "without a release id the version tells": (runs("0.0.9", since=20), "hear"),
    "and the same version is no other": (runs("0.1.0", since=30), "fail"),
    "the Agent from before says nothing": (runs(OLD_ID, since=900), "wait"),
}


@pytest.mark.parametrize("row", ROLLING.values(), ids=ROLLING)
def test_the_plan_of_a_roll_back(row: tuple[plan.Runs, str]) -> None:
    said, wanted = row
    facts = plan.Facts(**{**STAGED, "runs": said})
    todo = plan.plan(operation(S.RESTARTING), target=None, facts=facts, limits=LIMITS, now=NOW)
    assert told(todo).partition(": ")[0] == wanted


def test_every_move_that_is_planned_may_follow_in_its_state() -> None:
    for one, facts, _ in [*BEGINNING.values(), *GOING_ON.values()]:
        todo = plan.plan(one, target=NEW, facts=plan.Facts(**facts), limits=LIMITS, now=NOW)
        if isinstance(todo, holding.Move):
            assert states.find_after(one.state, todo.event) is not None
