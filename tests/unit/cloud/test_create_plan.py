"""What an order's next step is, by rows and the time alone."""

import dataclasses
import datetime
from typing import Any

import pytest

from platform_server.cloud import attempts, create_plan, machines, means
from platform_server.operations import kinds, records, states
from provisioning import contract

S = states.State
D = create_plan.Do
NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
OWNER = contract.Owner(
    installation="p-abc", infra="default", operation="0123", node="web-1", attempt=1
)
LIMITS = means.Limits()


def _ago(**span: float) -> datetime.datetime:
    return NOW - datetime.timedelta(**span)


def _machine(**more: Any) -> machines.Machine:
    fields: dict[str, Any] = {
        "machine_id": "m",
        "node_id": "web-1",
        "infra": "default",
        "connection_id": "c",
        "provider": "pocket",
        "operation_id": "0123",
        "region": "here",
        "size": "s",
        "image": "i",
        "role": "general",
        "wish": {},
        "template": "t",
        "price": None,
        "ordered_at": NOW,
        "ordered_by": "local:0",
        **more,
    }
    return machines.Machine(**fields)


def _attempt(state: attempts.State, **more: Any) -> attempts.Attempt:
    request = contract.Request(
        owner=OWNER,
        name="web-1-abc",
        client_token="t",
        region="here",
        size="s",
        image="i",
        first_boot="",
    )
    made = attempts.Attempt(
        operation_id="0123",
        attempt=1,
        machine_id="m",
        request=request,
        enrollment_id="e",
        state=state,
        written_at=NOW,
        sent_at=None if state is attempts.State.WRITTEN else NOW,
        settled_at=NOW,
    )
    return dataclasses.replace(made, **more)


def _plan(
    state: states.State,
    last: attempts.Attempt | None = None,
    *,
    machine: machines.Machine | None = None,
    phases: tuple[str, ...] = (),
    is_paused: bool = False,
    is_hung_on: bool = False,
) -> create_plan.Todo:
    operation = records.Operation(
        operation_id="0123",
        kind="create-machine",
        infra="default",
        subject="web-1",
        parent_id=None,
        state=state,
        request={},
        created_at=NOW,
        created_by="local:0",
        updated_at=NOW,
        next_at=NOW,
    )
    facts = create_plan.Facts(
        machine=machine or _machine(),
        last=last,
        phases=phases,
        node=None,
        is_paused=is_paused,
        is_hung_on=is_hung_on,
    )
    return create_plan.plan(operation, facts=facts, limits=LIMITS, now=NOW)


A = attempts.State


@pytest.mark.parametrize(
    ("state", "last", "todo"),
    [
        (S.REQUESTED, None, D.VALIDATE),
        (S.VALIDATING, None, D.WRITE),
        (S.VALIDATING, _attempt(A.ABSENT), D.WRITE),
        (S.VALIDATING, _attempt(A.GONE), D.WRITE),
        (S.VALIDATING, _attempt(A.PRESENT), D.CLEAR),
        (S.VALIDATING, _attempt(A.SENT), D.CLEAR),
        (S.CREATING, _attempt(A.WRITTEN), D.SEND),
        (S.CREATING, _attempt(A.WRITTEN, written_at=_ago(minutes=15)), D.LATE),
        (S.CREATING, _attempt(A.SENT), D.LOOK),
        (S.CREATING, _attempt(A.SENT, sent_at=_ago(minutes=15)), D.LOSE),
        (S.CREATING, _attempt(A.ABSENT), D.NEXT),
        (S.UNRESOLVED, _attempt(A.SENT), D.LOOK),
        (S.BOOTING, _attempt(A.PRESENT), D.SEE),
        (S.BOOTING, _attempt(A.PRESENT, settled_at=_ago(minutes=15)), D.LATE),
        (S.BOOTING, _attempt(A.PRESENT, sent_at=_ago(minutes=15)), D.SEE),  # adopted just now
        (S.CANCELLING, _attempt(A.PRESENT), D.REMOVE),
    ],
)
def test_the_step_follows_from_state_and_attempt(
    state: states.State, last: attempts.Attempt | None, todo: create_plan.Do
) -> None:
    assert _plan(state, last) is todo


