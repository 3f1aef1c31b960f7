"""The life of an operation, as a table: what may follow what, for every kind.

A kind uses the rows that it needs. What was done to a node before a failure is undone before the
operation has failed, so `failed` is never a state in which something is left half done. docs/
draws its picture from `TABLE`.
"""

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.StrEnum):
    """Where an operation stands."""

    REQUESTED = "requested"  # stored; nothing was done
    RUNNING = "running"  # its parts are carried out, one after the other
    PREPARING = "preparing"  # the node takes no new work; the order is to be given
    STAGING = "staging"  # the order was given; the node fetches the release and puts it in place
    RESTARTING = "restarting"  # the machine starts the release; it is to be heard, and to stay
    RESUMING = "resuming"  # the release runs; the node is to take work again
    UNDOING = "undoing"  # it failed; the node is to be as it was
    DONE = "done"  # carried out
    FAILED = "failed"  # not carried out; `reason` says why, and nothing of it is left to do
    CANCELLED = "cancelled"  # never begun, since what it waited for did not end well


class Event(enum.StrEnum):
    """What can happen to an operation."""

    BEGIN = "begin"  # its first part may go on
    PREPARE = "prepare"  # the node was put into maintenance
    ORDER = "order"  # the node was given its order
    STAGE = "stage"  # the node says that the release is in its place
    HEAR = "hear"  # the node is ready with the release, and has been for a while
    SUCCEED = "succeed"  # all is done
    FAIL = "fail"  # it cannot be done
    UNDO = "undo"  # what was done before the failure is undone
    CANCEL = "cancel"  # it is not wanted any more, and was not begun


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.REQUESTED, Event.BEGIN): State.RUNNING,
    (State.REQUESTED, Event.PREPARE): State.PREPARING,
    (State.REQUESTED, Event.SUCCEED): State.DONE,
    (State.REQUESTED, Event.FAIL): State.FAILED,
    (State.REQUESTED, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.SUCCEED): State.DONE,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.PREPARING, Event.ORDER): State.STAGING,
    (State.PREPARING, Event.FAIL): State.UNDOING,
    (State.STAGING, Event.STAGE): State.RESTARTING,
    (State.STAGING, Event.HEAR): State.RESUMING,
    (State.STAGING, Event.FAIL): State.UNDOING,
    (State.RESTARTING, Event.HEAR): State.RESUMING,
    (State.RESTARTING, Event.FAIL): State.UNDOING,
    (State.RESUMING, Event.SUCCEED): State.DONE,
    (State.UNDOING, Event.UNDO): State.FAILED,
}

ENDED: Final = (State.DONE, State.FAILED, State.CANCELLED)


class Impossible(Exception):
    """The event means nothing in that state: a fault of ours."""


def after(state: State, event: Event) -> State:
    """The state that follows; raises `Impossible` where the table has no row."""
    found = find_after(state, event)
    if found is None:
        raise Impossible(f"An operation that is {state} cannot take {event}.")
    return found


def find_after(state: State, event: Event) -> State | None:
    """The state that follows, or None where the event means nothing in that state."""
    return TABLE.get((state, event))
