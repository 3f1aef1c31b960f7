"""Server-sent events without I/O: bytes in, events out, and when to connect again.

A `Tail` keeps the number of the last event it handed out, so that a new connection resumes behind
it and nothing is lost or told twice. A client feeds it what it reads and asks it what to do next.
Follows the WHATWG rules for event streams as far as the Platform uses them: `id`, `event`,
`data`, comments. Known limit: an event of more than 256 KiB ends the stream as a fault.
"""

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from enlist import calls, errors, exchange
from runtime_kit import retry, secret

if TYPE_CHECKING:
    from wire_protocol import admin

SILENCE_SECONDS = 60.0  # the Platform sends a comment every 15 s, so a minute means it is gone
_MAX_EVENT_BYTES = 262_144
_SCHEDULE = retry.Schedule(first_seconds=0.5, cap_seconds=10.0, tries=8)


def parse(document: Any) -> "admin.Event":
    """The typed event."""
    # Here, since models cost more than a stream of plain documents needs.
    from wire_protocol import admin  # noqa: PLC0415

    return admin.Event.model_validate(document)


class Tail:
    """One reader's place in the stream of events.

    `wait_seconds` is how long to wait before connecting again, `ended` whether there is nothing
    more to read.
    """

    def __init__(
        self,
        *,
        after: int | None,
        infra: str | None,
        token: secret.Secret | None,
        chance: random.Random,
        follow: bool = True,
        schedule: retry.Schedule = _SCHEDULE,
    ) -> None:
        self.after = after
        self.ended = False
        self.wait_seconds = 0.0
        self._infra = infra
        self._token = token
        self._chance = chance
        self._follow = follow
        self._schedule = schedule
        self._waits = schedule.waits(chance=chance)
        self._buffer = b""

    @property
    def target(self) -> str:
        """What to ask for now."""
        call: calls.Call[None] = calls.Call(
            method="GET",
            path="/events",
            answer="",
            query=calls.given(
                after=None if self.after is None else str(self.after),
                follow=None if self._follow else "false",
                infra=self._infra,
            ),
        )
        return call.target

    @property
    def headers(self) -> dict[str, str]:
        """With these headers."""
        return {
            **exchange.headers(token=self._token, accept="text/event-stream"),
            "accept-encoding": "identity",
            "cache-control": "no-store",
        }

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """The events that are complete with these bytes, as JSON documents."""
        self._buffer = (self._buffer + chunk).replace(b"\r\n", b"\n")
        while (end := self._buffer.find(b"\n\n")) >= 0:
            block, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
            document = _read(block)
            if document is None:
                continue
            self._succeeded()
            self.after = document["seq"]
            yield document
        if len(self._buffer) > _MAX_EVENT_BYTES:
            raise errors.Fault("The Platform sent an event that is too large.")

    def finished(self) -> None:
        """The Platform ended the stream: done, or connect again when following."""
        self._buffer = b""
        if not self._follow:
            self.ended = True
            return
        self._next_wait(errors.Temporary("The Platform keeps ending the stream of events."))

    def refused(self, reply: exchange.Reply) -> None:
        """The Platform answered with a problem; raises it unless waiting may help."""
        failure = exchange.failure_of(reply)
        if not isinstance(failure, errors.Temporary):
            raise failure
        self._next_wait(failure)
        self.wait_seconds += min(failure.retry_after or 0, SILENCE_SECONDS)

    def lost(self, loss: exchange.Lost) -> None:
        """The connection broke; raises when it has done so too often in a row."""
        self._buffer = b""
        self._next_wait(errors.Temporary(loss.sentence))

    def _succeeded(self) -> None:
        self.wait_seconds = 0.0
        self._waits = self._schedule.waits(chance=self._chance)

    def _next_wait(self, failure: errors.Temporary) -> None:
        wait = next(self._waits, None)
        if wait is None:
            raise failure
        self.wait_seconds = wait


def _read(block: bytes) -> dict[str, Any] | None:
    data = [
        line.removeprefix(b"data:").removeprefix(b" ")
        for line in block.split(b"\n")
        if line.startswith(b"data:")
    ]
    if not data:
        return None
    try:
        document = json.loads(b"\n".join(data))
    except (ValueError, RecursionError) as error:
        raise errors.Fault("The Platform sent an event that is not JSON.") from error
    if not isinstance(document, dict) or not isinstance(document.get("seq"), int):
        raise errors.Fault("The Platform sent an event without a sequence number.")
    return document
