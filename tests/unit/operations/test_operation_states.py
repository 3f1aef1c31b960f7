"""The life of an operation: every pair of state and event."""

import pytest

from platform_server.operations import states

S, E = states.State, states.Event
FOLLOWS = {
    (S.REQUESTED, E.BEGIN): S.RUNNING,
    (S.REQUESTED, E.PREPARE): S.PREPARING,
    (S.REQUESTED, E.SUCCEED): S.DONE,
    (S.REQUESTED, E.FAIL): S.FAILED,
    (S.REQUESTED, E.CANCEL): S.CANCELLED,
    (S.RUNNING, E.SUCCEED): S.DONE,
    (S.RUNNING, E.FAIL): S.FAILED,
    (S.PREPARING, E.ORDER): S.STAGING,
    (S.PREPARING, E.FAIL): S.UNDOING,
    (S.STAGING, E.STAGE): S.RESTARTING,
    (S.STAGING, E.HEAR): S.RESUMING,
    (S.STAGING, E.FAIL): S.UNDOING,
    (S.RESTARTING, E.HEAR): S.RESUMING,
    (S.RESTARTING, E.FAIL): S.UNDOING,
    (S.RESUMING, E.SUCCEED): S.DONE,
    (S.UNDOING, E.UNDO): S.FAILED,
}


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", E)
def test_every_pair_of_state_and_event(state: states.State, event: states.Event) -> None:
    assert states.find_after(state, event) is FOLLOWS.get((state, event))
    if (state, event) not in FOLLOWS:
        with pytest.raises(states.Impossible):
            states.after(state, event)


def test_what_has_ended_stays_so_and_everything_else_can_end() -> None:
    assert {state for state, _ in states.TABLE} == set(S) - set(states.ENDED)
    reached = set(states.ENDED)
    for _ in S:
        reached |= {state for (state, _), after in states.TABLE.items() if after in reached}
    assert reached == set(S)


def test_nothing_fails_before_what_was_done_to_a_node_is_undone() -> None:
    for touched in (S.PREPARING, S.STAGING, S.RESTARTING, S.RESUMING):
        following = {after for (state, _), after in states.TABLE.items() if state is touched}
        assert S.FAILED not in following
