"""The table of how a machine comes to be a node: every pair of state and event is walked."""

import itertools

import pytest

from worker_agent.identity import states

ALLOWED = {
    (states.State.FRESH, states.Event.KEY_SAVED): states.State.KEYED,
    (states.State.KEYED, states.Event.CERTIFICATE_SAVED): states.State.CERTIFIED,
    (states.State.CERTIFIED, states.Event.CERTIFICATE_SAVED): states.State.CERTIFIED,
    (states.State.CERTIFIED, states.Event.ANSWER_SAVED): states.State.JOINED,
    (states.State.JOINED, states.Event.ANSWER_SAVED): states.State.JOINED,
    (states.State.JOINED, states.Event.CERTIFICATE_SAVED): states.State.JOINED,
}


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(states.State, states.Event)), ids=str
)
def test_every_pair_is_a_step_or_out_of_order(state: states.State, event: states.Event) -> None:
    if (state, event) in ALLOWED:
        assert states.step(state, event) is ALLOWED[state, event]
    else:
        with pytest.raises(states.OutOfOrder, match=f"{state} cannot take the step {event}"):
            states.step(state, event)


def test_no_step_of_a_program_leads_out_of_damage() -> None:
    assert states.TABLE[states.State.DAMAGED] == {}
