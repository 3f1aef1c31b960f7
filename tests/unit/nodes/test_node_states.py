"""The node's table, walked whole."""

import itertools

import pytest

from platform_server.nodes import states
from platform_server.nodes.states import Event, State

LIVE = (State.ENROLLED, State.READY, State.UNREACHABLE, State.NEEDS_OPERATOR)
EXPECTED: dict[tuple[State, Event], State] = {
    **{(state, Event.ANSWER): State.READY for state in LIVE},
    **{(state, Event.REENROLL): State.ENROLLED for state in LIVE},
    **{(state, Event.REMOVE): State.REMOVED for state in LIVE},
    **{(state, Event.CONFLICT): State.NEEDS_OPERATOR for state in LIVE},
    (State.ENROLLED, Event.MISS): State.ENROLLED,
    (State.READY, Event.MISS): State.UNREACHABLE,
    (State.UNREACHABLE, Event.MISS): State.UNREACHABLE,
    (State.NEEDS_OPERATOR, Event.MISS): State.NEEDS_OPERATOR,
    (State.READY, Event.RESTART): State.UNREACHABLE,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_a_node_moves_as_the_table_says_and_not_otherwise(state: State, event: Event) -> None:
    if (state, event) in EXPECTED:
        assert states.after(state, event) is EXPECTED[state, event]
    else:
        assert states.find_after(state, event) is None
        with pytest.raises(states.WrongState):
            states.after(state, event)


def test_nothing_but_an_answer_makes_a_node_ready() -> None:
    into_ready = {event for (_, event), after in states.TABLE.items() if after is State.READY}
    assert into_ready == {Event.ANSWER}


def test_nothing_leads_out_of_a_tombstone() -> None:
    assert not [event for state, event in states.TABLE if state is State.REMOVED]
