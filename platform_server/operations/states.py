"""The life of an operation, as a table: what may follow what, for every kind.

A kind uses the rows that it needs. What was done to a node before a failure is undone before the
operation has failed, so for what is done to a node `failed` is never a state in which something is
left half done. A machine that was ordered and failed is kept, for a person to look at and to retry
or delete: that is the one way out of an end, `retry`. docs/ draws its picture from `TABLE`.
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
    VALIDATING = "validating"  # the order is judged with the provider; nothing was ordered yet
    CREATING = "creating"  # the attempt is written down; the provider is asked, or looked up
    BOOTING = "booting"  # the provider has the machine, its id is stored; it starts
    BOOTSTRAPPING = "bootstrapping"  # first boot reports what it does
    ENROLLING = "enrolling"  # first boot has come to joining
    VERIFYING = "verifying"  # the node is enrolled; it and the provider's view are to agree
    UNRESOLVED = "unresolved"  # looking up settled nothing: a person says what is so

    CANCELLING = "cancelling"  # what was made is taken away
    DELETING = "deleting"  # node and machine are taken away
    ACTIVE = "active"  # the machine is a ready node
    DELETED = "deleted"  # the provider says that machine and children are gone
    DONE = "done"  # carried out
    FAILED = "failed"  # not carried out; `reason` says why
    CANCELLED = "cancelled"  # never begun, or taken back until nothing was left


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
    VALIDATE = "validate"  # the order is to be judged with the provider
    CREATE = "create"  # an attempt is written down
    ACCEPT = "accept"  # the provider has it: its id is stored
    REPORT = "report"  # first boot has reported its first phase
    JOIN = "join"  # first boot has come to joining
    ADMIT = "admit"  # the node is enrolled
    LOSE = "lose"  # looking up has not settled in time what became of the order
    ADOPT = "adopt"  # a person says: this one is it
    RETRY = "retry"  # another attempt, once the one before is gone
    GIVE_UP = "give-up"  # a person says: leave it
    DELETE = "delete"  # the taking away begins
    GONE = "gone"  # the provider says that nothing is left
    FORGET = "forget"  # a person says that it is gone; nobody asked the provider
    CANCEL = "cancel"  # it is not wanted any more


_UP: Final = (State.BOOTING, State.BOOTSTRAPPING, State.ENROLLING, State.VERIFYING)
_ORDERING: Final = (State.VALIDATING, State.CREATING, *_UP)

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
    (State.REQUESTED, Event.VALIDATE): State.VALIDATING,
    (State.VALIDATING, Event.CREATE): State.CREATING,
    (State.VALIDATING, Event.BEGIN): State.RUNNING,
    (State.CREATING, Event.ACCEPT): State.BOOTING,
    (State.CREATING, Event.LOSE): State.UNRESOLVED,
    (State.UNRESOLVED, Event.ADOPT): State.BOOTING,
    (State.UNRESOLVED, Event.RETRY): State.VALIDATING,
    (State.UNRESOLVED, Event.GIVE_UP): State.FAILED,
    (State.UNRESOLVED, Event.CANCEL): State.CANCELLING,
    (State.BOOTING, Event.REPORT): State.BOOTSTRAPPING,
    **{(state, Event.JOIN): State.ENROLLING for state in _UP[:2]},
    **{(state, Event.ADMIT): State.VERIFYING for state in _UP[:3]},
    (State.VERIFYING, Event.SUCCEED): State.ACTIVE,
    **{(state, Event.RETRY): State.VALIDATING for state in (State.CREATING, *_UP)},
    **{(state, Event.FAIL): State.FAILED for state in _ORDERING},
    **{(state, Event.CANCEL): State.CANCELLING for state in _ORDERING},
    (State.FAILED, Event.RETRY): State.VALIDATING,
    (State.REQUESTED, Event.DELETE): State.DELETING,
    (State.DELETING, Event.GONE): State.DELETED,
    (State.DELETING, Event.SUCCEED): State.DONE,  # the node is gone, its machine is kept
    (State.CANCELLING, Event.GONE): State.CANCELLED,
    (State.DELETING, Event.FORGET): State.FAILED,
    (State.CANCELLING, Event.FORGET): State.FAILED,
}

ENDED: Final = (State.DONE, State.ACTIVE, State.DELETED, State.FAILED, State.CANCELLED)


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
