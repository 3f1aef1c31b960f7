"""How a call to a provider ended, as everybody above reads it: by outcome, never by status code.

An adapter maps its provider's codes to these: an unmapped 4xx is permanent, an unmapped 5xx is
unknown, and so is whatever left no readable answer (a cut, a time-out, a page in place of JSON).
"""

import datetime
import enum
import re

from runtime_kit import clock as clock_kit


class Outcome(enum.StrEnum):
    """What is known after a call that did not simply succeed."""

    EXISTS_MINE = "exists-mine"  # something of this name is there and carries our ids
    EXISTS_FOREIGN = "exists-foreign"  # something of this name is there and is not ours
    NOT_DONE_RETRYABLE = "not-done-retryable"  # proved to have had no effect; may work later
    NOT_DONE_PERMANENT = "not-done-permanent"  # had no effect and never will have
    AUTH_LOST = "auth-lost"  # the credential is refused: the connection pauses
    CLOCK = "clock"  # the provider finds our clock wrong
    UNKNOWN = "unknown"  # it may or may not have been done: look up, never send again


class Topic(enum.StrEnum):
    """What a refusal is about, for the sentence and the next step."""

    AUTH = "auth"
    CAPACITY = "capacity"  # sold out here and now
    CATALOGUE = "catalogue"  # no such size, image or region, or not here
    CLOCK = "clock"
    INPUT = "input"
    MONEY = "money"  # no credit, an account on trial
    PROTECTED = "protected"  # a protection against deleting is on
    QUOTA = "quota"  # a limit of the account
    RATE = "rate"  # too many calls
    RIGHTS = "rights"  # the credential works and lacks a right
    STATE = "state"  # locked, in use, in transition
    NETWORK = "network"  # no readable answer
    OTHER = "other"


class Fault(Exception):
    """A call that failed. The message is a sentence with the provider's own words, and no secret.

    `code` is the provider's raw code. `retry_after` is what it asked us to wait. `link` is where a
    person can mend it. `hints` names alternatives the provider told (zones with room). `ref` is
    the thing that exists, with `EXISTS_*`.
    """

    def __init__(
        self,
        sentence: str,
        *,
        outcome: Outcome,
        topic: Topic = Topic.OTHER,
        code: str = "",
        retry_after: datetime.timedelta | None = None,
        link: str | None = None,
        hints: tuple[str, ...] = (),
        ref: str | None = None,
    ) -> None:
        super().__init__(sentence)
        self.outcome = outcome
        self.topic = topic
        self.code = code
        self.retry_after = retry_after
        self.link = link
        self.hints = hints
        self.ref = ref


class UnreadableRef(Fault, ValueError):
    """What was stored, told or typed as something's id is none here. Nothing was sent.

    Also a `ValueError`, so that an answer that holds such a thing is one out of shape.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(
            sentence,
            outcome=Outcome.NOT_DONE_PERMANENT,
            topic=Topic.INPUT,
            code="unreadable-ref",
        )


def require_ref(pattern: re.Pattern[str], ref: str, *, provider: str, what: str = "machine") -> str:
    """The id of this kind of thing as it may stand in an address; raises `UnreadableRef`."""
    if not pattern.fullmatch(ref):
        raise UnreadableRef(f"{ref!r} is no id of a {what} at {provider}.")
    return ref


def clock_fault(server_date: datetime.datetime, *, clock: clock_kit.Clock) -> Fault:
    """What to say when a signature is refused for its time; `server_date` is the answer's Date."""
    minutes = round((clock.now() - server_date).total_seconds() / 60)
    side = "ahead" if minutes > 0 else "behind"
    return Fault(
        f"This machine's clock is {abs(minutes)} minutes {side} of the provider's. "
        "Set it (timedatectl status), then everything goes on by itself.",
        outcome=Outcome.CLOCK,
        topic=Topic.CLOCK,
    )
