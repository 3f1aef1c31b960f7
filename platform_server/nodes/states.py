"""The life of a node, as a table: what may follow what.

`ready` is reached only by an answer as that node, over the channel that will carry its work.
`removed` is a tombstone: it ends by the operator's word alone (`allow`), which deletes the row.
Whether it takes work stands beside it, in `scheduling`. docs/ draws its picture from `TABLE`.
"""

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.StrEnum):
    """Where a node stands."""

    ENROLLED = "enrolled"  # its key is known; it has not answered yet
    READY = "ready"  # it answered as that node
    UNREACHABLE = "unreachable"  # it was ready and does not answer; `reason` says why
    NEEDS_OPERATOR = "needs-operator"  # a person must act; `reason` says on what
    REMOVED = "removed"  # a tombstone: this id may not enroll


class Event(enum.StrEnum):
    """What can happen to a node."""

    ANSWER = "answer"  # the health question was answered as this node
    MISS = "miss"  # the questions went unanswered
    RESTART = "restart"  # the Platform started and has heard nothing yet
    CONFLICT = "conflict"  # something answers that is not this node, or two do
    REENROLL = "reenroll"  # a re-enrollment gave it another key
    REMOVE = "remove"


_LIVE: Final = (State.ENROLLED, State.READY, State.UNREACHABLE, State.NEEDS_OPERATOR)

TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.ENROLLED, Event.ANSWER): State.READY,
    (State.ENROLLED, Event.MISS): State.ENROLLED,
    (State.ENROLLED, Event.CONFLICT): State.NEEDS_OPERATOR,
    (State.READY, Event.ANSWER): State.READY,
    (State.READY, Event.MISS): State.UNREACHABLE,
    (State.READY, Event.RESTART): State.UNREACHABLE,
    (State.READY, Event.CONFLICT): State.NEEDS_OPERATOR,
    (State.UNREACHABLE, Event.ANSWER): State.READY,
    (State.UNREACHABLE, Event.MISS): State.UNREACHABLE,
    (State.UNREACHABLE, Event.CONFLICT): State.NEEDS_OPERATOR,
    (State.NEEDS_OPERATOR, Event.ANSWER): State.READY,
    (State.NEEDS_OPERATOR, Event.MISS): State.NEEDS_OPERATOR,
    (State.NEEDS_OPERATOR, Event.CONFLICT): State.NEEDS_OPERATOR,
    **{(state, Event.REENROLL): State.ENROLLED for state in _LIVE},
    **{(state, Event.REMOVE): State.REMOVED for state in _LIVE},
}


class WrongState(Exception):
    """The node's state does not allow this; look at it with `enlist nodes show`."""


def already_removed(node_id: str) -> WrongState:
    """What is said of a tombstone that somebody wants to change, and what lifts it."""
    return WrongState(
        f"The node {node_id} is removed already, and its id stays taken. To let that id enroll "
        f"again: enlist nodes allow {node_id}"
    )


def after(state: State, event: Event) -> State:
    """The state that follows; raises `WrongState` where the table has no row."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise WrongState(f"A node that is {state} cannot take {event}.") from None


def find_after(state: State, event: Event) -> State | None:
    """The state that follows, or None where the event means nothing in that state."""
    return TABLE.get((state, event))
