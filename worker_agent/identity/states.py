"""How a machine comes to be a node, as one table.

The state is read from the disk (`own.look`), never stored: what the files say is what is true
after a crash. A key is made once, and replaced only by one that the Platform has welcomed
(`replacing`). No step of a program leads out of damage, only a person who moves the folder away
starts over.
"""

import enum


class State(enum.StrEnum):
    """How far this machine is."""

    FRESH = "fresh"  # no key yet
    KEYED = "keyed"  # a key, and no usable certificate of it
    CERTIFIED = "certified"  # key and certificate; the token may be sent
    JOINED = "joined"  # the Platform's answer is written down
    DAMAGED = "damaged"  # something that may be a real key cannot be used; a person decides


class Event(enum.StrEnum):
    """What happened to the files."""

    KEY_SAVED = "key-saved"
    CERTIFICATE_SAVED = "certificate-saved"
    ANSWER_SAVED = "answer-saved"


class OutOfOrder(Exception):
    """A step was taken before the one it stands on: a mistake in the program, not of the user."""


TABLE: dict[State, dict[Event, State]] = {
    State.FRESH: {Event.KEY_SAVED: State.KEYED},
    State.KEYED: {Event.CERTIFICATE_SAVED: State.CERTIFIED},
    State.CERTIFIED: {
        Event.CERTIFICATE_SAVED: State.CERTIFIED,  # other names, the same key
        Event.ANSWER_SAVED: State.JOINED,
    },
    State.JOINED: {
        Event.CERTIFICATE_SAVED: State.JOINED,  # renewed with the same key
        Event.ANSWER_SAVED: State.JOINED,  # the same join again
    },
    State.DAMAGED: {},
}


def step(state: State, event: Event) -> State:
    """The state after the event; raises `OutOfOrder` where the table has no such step."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise OutOfOrder(f"A machine that is {state} cannot take the step {event}.") from None
