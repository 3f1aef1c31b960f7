"""The life of an order: every pair of state and event."""

import pytest

from platform_server.dispatch import states

S, E = states.State, states.Event
FOLLOWS = {
    (S.QUEUED, E.TAKE): S.ACCEPTED,
    (S.QUEUED, E.SUCCEED): S.DONE,
    (S.QUEUED, E.FAIL): S.FAILED,
    (S.QUEUED, E.EXPIRE): S.EXPIRED,
    (S.QUEUED, E.CANCEL): S.CANCELLED,
    (S.ACCEPTED, E.SUCCEED): S.DONE,
    (S.ACCEPTED, E.FAIL): S.FAILED,
    (S.ACCEPTED, E.GIVE_UP): S.FAILED,
    (S.EXPIRED, E.TAKE): S.ACCEPTED,
    (S.EXPIRED, E.SUCCEED): S.DONE,
    (S.EXPIRED, E.FAIL): S.FAILED,
    (S.CANCELLED, E.TAKE): S.ACCEPTED,
    (S.CANCELLED, E.SUCCEED): S.DONE,
    (S.CANCELLED, E.FAIL): S.FAILED,
}


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", E)
def test_every_pair_of_state_and_event(state: states.State, event: states.Event) -> None:
    assert states.after(state, event) is FOLLOWS.get((state, event))


def test_what_is_done_or_failed_stays_so() -> None:
    ended = {state for state, _ in states.TABLE}
    assert {S.DONE, S.FAILED} & ended == set()


def test_what_is_open_is_what_the_node_has_not_answered() -> None:
    assert states.OPEN == (S.QUEUED, S.ACCEPTED)
