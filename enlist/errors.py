"""What can go wrong, named by what the caller does next; each class is one sentence.

Every error carries the problem's `code`, its `kind` (transient, permanent, needs-operator), the
Platform's `request_id`, and `exit_code`, with which the command line ends. `str(error)` is a
sentence for people. Not for: retries; those that may help have been made before one is raised.
"""

from typing import ClassVar

from wire_protocol import problems


class EnlistError(Exception):
    """A call did not do what was asked: see which kind of error it is."""

    exit_code: ClassVar[int] = problems.Exit.OUR_FAULT

    def __init__(
        self,
        sentence: str,
        *,
        code: str = "",
        request_id: str = "",
        retry_after: int | None = None,
        fields: dict[str, object] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.fields = dict(fields or {})

    @property
    def kind(self) -> problems.Kind:
        """Which of the three: transient, permanent or needs-operator."""
        if self.code in problems.CODES:
            return problems.CODES[self.code].kind
        return problems.Kind.PERMANENT


class Fault(EnlistError):
    """The Platform failed by a fault of its own: report it with the request id."""

    exit_code = problems.Exit.OUR_FAULT


class Invalid(EnlistError):
    """The input is out of shape and nothing was done: correct what the message names."""

    exit_code = problems.Exit.INVALID


class Refused(EnlistError):
    """The enrollment was refused and trying again will not help: ask for a new token."""

    exit_code = problems.Exit.REFUSED


class Conflict(EnlistError):
    """The present state does not allow it: look at the state and decide."""

    exit_code = problems.Exit.CONFLICT


class NotFound(EnlistError):
    """There is no such thing: check the name."""

    exit_code = problems.Exit.NOT_FOUND


class NeedsOperator(EnlistError):
    """A person must act first: the message ends with what to run."""

    exit_code = problems.Exit.NEEDS_OPERATOR

    @property
    def kind(self) -> problems.Kind:
        """Always needs-operator."""
        return problems.Kind.NEEDS_OPERATOR


class NotPermitted(EnlistError):
    """Not signed in, or the token may not do this: use one with the permission it names."""

    exit_code = problems.Exit.NOT_PERMITTED


class Temporary(EnlistError):
    """It did not work just now: the same call may work later."""

    exit_code = problems.Exit.TEMPORARY

    @property
    def kind(self) -> problems.Kind:
        """Always transient."""
        return problems.Kind.TRANSIENT


_BY_EXIT: dict[problems.Exit, type[EnlistError]] = {
    problems.Exit.OUR_FAULT: Fault,
    problems.Exit.INVALID: Invalid,
    problems.Exit.REFUSED: Refused,
    problems.Exit.CONFLICT: Conflict,
    problems.Exit.NOT_FOUND: NotFound,
    problems.Exit.NEEDS_OPERATOR: NeedsOperator,
    problems.Exit.NOT_PERMITTED: NotPermitted,
    problems.Exit.TEMPORARY: Temporary,
}


def of_problem(problem: problems.Problem) -> EnlistError:
    """The error that stands for the Platform's problem document."""
    meaning = problem.meaning
    sentence = problem.detail or meaning.title
    if meaning.exit is problems.Exit.OUR_FAULT and problem.request_id:
        sentence = f"{sentence} Report id: {problem.request_id}"
    return _BY_EXIT[meaning.exit](
        sentence,
        code=problem.code,
        request_id=problem.request_id,
        retry_after=problem.retry_after,
        fields=problem.fields,
    )
