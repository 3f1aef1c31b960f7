"""How an answer is read: by code first, then by status, and never as more than it says."""

import datetime

import pytest

from provisioning import answers, outcomes
from runtime_kit import clock as clock_kit

Outcome, Topic = outcomes.Outcome, outcomes.Topic
NOW = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)
TABLE = {
    "quota": answers.Verdict(
        outcome=Outcome.NOT_DONE_PERMANENT, topic=Topic.QUOTA, link="https://limits.example"
    ),
    "sold_out": answers.Verdict(outcome=Outcome.NOT_DONE_RETRYABLE, topic=Topic.CAPACITY),
    "late": answers.Verdict(outcome=Outcome.UNKNOWN, topic=Topic.NETWORK),
    "expired": answers.Verdict(outcome=Outcome.CLOCK, topic=Topic.CLOCK),
}


def clock() -> clock_kit.ManualClock:
    return clock_kit.ManualClock(NOW)


def fault(
    status: int,
    *,
    code: str = "",
    message: str = "",
    headers: dict[str, str] | None = None,
    is_readable: bool = True,
    is_time_bound: bool = False,
    hide: tuple[str, ...] = (),
) -> outcomes.Fault:
    refusal = answers.Refusal(
        status=status,
        code=code,
        message=message,
        headers=headers or {},
        is_readable=is_readable,
    )
    return answers.fault_of(
        refusal,
        what="POST /machines",
        table=TABLE,
        clock=clock(),
        is_time_bound=is_time_bound,
        hide=hide,
    )


@pytest.mark.parametrize(
    ("status", "code", "outcome", "topic"),
    [
        pytest.param(500, "sold_out", Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY, id="500 EC2"),
        pytest.param(403, "quota", Outcome.NOT_DONE_PERMANENT, Topic.QUOTA, id="403 Hetzner"),
        pytest.param(422, "quota", Outcome.NOT_DONE_PERMANENT, Topic.QUOTA, id="422 DigitalOcean"),
        pytest.param(200, "sold_out", Outcome.NOT_DONE_RETRYABLE, Topic.CAPACITY, id="200 GCP"),
    ],
)
def test_the_code_beats_the_status(
    status: int, code: str, outcome: outcomes.Outcome, topic: outcomes.Topic
) -> None:
    found = fault(status, code=code)
    assert (found.outcome, found.topic, found.code) == (outcome, topic, code)


@pytest.mark.parametrize("status", [400, 402, 404, 405, 409, 410, 412, 413, 422, 423, 451])
def test_b48_an_unmapped_4xx_is_permanent(status: int) -> None:
    assert fault(status, code="SomethingNewExceeded").outcome is Outcome.NOT_DONE_PERMANENT


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 520, 599])
def test_b48_an_unmapped_5xx_is_unknown(status: int) -> None:
    assert fault(status, code="SomethingNewFailed").outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("status", [408, 425, 301, 302, 307, 308, 0])
def test_what_is_no_answer_to_the_question_is_unknown(status: int) -> None:
    assert fault(status).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
def test_a_page_of_some_proxys_is_unknown(status: int) -> None:
    assert fault(status, is_readable=False).outcome is Outcome.UNKNOWN


def test_a_page_cannot_carry_a_code() -> None:
    assert fault(403, code="quota", is_readable=False).outcome is Outcome.UNKNOWN


def test_a_call_too_many_had_no_effect_even_if_a_proxy_says_so() -> None:
    found = fault(429, is_readable=False)
    assert (found.outcome, found.topic) == (Outcome.NOT_DONE_RETRYABLE, Topic.RATE)


def test_a_refused_credential_is_lost_and_a_missing_right_is_not() -> None:
    assert (fault(401).outcome, fault(401).topic) == (Outcome.AUTH_LOST, Topic.AUTH)
    assert (fault(403).outcome, fault(403).topic) == (Outcome.NOT_DONE_PERMANENT, Topic.RIGHTS)


@pytest.mark.parametrize(
    ("date", "words"),
    [
        pytest.param("Tue, 01 Dec 2026 12:10:00 GMT", "10 minutes behind", id="behind"),
        pytest.param("Tue, 01 Dec 2026 11:50:00 GMT", "10 minutes ahead", id="ahead"),
    ],
)
@pytest.mark.parametrize(("status", "code"), [(401, ""), (403, "expired")])
def test_b80_a_signature_refused_for_its_time_blames_the_clock(
    status: int, code: str, date: str, words: str
) -> None:
    found = fault(status, code=code, headers={"date": date}, is_time_bound=True)
    assert (found.outcome, found.topic) == (Outcome.CLOCK, Topic.CLOCK)
    assert words in str(found)


def test_b80_with_the_right_time_a_refused_credential_is_a_refused_credential() -> None:
    headers = {"date": "Tue, 01 Dec 2026 12:00:30 GMT"}
    assert fault(401, headers=headers, is_time_bound=True).outcome is Outcome.AUTH_LOST


