"""One end of a link: asks, answers, pings, and ends once.

API: see the package's docstring. A transport hands in bytes with ``received`` and says with
``pause``, ``resume`` and ``lost`` how it stands; it gets bytes by its ``Wire``.

For: both ends alike. An idle link has no task and no timer: a question takes one task while it is
answered, and a timer while it arrives in pieces. Whoever must know of the end without waiting sets
``on_end``.
Not for: noticing a silent peer by itself. The user compares ``heard_at`` or pings.
Known limit: time limits of ``ask`` and ``ping`` run by the event loop's clock.
"""

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

from runtime_kit import clock as clock_kit
from runtime_kit import failures
from runtime_kit.mux import connection, frames

_log = logging.getLogger(__name__)

_PIECE_BYTES = 32_768  # given to the transport at a time; it says when it has enough


class Refused(failures.NetworkFailure):
    """The other side refused the question; ``code`` says why."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{detail.rstrip('.') or 'Refused'} ({code})")


class AnswerTooLong(failures.NetworkFailure):
    """The answer is longer than any answer of the kind."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT


class Silent(failures.NetworkFailure):
    """No answer in time; the question may have had its effect all the same."""


class Closed(failures.NetworkFailure):
    """The link has ended; a question under way may have had its effect all the same."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ClientRefused(Closed):
    """The server does not accept this client's certificate."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


class Refusal(Exception):
    """Raised by an ``Answer``: the question is refused with this code and sentence."""

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Why a link is over. ``by_peer``: it said so, rather than this side or the network."""

    reason: str
    retry_after_s: float | None = None
    by_peer: bool = False
    client_refused: bool = False


class Wire(Protocol):
    """How a link's bytes leave."""

    def write(self, data: bytes) -> None:
        """Send; may call ``Link.pause`` when it has enough."""
        ...

    def close(self, *, within_s: float) -> None:
        """Send what was written and close, or abort after that many seconds."""
        ...


