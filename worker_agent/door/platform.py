"""Asks the Platform one question over a connection that has been authenticated first.

One rule for every leg: by pin, by CA file or by public roots (`runtime_kit.server_trust`), through
the proxy of the environment, with no redirect followed. The token, where there is one, stands in
the body of a request that is written only after the other end has been proved.
"""

import asyncio
import dataclasses
import datetime
import email.utils
import os
from collections.abc import Callable, Mapping

from runtime_kit import clock as clock_kit
from runtime_kit import failures, pinned_handshake, server_trust
from runtime_kit.http1 import client

OPEN_SECONDS = 15.0
ANSWER_SECONDS = 20.0  # the Platform dials a listening Agent for 3 s before it answers
PATIENCE_SECONDS = 25.0  # for all tries of one command: a clean refusal is owed within 30


class Silent(failures.NetworkFailure):
    """The time for everything together is over; trying again later may help."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One POST; its body may hold a secret and never prints."""

    path: str
    body: bytes = dataclasses.field(repr=False)
    max_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, with what only the connection knows."""

    status: int
    body: bytes = dataclasses.field(repr=False)
    location: str | None
    retry_after: float | None
    clock_ahead: datetime.timedelta | None  # this machine's clock against the Platform's, ±1 s
    leaf: pinned_handshake.Leaf


def _nothing(_leaf: pinned_handshake.Leaf) -> None:
    """Nothing happens between the proof and the first byte."""


async def ask(
    url: str,
    *,
    question: Question,
    trust: server_trust.ServerTrust | None,
    clock: clock_kit.Clock,
    within_s: float,
    environment: Mapping[str, str] = os.environ,
    on_proved: Callable[[pinned_handshake.Leaf], None] = _nothing,
) -> Answer:
    """Asks and returns whatever was answered, a refusal or a redirect included.

    Without `trust` the other end is not proved: for the empty trust question alone. `within_s` is
    what is left of the caller's patience; each step has a limit of its own as well.

    Raises `runtime_kit.failures.NetworkFailure`, whose kind says whether trying again may help.
    """
    try:
        async with asyncio.timeout(within_s):
            return await _ask(
                url,
                question=question,
                trust=trust,
                clock=clock,
                environment=environment,
                on_proved=on_proved,
            )
    except TimeoutError as error:
        raise Silent(f"{url} did not answer in time") from error


async def _ask(
    url: str,
    *,
    question: Question,
    trust: server_trust.ServerTrust | None,
    clock: clock_kit.Clock,
    environment: Mapping[str, str],
    on_proved: Callable[[pinned_handshake.Leaf], None],
) -> Answer:
    if trust is None:
        opened = await server_trust.open_unauthenticated(
            url, timeout_s=OPEN_SECONDS, environment=environment
        )
    else:
        opened = await server_trust.open_authenticated(
            url, trust=trust, timeout_s=OPEN_SECONDS, environment=environment
        )
    async with opened as connection:
        on_proved(connection.leaf)
        got = await client.exchange(
            connection.reader,
            connection.writer,
            method="POST",
            target=question.path,
            host=connection.origin.authority,
            headers={"content-type": "application/json", "accept": "application/json"},
            body=question.body,
            timeout_s=ANSWER_SECONDS,
            max_body_bytes=question.max_bytes,
        )
    return Answer(
        status=got.status,
        body=got.body,
        location=got.headers.get("location"),
        retry_after=_seconds(got.headers.get("retry-after")),
        clock_ahead=_ahead(got.headers.get("date"), now=clock.now()),
        leaf=connection.leaf,
    )


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; its date form is not used by the Platform."""
    return float(text) if text is not None and text.isdecimal() and len(text) <= 6 else None


def _ahead(date: str | None, *, now: datetime.datetime) -> datetime.timedelta | None:
    if date is None:
        return None
    try:
        theirs = email.utils.parsedate_to_datetime(date)
        if theirs.tzinfo is None:
            theirs = theirs.replace(tzinfo=datetime.UTC)
        return now - theirs.astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # a stranger may write any number into it
        return None
