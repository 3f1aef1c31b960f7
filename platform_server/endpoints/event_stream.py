"""`/events`: server-sent events, resumable by number.

A reader resumes with `Last-Event-ID` (WHATWG server-sent events) or `?after=`. New events are
found by looking once a second, which also finds those of other engines. Readers are bounded; each
reader's pages are bounded; a comment every 15 s shows that the line lives, and as often the
reader's token is asked for again: revoked or expired, the stream ends. Known limit: a reader
that returns after `[audit] event_days` has missed events and sees it by the gap in the numbers.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator
from typing import Annotated, Final

import pydantic

from platform_server.access import tokens
from platform_server.audit import events
from platform_server.endpoints import calls, measures, refusals, routes
from wire_protocol import admin

MEDIA_TYPE: Final = "text/event-stream"
_PAGE: Final = 200
_LOOK_SECONDS: Final = 1.0
_COMMENT_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 10
_LAST_EVENT_ID: Final = "last-event-id"
_MOST: Final = 2**63 - 1


class EventsQuery(pydantic.BaseModel):
    """Where to begin and whether to stay."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    after: Annotated[
        int | None,
        pydantic.Field(ge=0, le=_MOST, description="Only events behind this number."),
    ] = None
    follow: Annotated[
        bool, pydantic.Field(description="false ends the stream with the last event there is.")
    ] = True
    infra: Annotated[
        str | None,
        pydantic.Field(
            pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="Only this scope."
        ),
    ] = None


class EventStream:
    """Serves readers until the engine drains."""

    def __init__(self, *, most: int, draining: asyncio.Event, meter: measures.Meter) -> None:
        self._most = most
        self._draining = draining
        self._meter = meter
        self._readers = 0

    async def __call__(self, call: calls.Call[None, EventsQuery]) -> calls.Stream:
        """Opens a stream; refuses with `unavailable` when too many are open."""
        after = call.query.after
        if after is None:
            after = _last_event_id(call.headers.get(_LAST_EVENT_ID))
        if self._readers >= self._most:
            raise refusals.Refusal(
                "unavailable",
                f"{self._most} readers follow the events already; try again later.",
                retry_after_seconds=_RETRY_SECONDS,
            )
        return calls.Stream(parts=self._parts(call, after=after), media_type=MEDIA_TYPE)

    async def _parts(
        self, call: calls.Call[None, EventsQuery], *, after: int
    ) -> AsyncGenerator[bytes, None]:
        self._readers += 1
        self._meter.event_readers(self._readers)
        try:
            yield b": Enlist events\n\n"
            quiet_since = asked_at = call.clock.monotonic()
            while not self._draining.is_set():
                if call.clock.monotonic() - asked_at >= _COMMENT_SECONDS:
                    asked_at = call.clock.monotonic()
                    if not await _may_go_on(call):
                        return
                start = after
                found, after = await call.read(
                    lambda tx, start=start: events.read_after(  # type: ignore[misc]
                        tx, after=start, infra=call.query.infra, limit=_PAGE
                    )
                )
                if found:
                    quiet_since = call.clock.monotonic()
                    yield b"".join(_block(event) for event in found)
                if after != start:
                    continue
                if not call.query.follow:
                    return
                if call.clock.monotonic() - quiet_since >= _COMMENT_SECONDS:
                    quiet_since = call.clock.monotonic()
                    yield b": still here\n\n"
                await self._wait(call)
        finally:
            self._readers -= 1
            self._meter.event_readers(self._readers)

    async def _wait(self, call: calls.Call[None, EventsQuery]) -> None:
        """Until it is time to look again, or the engine drains."""
        sleeping = asyncio.ensure_future(call.clock.sleep(_LOOK_SECONDS))
        leaving = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait([sleeping, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            leaving.cancel()


async def _may_go_on(call: calls.Call[None, EventsQuery]) -> bool:
    """Whether the token that opened the stream is still in force; the local door has none."""
    token_id = call.principal.token_id
    if token_id is None:
        return True
    return await call.read(
        functools.partial(tokens.is_in_force, token_id=token_id, now=call.clock.now())
    )


def served(stream: EventStream) -> tuple[routes.Route, ...]:
    """The route of this module."""
    return (
        routes.Route(
            method="GET",
            path="/api/v1/events",
            summary="What happens, as server-sent events; each event's data is an Event.",
            handler=stream,
            query=EventsQuery,
            answer=admin.Event,
            media_type=MEDIA_TYPE,
            stream=True,
            headers=(
                routes.Header(
                    name="Last-Event-ID",
                    text="Resume behind this number; `after` wins over it.",
                    pattern="^[0-9]{1,18}$",
                ),
            ),
            problems=("unavailable",),
        ),
    )


def _last_event_id(text: str | None) -> int:
    if text is None or text == "":
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise refusals.invalid("Last-Event-ID", "Last-Event-ID is the number of an event.")
    return int(text)


def _block(event: events.Event) -> bytes:
    shown = admin.Event(
        seq=event.seq,
        at=event.at,
        kind=event.kind,
        subject=event.subject,
        infra=event.infra,
        data=dict(event.data),
    )
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {shown.model_dump_json()}\n\n".encode()
