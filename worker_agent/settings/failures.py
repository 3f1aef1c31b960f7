"""How the worker's programs fail: one class for each thing a person can do next.

Each failure is one sentence and an exit code from the interface's table; systemd, scripts and the
CLI read the code, people read the sentence. Nothing here decides about retries but the class.
"""

from wire_protocol import problems


class Failure(Exception):
    """Something failed; the message says what happened and what to do."""

    exit_code: problems.Exit = problems.Exit.OUR_FAULT

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message} {hint}" if hint else message)
        self.message = message
        self.hint = hint


class Misuse(Failure):
    """The input is wrong: nothing was sent or spent; correct it and run the command again."""

    exit_code = problems.Exit.INVALID


class Refused(Failure):
    """The Platform refused for good: trying again will not help."""

    exit_code = problems.Exit.REFUSED


class Conflict(Failure):
    """The machine's present state stands against it; the message names the difference."""

    exit_code = problems.Exit.CONFLICT


class NeedsOperator(Failure):
    """A person must act first; the message ends with the command to run."""

    exit_code = problems.Exit.NEEDS_OPERATOR


class NotBelieved(NeedsOperator):
    """Whoever answers for the Platform proves nothing by a trust key held here; find out why."""


class NotFound(Failure):
    """What was asked for is not there; check the address."""

    exit_code = problems.Exit.NOT_FOUND


class Temporary(Failure):
    """It may work later; run the same command again."""

    exit_code = problems.Exit.TEMPORARY


class Fault(Failure):
    """A fault of ours or of the Platform: the answer cannot be understood."""

    exit_code = problems.Exit.OUR_FAULT
