"""The life of an enrollment, as a table: what may follow what, and nothing else.

`pending` is the only state from which anything can happen; the other four are ends. The SQL that
changes a row takes its states from here, so a transition that is not in the table cannot be
written. docs/ draws its picture from `TABLE`.
"""

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.StrEnum):
    """Where an enrollment stands."""

    PENDING = "pending"  # issued, waiting for its machine
    CONSUMED = "consumed"  # a machine enrolled with it
    REPLACED = "replaced"  # the operator asked for another in its place
    REVOKED = "revoked"  # withdrawn, or its node was removed
    EXPIRED = "expired"  # nobody used it in time


class Event(enum.StrEnum):
    """What can happen to an enrollment."""

    REDEEM = "redeem"
    REPLACE = "replace"
    REVOKE = "revoke"
    EXPIRE = "expire"


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.PENDING, Event.REDEEM): State.CONSUMED,
    (State.PENDING, Event.REPLACE): State.REPLACED,
    (State.PENDING, Event.REVOKE): State.REVOKED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
}


class WrongState(Exception):
    """The enrollment has ended; issue a new one."""


def after(state: State, event: Event) -> State:
    """The state that follows; raises `WrongState` where the table has no row."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise WrongState(f"An enrollment that is {state} cannot {event}.") from None


def before(event: Event) -> State:
    """The one state in which the event can happen: what a conditional write asks for."""
    (state,) = {state for state, happens in TABLE if happens is event}
    return state