def test_b80_a_static_token_is_never_refused_for_the_time() -> None:
    headers = {"date": "Tue, 01 Dec 2026 12:10:00 GMT"}
    assert fault(401, headers=headers).outcome is Outcome.AUTH_LOST


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after": "17"}, 17, id="seconds"),
        pytest.param({"retry-after": "Tue, 01 Dec 2026 12:01:00 GMT"}, 60, id="a date"),
        pytest.param({"retry-after": "0"}, 1, id="at once is a second"),
        pytest.param({"retry-after": "999999999"}, 3600, id="at most an hour"),
        pytest.param({"retry-after": "Tue, 01 Dec 2026 11:00:00 GMT"}, 1, id="a date gone by"),
        pytest.param({"retry-after": "soon"}, None, id="no readable wait"),
        pytest.param({}, None, id="none"),
        pytest.param(
            {
                "ratelimit-limit": "3600",
                "ratelimit-remaining": "0",
                "ratelimit-reset": str(int(NOW.timestamp()) + 90),
            },
            90,
            id="a spent budget",
        ),
        pytest.param(
            {
                "ratelimit-limit": "3600",
                "ratelimit-remaining": "1",
                "ratelimit-reset": str(int(NOW.timestamp()) + 90),
            },
            None,
            id="a budget not spent",
        ),
        pytest.param(
            {
                "ratelimit-limit": "1",
                "ratelimit-remaining": "0",
                "ratelimit-reset": "9" * 40,
            },
            None,
            id="a reset out of all time",
        ),
    ],
)
def test_the_wait_asked_for_is_read_and_bounded(
    headers: dict[str, str], seconds: int | None
) -> None:
    wait = fault(429, headers=headers).retry_after
    assert (None if wait is None else wait.total_seconds()) == seconds


def test_a_wait_until_a_date_is_measured_by_the_providers_own_clock() -> None:
    headers = {
        "date": "Tue, 01 Dec 2026 13:00:00 GMT",
        "retry-after": "Tue, 01 Dec 2026 13:00:20 GMT",
    }
    wait = fault(429, headers=headers).retry_after
    assert wait == datetime.timedelta(seconds=20)


def test_the_sentence_carries_the_providers_words_and_no_secret_line() -> None:
    first_boot = "#cloud-config\nticket: t-0123456789abcdef\n"
    found = fault(
        400,
        code="bad",
        message="invalid user_data: ticket: t-0123456789abcdef, token hz-token-0123456789",
        hide=("hz-token-0123456789", first_boot),
    )
    assert str(found) == (
        "POST /machines was answered with 400: bad: invalid user_data: …, token …"
    )


def test_the_sentence_is_one_line_and_bounded() -> None:
    found = fault(400, message="a\nb\x1b[31m\u202e" + "x" * 10_000)
    assert str(found).isprintable()
    assert len(str(found)) < 400


def test_what_failed_after_it_was_accepted_is_over_whatever_its_code() -> None:
    outcomes_of = {
        code: answers.failed("create", code=code, message="m", table=TABLE).outcome
        for code in ("sold_out", "late", "brand_new", "")
    }
    assert outcomes_of == {
        "sold_out": Outcome.NOT_DONE_RETRYABLE,
        "late": Outcome.NOT_DONE_PERMANENT,
        "brand_new": Outcome.NOT_DONE_PERMANENT,
        "": Outcome.NOT_DONE_PERMANENT,
    }


def test_an_empty_body_is_nothing_and_text_is_no_json() -> None:
    assert answers.parsed(b" \n") is None
    with pytest.raises(ValueError, match="Expecting"):
        answers.parsed(b"<html>")


@pytest.mark.parametrize(
    ("left", "most", "budget"),
    [
        ("7", "3600", answers.Budget(left=7, most=3600)),
        ("-1", "3600", None),
        ("7", "", None),
        ("7" * 12, "1", None),
    ],
)
def test_a_budget_is_read_where_both_numbers_stand(
    left: str, most: str, budget: answers.Budget | None
) -> None:
    found = answers.budget_of({"ratelimit-remaining": left, "ratelimit-limit": most})
    assert found == budget


@pytest.mark.parametrize(
    ("outcome", "topic", "read"),
    [
        (Outcome.NOT_DONE_RETRYABLE, Topic.NETWORK, Outcome.UNKNOWN),
        (Outcome.NOT_DONE_PERMANENT, Topic.RIGHTS, Outcome.UNKNOWN),
        (Outcome.NOT_DONE_PERMANENT, Topic.OTHER, Outcome.UNKNOWN),
        (Outcome.NOT_DONE_RETRYABLE, Topic.RATE, Outcome.NOT_DONE_RETRYABLE),
        (Outcome.AUTH_LOST, Topic.AUTH, Outcome.AUTH_LOST),
        (Outcome.UNKNOWN, Topic.NETWORK, Outcome.UNKNOWN),
    ],
)
def test_b12_a_question_that_was_not_answered_ends_no_order(
    outcome: outcomes.Outcome, topic: outcomes.Topic, read: outcomes.Outcome
) -> None:
    asked = answers.of_asking(outcomes.Fault("why", outcome=outcome, topic=topic, code="c"))
    assert (asked.outcome, asked.topic, asked.code, str(asked)) == (read, topic, "c", "why")
