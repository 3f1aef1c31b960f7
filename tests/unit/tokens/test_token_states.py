"""The enrollment's table, walked whole."""

import itertools

import pytest

from platform_server.tokens import redeem, states
from platform_server.tokens.states import Event, State

ALLOWED = {
    (State.PENDING, Event.REDEEM): State.CONSUMED,
    (State.PENDING, Event.REPLACE): State.REPLACED,
    (State.PENDING, Event.REVOKE): State.REVOKED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_only_a_pending_enrollment_can_end_and_each_event_ends_it_its_own_way(
    state: State, event: Event
) -> None:
    if (state, event) in ALLOWED:
        assert states.after(state, event) is ALLOWED[state, event]
    else:
        with pytest.raises(states.WrongState):
            states.after(state, event)


@pytest.mark.parametrize("event", list(Event))
def test_a_conditional_write_asks_for_the_pending_state(event: Event) -> None:
    assert states.before(event) is State.PENDING


def test_a_receipt_of_redeeming_cannot_be_made_elsewhere() -> None:
    with pytest.raises(TypeError, match="Only platform_server"):
        redeem.Redeemed(
            enrollment=None,  # type: ignore[arg-type]
            pin="sha256:00",  # type: ignore[arg-type]
            redeemed_at=None,  # type: ignore[arg-type]
            seal=None,  # type: ignore[arg-type]
        )
