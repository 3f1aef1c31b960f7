"""Why the helper does not do what was asked: a code for programs and a sentence for people.

None of them tells the asker more than it could know: it sits on the same machine.
"""

import enum


class Code(enum.StrEnum):
    """All the codes there are."""

    MALFORMED = "malformed"
    NOT_PERMITTED = "not-permitted"
    NO_TRUST = "no-trust"  # the helper was never told whom to trust: root joins, or joins again
    NOT_SIGNED = "not-signed"
    REFUSED = "refused"  # another node's, expired, replayed
    NO_ARCHIVE = "no-archive"
    BAD_ARCHIVE = "bad-archive"
    OLDER = "older"
    NOTHING_TO_GO_BACK_TO = "nothing-to-go-back-to"
    BUSY = "busy"
    FAILED = "failed"  # the machine could not do it: no room, a program that is missing


class Refused(Exception):
    """It is not done, and nothing has changed; the message says why."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(printable(detail))
        self.code = code


def printable(text: str) -> str:
    """What a file, a program or the Agent's journal says, as one line for a log and a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