@pytest.mark.parametrize("state", [S.REQUESTED, S.VALIDATING, S.CREATING, S.UNRESOLVED, S.BOOTING])
def test_whoever_wants_it_gone_is_heard_first(state: states.State) -> None:
    asked = _machine(delete_asked_at=NOW)
    assert _plan(state, _attempt(A.SENT), machine=asked) is D.CANCEL


def test_what_hung_on_the_attempt_before_goes_before_the_next() -> None:
    assert _plan(S.VALIDATING, _attempt(A.GONE), is_hung_on=True) is D.CLEAR
    looked = _attempt(A.GONE, looked_up_at=NOW)
    assert _plan(S.VALIDATING, looked, is_hung_on=True) == kinds.Wait(seconds=5.0)


def test_what_was_sent_is_never_sent_again() -> None:
    for state in S:
        if state in states.ENDED:
            continue
        for last in (_attempt(A.SENT), _attempt(A.PRESENT)):
            try:
                todo = _plan(state, last)
            except kinds.Stop:
                continue
            assert todo not in (D.SEND, D.WRITE)


def test_a_look_up_waits_its_time() -> None:
    wait = _plan(S.CREATING, _attempt(A.SENT, looked_up_at=_ago(seconds=4)))
    assert wait == kinds.Wait(seconds=6.0)


def test_launch_and_enrollment_have_deadlines_apart() -> None:
    last = _attempt(A.PRESENT, sent_at=_ago(minutes=30), settled_at=_ago(minutes=30))
    running = _machine(running_at=_ago(minutes=19), seen_at=NOW, looked_at=NOW, power="running")
    assert isinstance(_plan(S.BOOTING, last, machine=running), kinds.Wait)
    late = _machine(running_at=_ago(minutes=20), seen_at=NOW, looked_at=NOW, power="running")
    assert _plan(S.BOOTING, last, machine=late) is D.LATE


@pytest.mark.parametrize(
    ("phases", "todo"),
    [
        (("fetching",), D.REPORT),
        (("fetching", "joining"), D.JOIN),
        (("fetching", "failed"), D.DIED),
    ],
)
def test_what_first_boot_told_moves_it_on(phases: tuple[str, ...], todo: create_plan.Do) -> None:
    assert _plan(S.BOOTING, _attempt(A.PRESENT), phases=phases) is todo


def test_what_was_seen_and_is_missed_twice_has_died_and_what_never_showed_may_be_late() -> None:
    last = _attempt(A.PRESENT)
    seen = _machine(seen_at=_ago(seconds=30), looked_at=NOW, missed=2)
    assert _plan(S.BOOTING, last, machine=seen) is D.DIED
    never = _machine(looked_at=NOW, missed=2)
    assert isinstance(_plan(S.BOOTING, last, machine=never), kinds.Wait)


def test_a_paused_connection_is_asked_nothing_and_loses_nothing() -> None:
    assert isinstance(_plan(S.CREATING, _attempt(A.WRITTEN), is_paused=True), kinds.Wait)
    assert isinstance(_plan(S.BOOTING, _attempt(A.PRESENT), is_paused=True), kinds.Wait)
    assert _plan(S.REQUESTED, is_paused=True) is D.VALIDATE


def test_polls_grow_apart() -> None:
    machine = _machine(looked_at=NOW, seen_at=NOW)
    waits = []
    for polled in range(6):
        last = _attempt(A.PRESENT, progress="p", clean_answers=polled, looked_up_at=NOW)
        todo = _plan(S.BOOTING, last, machine=machine)
        assert isinstance(todo, kinds.Wait)
        waits.append(todo.seconds)
    assert waits == [5.0, 10.0, 10.0, 10.0, 10.0, 10.0]  # the look at the machine comes first
