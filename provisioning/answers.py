"""What an answer of a provider means, whichever library fetched it: one reading for all drivers.

A provider's code comes first, by the driver's own table; then the status. What is not readable as
the provider's own answer (a cut, a time-out, a page of some proxy) is unknown, for a call that
changes something and for one that reads: it is no clean answer to anything.

Known limit: the sentence carries the provider's own words, in its own language.
"""

import dataclasses
import datetime
import email.utils
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import outcomes
from runtime_kit import clock as clock_kit

MOST_BYTES: Final = 16 * 2**20
"""No page of any provider comes near it (DigitalOcean's 200 droplets are 400 KB)."""
MOST_WORDS: Final = 300
"""How many characters of the provider's message a sentence carries."""
_SKEW_SECONDS: Final = 120
"""Less is no explanation: the tightest provider allows 5 minutes."""
_MOST_WAIT: Final = datetime.timedelta(hours=1)
_SHORTEST_HIDDEN: Final = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one of a provider's codes means."""

    outcome: outcomes.Outcome
    topic: outcomes.Topic
    link: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is no success. `is_readable`: its body is what the provider writes."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str]  # names in lower case
    is_readable: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many calls the provider still allows, and of how many."""

    left: int
    most: int


def fault_of(
    refusal: Refusal,
    *,
    what: str,
    table: Mapping[str, Verdict],
    clock: clock_kit.Clock,
    is_time_bound: bool = False,
    hide: Iterable[str] = (),
) -> outcomes.Fault:
    """The fault to raise. `what` names the call; `is_time_bound`: its proof depends on the clock.

    `hide` are texts (a token, first-boot data) of which no line may come back in the sentence.
    """
    verdict = _verdict(refusal, table)
    date = server_date(refusal.headers)
    looks_like_auth = verdict.outcome in {outcomes.Outcome.AUTH_LOST, outcomes.Outcome.CLOCK}
    if date is not None and looks_like_auth and is_time_bound:
        skew = abs((clock.now() - date).total_seconds())
        if verdict.outcome is outcomes.Outcome.CLOCK or skew > _SKEW_SECONDS:
            return outcomes.clock_fault(date, clock=clock)
    said = f"{refusal.code}: {refusal.message}" if refusal.code else refusal.message
    words = _plain(said, hide=hide) or "no words"
    return outcomes.Fault(
        f"{what} was answered with {refusal.status}: {words}",
        outcome=verdict.outcome,
        topic=verdict.topic,
        code=refusal.code,
        retry_after=wait_asked_for(refusal.headers, clock=clock),
        link=verdict.link,
    )


def failed(
    what: str,
    *,
    code: str,
    message: str,
    table: Mapping[str, Verdict],
    hide: Iterable[str] = (),
) -> outcomes.Fault:
    """The fault of something accepted that then failed, told in an answer that was a success.

    No status is told there, and it is over: an unmapped code is permanent, and so is one that
    would be unknown as an answer to a call.
    """
    verdict = table.get(code)
    if verdict is None or verdict.outcome is outcomes.Outcome.UNKNOWN:
        verdict = Verdict(outcome=outcomes.Outcome.NOT_DONE_PERMANENT, topic=outcomes.Topic.OTHER)
    said = f"{code}: {message}" if code else message
    return outcomes.Fault(
        f"{what} was accepted and then failed: {_plain(said, hide=hide) or 'no words'}",
        outcome=verdict.outcome,
        topic=verdict.topic,
        code=code,
        link=verdict.link,
    )


def of_asking(fault: outcomes.Fault) -> outcomes.Fault:
    """The fault of asking how something accepted is doing, which says nothing about that thing.

    Whatever kept the question from being answered (no connection, a right taken away, a refusal)
    would otherwise read as the order's own end. A lost credential stays one, and so does a call
    too many.
    """
    ends = {outcomes.Outcome.NOT_DONE_RETRYABLE, outcomes.Outcome.NOT_DONE_PERMANENT}
    if fault.outcome not in ends or fault.topic is outcomes.Topic.RATE:
        return fault
    return outcomes.Fault(
        str(fault),
        outcome=outcomes.Outcome.UNKNOWN,
        topic=fault.topic,
        code=fault.code,
        retry_after=fault.retry_after,
        link=fault.link,
    )


def unreachable(what: str, reason: str) -> outcomes.Fault:
    """No connection came about, so nothing was sent."""
    return outcomes.Fault(
        f"{what} was not sent: no connection ({_plain(reason)}).",
        outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
        topic=outcomes.Topic.NETWORK,
    )


def unanswered(what: str, reason: str) -> outcomes.Fault:
    """It was sent, and no readable answer came back."""
    return outcomes.Fault(
        f"{what} was sent and not answered readably ({_plain(reason)}).",
        outcome=outcomes.Outcome.UNKNOWN,
        topic=outcomes.Topic.NETWORK,
    )


def parsed(body: bytes) -> Any:
    """The JSON of an answer; None for an empty one.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(body) if body.strip() else None


