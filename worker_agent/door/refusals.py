"""From an answer that is no success to the failure a person can act on.

The code table in `wire_protocol.problems` decides about the exit code; here stand the words that
only this side can add, and what a foreign server's answer means.
"""

from runtime_kit import failures as network
from wire_protocol import problems
from worker_agent.settings import failures

_REDIRECTS = range(300, 400)
_SHOWN = 300

_BY_EXIT: dict[problems.Exit, type[failures.Failure]] = {
    problems.Exit.INVALID: failures.Misuse,
    problems.Exit.REFUSED: failures.Refused,
    problems.Exit.NOT_PERMITTED: failures.Refused,
    problems.Exit.CONFLICT: failures.Conflict,
    problems.Exit.NOT_FOUND: failures.NotFound,
    problems.Exit.NEEDS_OPERATOR: failures.NeedsOperator,
    problems.Exit.TEMPORARY: failures.Temporary,
}


def of_network(error: network.NetworkFailure, *, hint: str) -> failures.Failure:
    """The failure for a connection that did not come about; `hint` ends in the command to run."""
    message = str(error).rstrip(".") + "."
    if error.kind is network.Kind.TRANSIENT:
        return failures.Temporary(message)
    if error.kind is network.Kind.NEEDS_OPERATOR:
        return failures.NeedsOperator(message, hint=hint)
    return failures.Misuse(message)


def of_answer(
    status: int, body: bytes, *, where: str, location: str | None = None
) -> failures.Failure:
    """The failure for an answer of the Platform, or of whoever answers at that address."""
    if status in _REDIRECTS:
        target = f" to {location[:_SHOWN]!r}" if location else ""
        return failures.Misuse(
            f"{where} redirects{target} ({status}). Redirects are never followed, because the "
            "token would go to somebody who was not authenticated. Give the address itself."
        )
    problem = problems.parse(status, body)
    kind = _BY_EXIT.get(problem.meaning.exit, failures.Fault)
    if kind is failures.NotFound:
        return kind(
            f"{where} answers, but it is no enrollment listener of a Platform ({status}).",
            hint="Check the address and the port.",
        )
    detail = problem.detail.strip()[:_SHOWN] or problem.meaning.title
    text = f"{where} answered {status}: {detail}"
    if problem.request_id:
        text = f"{text.rstrip('.')}. Its request id is {problem.request_id}."
    return kind(text)


def is_success(status: int) -> bool:
    """Whether the status is a success."""
    return status in (200, 201)
