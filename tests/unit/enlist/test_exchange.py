"""The SDK's rules without I/O: what is asked again, what is not, and what each answer becomes."""

import random
from typing import Any

import pytest

from enlist import calls, enrollments, errors, exchange, nodes, tokens
from runtime_kit import retry, secret
from wire_protocol import problems

QUICK = retry.Schedule(first_seconds=1.0, cap_seconds=2.0, tries=3)
LOST = exchange.Lost(sentence="It broke.", sent=True)
UNSENT = exchange.Lost(sentence="Nobody there.", sent=False)


def reply(status: int, content: bytes = b"{}", **headers: str) -> exchange.Reply:
    return exchange.Reply(status=status, headers=headers, content=content)


def refusal(code: str, retry_after: int | None = None) -> exchange.Reply:
    found = problems.Problem(
        code=code, detail="Because.", request_id="req-1", retry_after=retry_after
    )
    return reply(found.meaning.status, found.to_json())


def play(
    call: calls.Call[Any], *outcomes: exchange.Outcome
) -> tuple[list[exchange.Step], Any, errors.EnlistError | None]:
    """Every step until the end, with the document or the error."""
    running = exchange.exchange(
        call, token=secret.Secret("t"), key="k", chance=random.Random(1), schedule=QUICK
    )
    steps: list[exchange.Step] = [next(running)]
    coming = list(outcomes)
    try:
        while True:
            waited = isinstance(steps[-1], exchange.Wait)
            steps.append(running.send(None if waited else coming.pop(0)))
    except StopIteration as end:
        return steps, end.value, None
    except errors.EnlistError as error:
        return steps, None, error


def kinds(steps: list[exchange.Step]) -> list[str]:
    return ["wait" if isinstance(step, exchange.Wait) else "ask" for step in steps]


AGAIN = {
    "a read after a lost answer": (nodes.get("a"), LOST),
    "a creation after a lost answer, by its key": (enrollments.create("a"), LOST),
    "a label change, which says the end state": (nodes.label("a", labels={"k": "v"}), LOST),
    "a removal of which nothing was sent": (nodes.remove("a"), UNSENT),
    "a removal that the Platform was too busy for": (nodes.remove("a"), refusal("store-busy")),
    "a call past the limit of failures": (nodes.get("a"), refusal("too-many", 1)),
}


@pytest.mark.parametrize("case", AGAIN.values(), ids=AGAIN)
def test_is_asked_again(case: tuple[calls.Call[Any], exchange.Outcome]) -> None:
    call, outcome = case
    steps, document, error = play(call, outcome, reply(200))
    assert (kinds(steps), document, error) == (["ask", "wait", "ask"], {}, None)


ONCE = {
    "a removal whose answer was lost": (nodes.remove("a"), LOST),
    "a revocation whose answer was lost": (tokens.revoke("a"), LOST),
    "what the Platform refuses for good": (nodes.get("a"), refusal("not-found")),
    "what would have to wait for an hour": (nodes.get("a"), refusal("too-many", 3600)),
}


@pytest.mark.parametrize("case", ONCE.values(), ids=ONCE)
def test_is_asked_once(case: tuple[calls.Call[Any], exchange.Outcome]) -> None:
    call, outcome = case
    steps, _, error = play(call, outcome)
    assert kinds(steps) == ["ask"]
    assert error is not None


def test_tries_are_bounded() -> None:
    steps, _, error = play(nodes.get("a"), UNSENT, UNSENT, UNSENT, UNSENT)
    assert kinds(steps) == ["ask", "wait", "ask", "wait", "ask"]
    assert isinstance(error, errors.Temporary)


def test_a_wait_is_never_shorter_than_the_platform_asked_for() -> None:
    steps, _, _ = play(nodes.get("a"), refusal("too-many", 7), reply(200))
    assert isinstance(steps[1], exchange.Wait)
    assert 7 <= steps[1].seconds <= 8


def test_all_tries_of_a_creation_carry_one_key() -> None:
    steps, _, _ = play(tokens.create("n", permissions=["nodes.view"]), LOST, reply(201))
    asked = [step for step in steps if isinstance(step, exchange.Request)]
    assert [step.headers["idempotency-key"] for step in asked] == ["k", "k"]


def test_only_creations_carry_a_key() -> None:
    steps, _, _ = play(nodes.remove("a"), reply(200))
    assert isinstance(steps[0], exchange.Request)
    assert "idempotency-key" not in steps[0].headers


def test_a_request_prints_neither_its_token_nor_its_body() -> None:
    steps, _, _ = play(enrollments.enroll("a", token="ent_x", certificate_pem="pem"), reply(200))
    assert "ent_x" not in repr(steps[0])
    assert "Bearer" not in repr(steps[0])


CLASSES = {
    "enrollment-refused": errors.Refused,
    "node-in-use": errors.Conflict,
    "not-found": errors.NotFound,
    "invalid": errors.Invalid,
    "not-signed-in": errors.NotPermitted,
    "not-permitted": errors.NotPermitted,
    "worker-newer": errors.NeedsOperator,
    "internal": errors.Fault,
}


@pytest.mark.parametrize("code", CLASSES)
def test_each_problem_becomes_the_error_named_by_what_to_do(code: str) -> None:
    _, _, error = play(nodes.get("a"), *[refusal(code, 3600)])
    assert type(error) is CLASSES[code]
    assert error.exit_code == problems.CODES[code].exit
    assert (error.code, error.request_id) == (code, "req-1")


def test_a_fault_of_the_platform_names_its_report() -> None:
    _, _, error = play(nodes.get("a"), refusal("internal"))
    assert str(error) == "Because. Report id: req-1"


def test_a_redirect_is_not_followed_and_is_invalid_input() -> None:
    _, _, error = play(nodes.get("a"), reply(302, location="https://elsewhere/"))
    assert type(error) is errors.Invalid
    assert "https://elsewhere/" in str(error)


def test_an_answer_that_is_not_json_is_a_fault() -> None:
    _, _, error = play(nodes.get("a"), reply(200, b"<html>"))
    assert type(error) is errors.Fault


def test_every_error_class_is_one_sentence() -> None:
    for name in dir(errors):
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, errors.EnlistError):
            assert str(found.__doc__).endswith(".")
            assert "\n" not in str(found.__doc__)


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_an_id_cannot_leave_its_path(text: str) -> None:
    with pytest.raises(errors.Invalid):
        nodes.get(text)


def test_an_id_is_one_segment_of_the_path() -> None:
    assert nodes.get("a/../b?c").target == "/api/v1/nodes/a%2F..%2Fb%3Fc"