def server_date(headers: Mapping[str, str]) -> datetime.datetime | None:
    """When the provider says it is; None where it does not, or not readably."""
    return _date(headers.get("date", ""))


def wait_asked_for(
    headers: Mapping[str, str], *, clock: clock_kit.Clock
) -> datetime.timedelta | None:
    """How long it asks us to wait: `Retry-After`, else until a spent budget is renewed."""
    now = server_date(headers) or clock.now()
    asked = headers.get("retry-after", "").strip()
    moment = _date(asked)
    if asked.isdecimal():
        wait = datetime.timedelta(seconds=min(int(asked), int(_MOST_WAIT.total_seconds())))
    elif moment is not None:
        wait = moment - now
    else:
        budget, reset = budget_of(headers), headers.get("ratelimit-reset", "")
        if budget is None or budget.left > 0 or not reset.isdecimal() or len(reset) > 12:
            return None
        wait = datetime.datetime.fromtimestamp(int(reset), datetime.UTC) - now
    return max(datetime.timedelta(seconds=1), min(wait, _MOST_WAIT))


def budget_of(headers: Mapping[str, str]) -> Budget | None:
    """What is left of the hour's calls, where the provider says it."""
    left, most = headers.get("ratelimit-remaining", ""), headers.get("ratelimit-limit", "")
    if not (left.isdecimal() and most.isdecimal()) or max(len(left), len(most)) > 9:
        return None
    return Budget(left=int(left), most=int(most))


def _verdict(refusal: Refusal, table: Mapping[str, Verdict]) -> Verdict:
    outcome, topic = outcomes.Outcome, outcomes.Topic
    if refusal.is_readable and refusal.code in table:
        return table[refusal.code]
    if refusal.status == 429:
        return Verdict(outcome=outcome.NOT_DONE_RETRYABLE, topic=topic.RATE)
    if not refusal.is_readable or refusal.status in {408, 425} or not 400 <= refusal.status < 500:
        return Verdict(outcome=outcome.UNKNOWN, topic=topic.NETWORK)  # a redirect too: not followed
    if refusal.status == 401:
        return Verdict(outcome=outcome.AUTH_LOST, topic=topic.AUTH)
    if refusal.status == 403:
        return Verdict(outcome=outcome.NOT_DONE_PERMANENT, topic=topic.RIGHTS)
    return Verdict(outcome=outcome.NOT_DONE_PERMANENT, topic=topic.OTHER)


def _date(text: str) -> datetime.datetime | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def _plain(text: str, *, hide: Iterable[str] = ()) -> str:
    for secret in hide:
        for line in [secret, *secret.splitlines()]:
            if len(line.strip()) >= _SHORTEST_HIDDEN:
                text = text.replace(line.strip(), "…")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"
