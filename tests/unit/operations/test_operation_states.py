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
    (S.REQUESTED, E.VALIDATE): S.VALIDATING,
    (S.VALIDATING, E.CREATE): S.CREATING,
    (S.VALIDATING, E.BEGIN): S.RUNNING,
    (S.VALIDATING, E.FAIL): S.FAILED,
    (S.VALIDATING, E.CANCEL): S.CANCELLING,
    (S.CREATING, E.ACCEPT): S.BOOTING,
    (S.CREATING, E.LOSE): S.UNRESOLVED,
    (S.CREATING, E.RETRY): S.VALIDATING,
    (S.CREATING, E.FAIL): S.FAILED,
    (S.CREATING, E.CANCEL): S.CANCELLING,
    (S.UNRESOLVED, E.ADOPT): S.BOOTING,
    (S.UNRESOLVED, E.RETRY): S.VALIDATING,
    (S.UNRESOLVED, E.GIVE_UP): S.FAILED,
    (S.UNRESOLVED, E.CANCEL): S.CANCELLING,
    (S.BOOTING, E.REPORT): S.BOOTSTRAPPING,
    (S.BOOTING, E.JOIN): S.ENROLLING,
    (S.BOOTING, E.ADMIT): S.VERIFYING,
    (S.BOOTING, E.RETRY): S.VALIDATING,
    (S.BOOTING, E.FAIL): S.FAILED,
    (S.BOOTING, E.CANCEL): S.CANCELLING,
    (S.BOOTSTRAPPING, E.JOIN): S.ENROLLING,
    (S.BOOTSTRAPPING, E.ADMIT): S.VERIFYING,
    (S.BOOTSTRAPPING, E.RETRY): S.VALIDATING,
    (S.BOOTSTRAPPING, E.FAIL): S.FAILED,
    (S.BOOTSTRAPPING, E.CANCEL): S.CANCELLING,
    (S.ENROLLING, E.ADMIT): S.VERIFYING,
    (S.ENROLLING, E.RETRY): S.VALIDATING,
    (S.ENROLLING, E.FAIL): S.FAILED,
    (S.ENROLLING, E.CANCEL): S.CANCELLING,
    (S.VERIFYING, E.SUCCEED): S.ACTIVE,
    (S.VERIFYING, E.RETRY): S.VALIDATING,
    (S.VERIFYING, E.FAIL): S.FAILED,
    (S.VERIFYING, E.CANCEL): S.CANCELLING,
    (S.FAILED, E.RETRY): S.VALIDATING,
    (S.REQUESTED, E.DELETE): S.DELETING,
    (S.DELETING, E.GONE): S.DELETED,
    (S.DELETING, E.SUCCEED): S.DONE,
    (S.DELETING, E.FORGET): S.FAILED,
    (S.CANCELLING, E.GONE): S.CANCELLED,
    (S.CANCELLING, E.FORGET): S.FAILED,
}


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", E)
def test_every_pair_of_state_and_event(state: states.State, event: states.Event) -> None:
    assert states.find_after(state, event) is FOLLOWS.get((state, event))
    if (state, event) not in FOLLOWS:
        with pytest.raises(states.Impossible):
            states.after(state, event)


def test_what_has_ended_stays_so_and_everything_else_can_end() -> None:
    assert {state for state, _ in states.TABLE} == (set(S) - set(states.ENDED)) | {S.FAILED}
    assert [event for state, event in states.TABLE if state is S.FAILED] == [E.RETRY]
    reached = set(states.ENDED)
    for _ in S:
        reached |= {state for (state, _), after in states.TABLE.items() if after in reached}
    assert reached == set(S)


def test_nothing_fails_before_what_was_done_to_a_node_is_undone() -> None:
    for touched in (S.PREPARING, S.STAGING, S.RESTARTING, S.RESUMING):
        following = {after for (state, _), after in states.TABLE.items() if state is touched}
        assert S.FAILED not in following


def test_a_machine_that_was_asked_for_ends_only_where_the_provider_or_a_person_said_so() -> None:
    for taking, more in ((S.CANCELLING, set()), (S.DELETING, {E.SUCCEED})):
        followed = {event for state, event in states.TABLE if state is taking}
        assert followed == {E.GONE, E.FORGET} | more
    assert {state for (state, _), after in states.TABLE.items() if after is S.DELETED} == {
        S.DELETING
    }
