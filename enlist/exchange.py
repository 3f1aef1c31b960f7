"""From a call to its answer, without I/O: which request, what to make of the reply, when again.

`exchange` is a generator: it yields a `Request` and is sent a `Reply` or a `Lost`; it yields a
`Wait` and is sent nothing; it returns the JSON document or raises an error of `errors.py`. The
sync and the async client drive the same generator, so that no rule stands twice.

Retries: with full jitter, bounded, and only where a second try does no harm: nothing had been
sent, or the Platform said that it did nothing (429, 503), or the call is repeatable. Redirects
are never followed.
"""

import dataclasses
import json
import random
from collections.abc import Generator, Mapping
from typing import Any

from enlist import calls, errors
from runtime_kit import retry, secret
from wire_protocol import problems, product

MAX_ANSWER_BYTES = 64 * 1024 * 1024  # 100,000 nodes at some 600 bytes each, never more
SCHEDULE = retry.Schedule(first_seconds=0.25, cap_seconds=2.0, tries=4)
_LONGEST_WAIT_SECONDS = 30  # of a Retry-After; beyond that the caller decides
_REDIRECTS = range(300, 400)
SUCCESSES = range(200, 300)
_NO_CONTENT = 204


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request to make now."""

    method: str
    target: str
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    content: bytes | None = dataclasses.field(repr=False, default=None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The Platform's answer, read whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """No answer came. `sent` is False where it is certain that nothing had been sent."""

    sentence: str
    sent: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait that many seconds before the next try."""

    seconds: float


Step = Request | Wait
Outcome = Reply | Lost | None


def exchange(
    call: calls.Call[Any],
    *,
    token: secret.Secret | None,
    key: str,
    chance: random.Random,
    schedule: retry.Schedule = SCHEDULE,
) -> Generator[Step, Outcome, Any]:
    """Asks until there is an answer, or until trying again would be wrong."""
    request = request_of(call, token=token, key=key)
    waits = schedule.waits(chance=chance)
    while True:
        outcome = yield request
        failure, harmless = _judge(outcome, call=call)
        if failure is None:
            assert isinstance(outcome, Reply)  # noqa: S101 - only a reply is judged to be a success
            return _document(outcome)
        wait = next(waits, None) if harmless else None
        if wait is None or (failure.retry_after or 0) > _LONGEST_WAIT_SECONDS:
            raise failure
        yield Wait(seconds=max(wait, (failure.retry_after or 0) + wait))


def headers(*, token: secret.Secret | None, accept: str = "application/json") -> dict[str, str]:
    """The headers of every request."""
    found = {"accept": accept, "user-agent": f"enlist/{product.VERSION}"}
    if token:
        found["authorization"] = f"Bearer {token.reveal()}"
    return found


def failure_of(reply: Reply) -> errors.EnlistError:
    """The error that stands for an answer that is no success."""
    if reply.status in _REDIRECTS:
        return errors.Invalid(
            f"The address answers with a redirect to {reply.headers.get('location', '?')[:200]}, "
            "which is never followed: give the Platform's own address with --platform."
        )
    problem = problems.parse(reply.status, reply.content)
    if problem.retry_after is None and reply.headers.get("retry-after", "").isdigit():
        waited = int(reply.headers["retry-after"][:9])
        problem = dataclasses.replace(problem, retry_after=waited)
    return errors.of_problem(problem)


def request_of(call: calls.Call[Any], *, token: secret.Secret | None, key: str) -> Request:
    """The request for a call; `key` is sent where the call is keyed."""
    fields = headers(token=token)
    content = None
    if call.body is not None:
        content = json.dumps(call.body, separators=(",", ":")).encode()
        fields["content-type"] = "application/json"
    if call.keyed:
        fields["idempotency-key"] = key
    return Request(method=call.method, target=call.target, headers=fields, content=content)


def _judge(outcome: Outcome, *, call: calls.Call[Any]) -> tuple[errors.EnlistError | None, bool]:
    """The failure, if it is one, and whether another try does no harm."""
    if isinstance(outcome, Reply):
        if outcome.status in SUCCESSES:
            return None, False
        failure = failure_of(outcome)
        return failure, isinstance(failure, errors.Temporary)
    if isinstance(outcome, Lost):
        harmless = not outcome.sent or call.repeatable or call.keyed or call.method == "GET"
        return errors.Temporary(outcome.sentence, code="unavailable"), harmless
    raise TypeError("A request is answered with a reply or a loss.")


def _document(reply: Reply) -> Any:
    if reply.status == _NO_CONTENT or not reply.content:
        return None
    try:
        return json.loads(reply.content)
    except (ValueError, RecursionError) as error:
        raise errors.Fault("The Platform's answer is not JSON.", code="internal") from error