class Link:
    """One end of one connection with numbered streams."""

    __slots__ = (
        "__weakref__",
        "_answering",
        "_arriving",
        "_clock",
        "_core",
        "_ended",
        "_heard",
        "_paused",
        "_pings",
        "_waiting",
        "_watchers",
        "_wire",
        "answer",
        "answer_now",
        "on_end",
        "owner",
        "peer",
    )

    def __init__(
        self,
        *,
        peer: str,
        dialled: bool,
        answer: "Answer | None" = None,
        limits: connection.Limits | None = None,
        clock: clock_kit.Clock | None = None,
    ) -> None:
        self.peer = peer
        """The other side's address, for messages."""
        self.answer: Answer = answer or _knows_nothing
        """Answers the other side's questions; may be exchanged."""
        self.answer_now: AnswerNow | None = None
        """Asked before it: answers what needs no waiting, which spares a task."""
        self.on_end: Callable[[Link, Ended], None] | None = None
        """Called once when the link ends; set it before giving control back to the loop."""
        self.owner: object = None
        """Whatever its user wants to find again from the link."""
        self._clock = clock or _SYSTEM
        self._core = connection.Connection(dialled=dialled, limits=limits or _LIMITS)
        self._heard = self._clock.monotonic()
        self._wire: Wire | None = None
        self._paused = True
        self._ended: Ended | None = None
        # These exist only while they hold something.
        self._waiting: dict[int, asyncio.Future[bytes]] | None = None
        self._answering: dict[int, asyncio.Task[None]] | None = None
        self._arriving: dict[int, asyncio.TimerHandle] | None = None
        self._pings: dict[bytes, asyncio.Future[None]] | None = None
        self._watchers: list[asyncio.Future[None]] | None = None

    def __repr__(self) -> str:
        return f"<Link to {self.peer}{', ended' if self._ended else ''}>"

    @property
    def limits(self) -> connection.Limits:
        """What is granted to the other side; may be exchanged and holds from then on."""
        return self._core.limits

    @limits.setter
    def limits(self, limits: connection.Limits) -> None:
        self._core.limits = limits

    @property
    def ended(self) -> Ended | None:
        """None while the link is open."""
        return self._ended

    def heard_at(self) -> float:
        """The clock's monotonic seconds at which the last byte came in."""
        return self._heard

    async def ask(
        self, method: str, body: bytes, *, timeout_s: float, max_bytes: int = 65_536
    ) -> bytes:
        """Ask one question and return the answer.

        Raises:
            Refused: By the other side; also ``busy`` when too many questions are open here.
            Silent: No answer in time. The other side is told that nobody waits any more.
            Closed: The link has ended, or ends before the answer.
            AnswerTooLong: More than ``max_bytes``.
        """
        self._require_open()
        if self._core.asking >= self._core.limits.asks:
            raise Refused("busy", "Too many questions are open on this side.")
        stream = self._core.ask(method, body, most=max_bytes)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting = self._waiting = self._waiting or {}
        waiting[stream] = future
        self._flush()
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise Silent(f"{self.peer} did not answer within {timeout_s:g} s") from error
        finally:
            if waiting.pop(stream, None) is not None:
                self._give_up(stream, code="cancelled", detail="Nobody waits any more.")
            if not waiting and self._waiting is waiting:
                self._waiting = None

    async def ping(self, *, timeout_s: float) -> None:
        """Make sure that the other side is there.

        Raises:
            Silent: No answer in time.
            Closed: The link has ended.
        """
        self._require_open()
        payload = next(_PINGS).to_bytes(frames.PING_BYTES, "big")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pings = self._pings = self._pings or {}
        pings[payload] = future
        self._core.ping(payload)
        self._flush()
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError as error:
            raise Silent(f"{self.peer} did not answer within {timeout_s:g} s") from error
        finally:
            pings.pop(payload, None)
            if not pings and self._pings is pings:
                self._pings = None

    def close(self, *, reason: str, retry_after_s: float | None = None) -> None:
        """Tell the other side and end the link; what it has asked is not answered any more."""
        self._end(Ended(reason=reason, retry_after_s=retry_after_s), farewell=True)

    async def wait_closed(self) -> Ended:
        """Return once the link has ended."""
        if self._ended is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            watchers = self._watchers = self._watchers or []
            watchers.append(future)
            try:
                await future
            finally:
                watchers.remove(future)
        if self._ended is None:
            raise RuntimeError("A link's end was told before it came")
        return self._ended

    # For transports.

    def begin(self, wire: Wire) -> None:
        """The connection stands."""
        self._wire = wire
        self._heard = self._clock.monotonic()
        self._paused = False
        self._flush()

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._ended is not None:
            return
        self._heard = self._clock.monotonic()
        try:
            events = self._core.receive(data)
        except frames.Malformed as error:
            self._end(Ended(reason=f"{self.peer} broke the protocol: {error}"), farewell=True)
            return
        for event in events:
            if type(event) is connection.Question:
                self._start(event)
            else:
                self._take(event)
        if self._ended is None:
            self._watch_arriving()
            self._flush()

    def lost(self, reason: str, *, client_refused: bool = False) -> None:
        """The connection is gone."""
        self._end(Ended(reason=reason, client_refused=client_refused), farewell=False)

    def pause(self) -> None:
        """The transport has enough."""
        self._paused = True

    def resume(self) -> None:
        """The transport has sent what it had."""
        self._paused = False
        self._flush()

    # Inside.

    def _require_open(self) -> None:
        if self._ended is not None:
            raise _closed(self._ended)

    def _flush(self) -> None:
        while not self._paused and self._wire is not None:
            piece = self._core.take(_PIECE_BYTES)
            if piece:
                self._wire.write(piece)
            if len(piece) < _PIECE_BYTES:
                return  # that was all
        if self._core.unsent > self.limits.unsent_bytes:
            self._end(Ended(reason=f"{self.peer} does not read what it is sent"), farewell=False)

    def _take(self, event: connection.Event) -> None:
        match event:
            case connection.Answered(stream, body):
                self._settle(stream, body)
            case connection.Refused(stream, code, detail):
                self._settle(stream, Refused(code, detail))
            case connection.TooLong(stream):
                self._settle(stream, AnswerTooLong(f"{self.peer} answered more than was asked for"))
            case connection.Cancelled(stream):
                if self._answering is not None and stream in self._answering:
                    self._answering[stream].cancel()
            case connection.Pong(payload):
                future = (self._pings or {}).get(payload)
                if future is not None and not future.done():
                    future.set_result(None)
            case connection.GoneAway(reason, retry_after_s):
                ended = Ended(reason=reason, retry_after_s=retry_after_s, by_peer=True)
                self._end(ended, farewell=False)

    def _settle(self, stream: int, result: bytes | Exception) -> None:
        future = (self._waiting or {}).pop(stream, None)
        if future is None or future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _give_up(self, stream: int, *, code: str, detail: str) -> None:
        if self._ended is None:
            self._core.refuse(stream, code, detail)
            self._flush()

    def _start(self, question: connection.Question) -> None:
        if self._ended is not None or self._answered_now(question):
            return
        task = asyncio.get_running_loop().create_task(self._reply(question), name=question.method)
        answering = self._answering = self._answering or {}
        answering[question.stream] = task

    def _answered_now(self, question: connection.Question) -> bool:
        if self.answer_now is None:
            return False
        try:
            body = self.answer_now(self, question.method, question.body)
        except Refusal as refusal:
            self._core.refuse(question.stream, refusal.code, refusal.detail)
            return True
        except Exception:  # noqa: BLE001 - one question's fault ends that question, not the link
            self._failed(question)
            return True
        if body is None:
            return False
        self._core.answer(question.stream, body)
        return True

    def _failed(self, question: connection.Question) -> None:
        _log.exception("Answer failed", extra={"method": question.method, "peer": self.peer})
        self._core.refuse(question.stream, "failed", "The other side could not answer.")

    async def _reply(self, question: connection.Question) -> None:
        stream = question.stream
        try:
            body = await self.answer(self, question.method, question.body)
        except Refusal as refusal:
            self._core.refuse(stream, refusal.code, refusal.detail)
        except asyncio.CancelledError:
            self._core.refuse(stream, "cancelled", "The work on it was cancelled.")
            raise
        except Exception:  # noqa: BLE001 - one question's fault ends that question, not the link
            self._failed(question)
        else:
            self._core.answer(stream, body)
        finally:
            if self._answering is not None:
                self._answering.pop(stream, None)
                self._answering = self._answering or None
            if self._ended is None:
                self._flush()

    def _watch_arriving(self) -> None:
        """A timer for each question that has begun and not ended."""
        incomplete = self._core.incomplete
        arriving = self._arriving
        if not incomplete and arriving is None:
            return
        arriving = arriving or {}
        for stream in [one for one in arriving if one not in incomplete]:
            arriving.pop(stream).cancel()
        loop = asyncio.get_running_loop()
        for stream in incomplete:
            if stream not in arriving:
                arriving[stream] = loop.call_later(self.limits.question_s, self._too_slow, stream)
        self._arriving = arriving or None

    def _too_slow(self, stream: int) -> None:
        if self._arriving is not None:
            self._arriving.pop(stream, None)
            self._arriving = self._arriving or None
        self._give_up(stream, code="too-slow", detail="The question did not arrive in time.")

    def _end(self, ended: Ended, *, farewell: bool) -> None:
        if self._ended is not None:
            return
        self._ended = ended
        wire, self._wire = self._wire, None
        if wire is not None:
            if farewell:
                self._core.goaway(ended.reason, retry_after_s=ended.retry_after_s)
                wire.write(self._core.take(_PIECE_BYTES))
            wire.close(within_s=self.limits.close_s)
        self._release(ended)
        if self.on_end is not None:
            try:
                self.on_end(self, ended)
            except Exception:  # noqa: BLE001 - the link has ended all the same
                _log.exception("The end of a link was not taken", extra={"peer": self.peer})

    def _release(self, ended: Ended) -> None:
        """Wake everybody who waits for something of this link."""
        waiting = self._waiting or {}
        owed: list[asyncio.Future[Any]] = [*waiting.values(), *(self._pings or {}).values()]
        for future in owed:
            if not future.done():
                future.set_exception(_closed(ended))
        waiting.clear()
        answering = self._answering or {}
        own = asyncio.current_task() if answering else None
        for task in answering.values():
            if task is not own:  # an answer may end its own link and go on
                task.cancel()
        for timer in (self._arriving or {}).values():
            timer.cancel()
        self._arriving = None
        for watcher in self._watchers or ():
            if not watcher.done():
                watcher.set_result(None)


Answer = Callable[[Link, str, bytes], Awaitable[bytes]]
"""Answers one question by its method and body; raises Refusal."""

AnswerNow = Callable[[Link, str, bytes], bytes | None]
"""The same for what needs no waiting; None leaves the question to the ``Answer``."""

_SYSTEM = clock_kit.SystemClock()
_LIMITS = connection.Limits()
_PINGS = itertools.count(1)


async def _knows_nothing(_link: Link, _method: str, _body: bytes) -> bytes:
    raise Refusal("unknown", "This end answers no questions.")


def _closed(ended: Ended) -> Closed:
    return ClientRefused(ended.reason) if ended.client_refused else Closed(ended.reason)
