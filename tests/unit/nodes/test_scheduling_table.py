"""The table of what an operator may ask of a node, walked whole."""

import itertools

import pytest

from platform_server.nodes import scheduling, states
from platform_server.nodes.scheduling import Event, Scheduling

EXPECTED: dict[tuple[Scheduling, Event], Scheduling] = {
    (Scheduling.ACTIVE, Event.MAINTENANCE): Scheduling.MAINTENANCE,
    (Scheduling.ACTIVE, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.ACTIVE, Event.RESUME): Scheduling.ACTIVE,
    (Scheduling.MAINTENANCE, Event.MAINTENANCE): Scheduling.MAINTENANCE,
    (Scheduling.MAINTENANCE, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.MAINTENANCE, Event.RESUME): Scheduling.ACTIVE,
    (Scheduling.DRAINING, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.DRAINING, Event.EMPTIED): Scheduling.DRAINED,
    (Scheduling.DRAINING, Event.RESUME): Scheduling.ACTIVE,
    (Scheduling.DRAINED, Event.DRAIN): Scheduling.DRAINED,
    (Scheduling.DRAINED, Event.FENCE): Scheduling.FENCED,
    (Scheduling.DRAINED, Event.RESUME): Scheduling.ACTIVE,
    (Scheduling.FENCED, Event.RESUME): Scheduling.ACTIVE,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(Scheduling, Event)))
def test_scheduling_moves_as_the_table_says_and_not_otherwise(
    state: Scheduling, event: Event
) -> None:
    if (state, event) in EXPECTED:
        assert scheduling.after(state, event) is EXPECTED[state, event]
    else:
        assert scheduling.find_after(state, event) is None
        with pytest.raises(states.WrongState):
            scheduling.after(state, event)


def test_nothing_but_a_resume_leads_back_to_work() -> None:
    into_active = {event for (_, event), after in scheduling.TABLE.items() if after == "active"}
    assert into_active == {Event.RESUME}
