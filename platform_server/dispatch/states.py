"""The life of an order, as a table: what may follow what.

What a node says of an order it had taken counts more than what the Platform had concluded from its
silence: so a result still follows an end by expiry or at the operator's word.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Final


class State(enum.StrEnum):
    """Where an order stands."""

    QUEUED = "queued"  # signed and stored; the node has not taken it, as far as is known
    ACCEPTED = "accepted"  # the node has written it down and will carry it out once
    DONE = "done"  # the node has carried it out
    FAILED = "failed"  # the node has refused it, or could not carry it out; `detail` says why
    EXPIRED = "expired"  # nobody took it in time
    CANCELLED = "cancelled"  # an operator took it back, or the node was removed


class Event(enum.StrEnum):
    """What can happen to an order."""

    TAKE = "take"  # the node has written it down
    SUCCEED = "succeed"  # the node says that it is done
    FAIL = "fail"  # the node refuses it, or says that it failed
    EXPIRE = "expire"  # its time is over, or the Platform was restored since
    CANCEL = "cancel"  # by an operator, or with the node
    GIVE_UP = "give-up"  # taken long ago, and never heard of again


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.QUEUED, Event.TAKE): State.ACCEPTED,
    (State.QUEUED, Event.SUCCEED): State.DONE,
    (State.QUEUED, Event.FAIL): State.FAILED,
    (State.QUEUED, Event.EXPIRE): State.EXPIRED,
    (State.QUEUED, Event.CANCEL): State.CANCELLED,
    (State.ACCEPTED, Event.SUCCEED): State.DONE,
    (State.ACCEPTED, Event.FAIL): State.FAILED,
    (State.ACCEPTED, Event.GIVE_UP): State.FAILED,
    **{
        (state, event): after
        for state in (State.EXPIRED, State.CANCELLED)
        for event, after in (
            (Event.TAKE, State.ACCEPTED),
            (Event.SUCCEED, State.DONE),
            (Event.FAIL, State.FAILED),
        )
    },
}

OPEN: Final = (State.QUEUED, State.ACCEPTED)


def after(state: State, event: Event) -> State | None:
    """The state that follows, or None where the event means nothing in that state."""
    return TABLE.get((state, event))


def before(event: Event) -> Sequence[State]:
    """The states in which the event means something."""
    return [state for state, one in TABLE if one is event]
