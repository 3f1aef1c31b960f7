"""The protocol of a link without I/O: bytes in, events out; questions in, bytes out.

API::

    core = connection.Connection(dialled=True, limits=connection.Limits())
    stream = core.ask("hello", body, most=65_536)
    core.take(65_536)                    # the next bytes to send; b"" when there are none
    for event in core.receive(data): …   # raises frames.Malformed: end the link

For: what may follow what, credit, fairness and limits. Each side opens streams of its own parity
(the one that dialled: odd) with rising numbers. What is small goes first: frames that control, and
bodies of ``SMALL_BYTES``, come before all others, and those take turns, one frame each, a new one
first. A stream has at most ``WINDOW_BYTES`` under way, so whatever lies between the two ends never
holds more of one body. A small question that comes in one piece, as a heartbeat does, is read and
answered in one step each.
Not for: tasks, time, sockets (``link``).
Known limit: a body is whole in memory at both ends.
"""

import dataclasses
from collections.abc import Iterator

from runtime_kit.mux import frames

WINDOW_BYTES = 65_536
SMALL_BYTES = 4_096

_OF_LINK = (frames.Kind.PING, frames.Kind.PONG, frames.Kind.GOAWAY)
_OF_STREAMS = (frames.Kind.DATA, frames.Kind.END, frames.Kind.RESET, frames.Kind.CREDIT)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one side grants the other."""

    streams: int = 64
    """Questions of the other side at once, those included whose answer is not yet sent."""
    asks: int = 64
    """Questions of this side at once."""
    question_bytes: int = 65_536
    buffered_bytes: int = 1_048_576
    """Of all incomplete questions together."""
    owed_bytes: int = 65_536
    """Control frames that the other side caused and does not read; more of them end the link."""
    unsent_bytes: int = 524_288
    """Of all that waits while the transport has enough; more of it ends the link (``link``)."""
    question_s: float = 30.0
    """How long a question may take to arrive."""
    close_s: float = 5.0
    """How long what was written may take to leave after a close."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """The other side asks; call ``answer``, ``refuse`` or ``forget`` with its stream."""

    stream: int
    method: str
    body: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody waits for that answer any more; call ``forget`` once the work on it has ended."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question of ours."""

    stream: int
    body: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """A question of ours will have no answer."""

    stream: int
    code: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class TooLong:
    """The answer is longer than asked for; its stream is over."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    payload: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class GoneAway:
    """The other side ends the link."""

    reason: str
    retry_after_s: float | None


Event = Question | Cancelled | Answered | Refused | TooLong | Pong | GoneAway


class _Stream:
    """One question and its answer."""

    __slots__ = (
        "body",
        "cancelled",
        "credit",
        "delivered",
        "method",
        "most",
        "out",
        "sent",
        "window",
    )

    def __init__(self, *, method: str, most: int) -> None:
        self.method = method
        self.most = most  # how long the incoming body may be
        self.body: bytearray | None = bytearray()  # incoming; None once it is complete
        self.window = WINDOW_BYTES  # how much more the other side may send
        self.out: memoryview | None = None  # outgoing; None before it is known and once it is sent
        self.sent = 0
        self.credit = WINDOW_BYTES  # how much more may be sent to the other side
        self.delivered = False  # handed on as a Question
        self.cancelled = False  # keeps its place until the work on it has ended


class Connection:
    """One end of a link."""

    __slots__ = (
        "_arriving",
        "_buffered",
        "_control",
        "_fresh",
        "_gone",
        "_last_ours",
        "_last_theirs",
        "_owed",
        "_rest",
        "_streams",
        "_turns",
        "_unsent_answers",
        "limits",
        "unsent",
    )

    def __init__(self, *, dialled: bool, limits: Limits) -> None:
        self.limits = limits
        self._last_ours = -1 if dialled else 0
        self._last_theirs = 0 if dialled else -1
        self._streams: dict[int, _Stream] = {}
        self._control: list[bytes] = []
        self._turns: list[int] = []  # streams with bytes to send and credit for them
        self._fresh = 0  # so many at the head of it have not had a turn yet
        self._rest = b""
        self._arriving = 0  # so many questions of the other side are not complete
        self._buffered = 0
        self._owed = 0
        self._gone = False
        self._unsent_answers = 0  # whole ones and refusals that wait; they keep their places
        self.unsent = 0  # bytes of all that waits and was not begun by a turn

    # Outgoing.

    @property
    def asking(self) -> int:
        """How many questions of ours are open."""
        return sum(1 for stream in self._streams if self._is_ours(stream))

    @property
    def incomplete(self) -> list[int]:
        """Questions of the other side that have begun and not ended."""
        if not self._arriving:
            return []
        return [
            number
            for number, stream in self._streams.items()
            if stream.body is not None and not self._is_ours(number)
        ]

    def ask(self, method: str, body: bytes, *, most: int) -> int:
        """Open a stream; its end is an Answered, Refused or TooLong.

        Raises:
            frames.Malformed: The method's name is none, or all numbers are used up.
        """
        payload = method.encode("ascii", "replace")
        frames.read_method(payload)
        if self._last_ours + 2 > frames.MAX_STREAM:
            raise frames.Malformed("All stream numbers of this link are used up")
        self._last_ours += 2
        number = self._last_ours
        self._streams[number] = _Stream(method=method, most=most)
        opening = frames.frame(frames.Kind.OPEN, stream=number, payload=payload)
        if len(body) <= SMALL_BYTES:
            self._put(opening + frames.whole_body(body, stream=number))
        else:
            self._put(opening)
            self._send_body(number, body)
        return number

    def answer(self, stream: int, body: bytes) -> None:
        """Answer a Question; if it was cancelled, this only forgets it."""
        found = self._streams.get(stream)
        if found is None:
            return
        if found.cancelled:
            self._drop(stream)
        elif len(body) <= SMALL_BYTES:
            self._drop(stream)
            self._put(frames.whole_body(body, stream=stream))
            self._unsent_answers += 1
        elif found.out is None:
            self._send_body(stream, body)

    def refuse(self, stream: int, code: str, detail: str) -> None:
        """Refuse a Question, or give up a question of ours; nothing happens if it is over."""
        found = self._streams.get(stream)
        if self._drop(stream) and found is not None and not found.cancelled:
            self._put(self._reset(stream, code, detail))
            self._unsent_answers += not self._is_ours(stream)

    def forget(self, stream: int) -> None:
        """The work on a cancelled question has ended."""
        self._drop(stream)

    def ping(self, payload: bytes) -> None:
        """Ask for a Pong with these 8 bytes."""
        self._put(frames.frame(frames.Kind.PING, payload=payload))

    def goaway(self, reason: str, *, retry_after_s: float | None) -> None:
        """The last that is sent: drops every stream."""
        self._streams.clear()
        self._arriving = self._buffered = 0
        self._turns.clear()
        self._fresh = 0
        payload = frames.goaway(reason, retry_after_s=retry_after_s)
        self._put(frames.frame(frames.Kind.GOAWAY, payload=payload))

    def take(self, most: int) -> bytes:
        """About that many bytes to send now, by whole frames; empty when there is nothing."""
        if not self._control and not self._turns:
            return b""
        out, self._control = self._control, []
        self._owed = self._unsent_answers = self.unsent = 0
        if not self._turns:
            return out[0] if len(out) == 1 else b"".join(out)
        size = sum(map(len, out))
        while self._turns and size < most:
            number = self._turns.pop(0)
            self._fresh = max(0, self._fresh - 1)
            for piece in self._next_frames(number):
                out.append(piece)
                size += len(piece)
        return b"".join(out)

    # Incoming.

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes mean.

        Raises:
            frames.Malformed: End the link; nothing of what follows would have a meaning.
        """
        if self._rest:
            data = self._rest + data
        events: list[Event] = []
        at, end = 0, len(data)
        while end - at >= frames.HEADER_BYTES and not self._gone:
            length, kind, stream = frames.read_header(data, at=at)
            if length > frames.MAX_PAYLOAD:
                raise frames.Malformed(f"A frame of {length} bytes")
            after = at + frames.HEADER_BYTES + length
            if end < after:
                break
            payload = data[at + frames.HEADER_BYTES : after]
            at = after
            if kind == frames.Kind.OPEN:
                self._opened(stream, payload)
                whole = frames.find_whole_body(data, at=at, stream=stream)
                if whole is not None and self._takes_whole(stream, size=whole):
                    body = data[at + frames.HEADER_BYTES : at + frames.HEADER_BYTES + whole]
                    at += 2 * frames.HEADER_BYTES + whole
                    events.append(self._complete(stream, body))
            else:
                event = self._read(kind, stream=stream, payload=payload)
                if event is not None:
                    events.append(event)
            if self._owed > self.limits.owed_bytes:
                raise frames.Malformed("It does not read what it is sent")
        self._rest = b"" if self._gone else data[at:]
        return events

    def _read(self, kind: int, *, stream: int, payload: bytes) -> Event | None:
        if kind in _OF_LINK:
            if stream != 0:
                raise frames.Malformed("A frame of the link on a stream")
            return self._of_link(kind, payload)
        if kind not in _OF_STREAMS:
            raise frames.Malformed(f"A frame of the unknown kind {kind}")
        found = self._streams.get(stream)
        if found is not None:
            return self._of_stream(kind, stream, found, payload)
        last = self._last_ours if self._is_ours(stream) else self._last_theirs
        if not 1 <= stream <= last:
            raise frames.Malformed("A frame on a stream that was never opened")
        return None  # late: it is over here, and the other side did not know yet

    def _of_stream(self, kind: int, number: int, stream: _Stream, payload: bytes) -> Event | None:
        if kind == frames.Kind.DATA:
            return self._data(number, stream, payload)
        if kind == frames.Kind.END:
            return self._end(number, stream, payload)
        if kind == frames.Kind.RESET:
            return self._was_reset(number, stream, payload)
        self._credit(number, stream, payload)
        return None

    def _of_link(self, kind: int, payload: bytes) -> Event | None:
        if kind == frames.Kind.GOAWAY:
            self._gone = True
            return GoneAway(*frames.read_goaway(payload))
        if len(payload) != frames.PING_BYTES:
            raise frames.Malformed("A ping is of eight bytes")
        if kind == frames.Kind.PONG:
            return Pong(payload)
        self._owe(frames.frame(frames.Kind.PONG, payload=payload))
        return None

    def _opened(self, stream: int, payload: bytes) -> None:
        if self._is_ours(stream) or not self._last_theirs < stream <= frames.MAX_STREAM:
            raise frames.Malformed("A stream opened out of turn")
        method = frames.read_method(payload)
        self._last_theirs = stream
        most = self.limits.streams - self._unsent_answers
        if len(self._streams) >= most and len(self._streams) - self.asking >= most:
            self._owe(self._reset(stream, "busy", "Too many questions at once."))
            return
        self._streams[stream] = _Stream(method=method, most=self.limits.question_bytes)
        self._arriving += 1

    def _takes_whole(self, stream: int, *, size: int) -> bool:
        """Whether a question that is here with all its bytes needs no further judging."""
        return size <= self.limits.question_bytes and stream in self._streams

    def _complete(self, number: int, body: bytes) -> Question:
        stream = self._streams[number]
        stream.body = None
        stream.delivered = True
        self._arriving -= 1
        return Question(number, stream.method, body)

    def _data(self, number: int, stream: _Stream, payload: bytes) -> Event | None:
        if stream.body is None:
            raise frames.Malformed("More of a body that had ended")
        size = len(payload)
        if not 1 <= size <= stream.window:
            raise frames.Malformed("An empty frame, or more than its credit")
        if len(stream.body) + size > stream.most:
            self._drop(number)
            self._owe(self._reset(number, "too-long", f"More than {stream.most} bytes."))
            return TooLong(number) if self._is_ours(number) else None
        if not self._is_ours(number):
            if self._buffered + size > self.limits.buffered_bytes:
                self._drop(number)
                self._owe(self._reset(number, "busy", "Too much at once."))
                return None
            self._buffered += size
        stream.body += payload
        stream.window -= size
        if stream.window <= WINDOW_BYTES // 2:
            more = frames.number(WINDOW_BYTES - stream.window)
            self._owe(frames.frame(frames.Kind.CREDIT, stream=number, payload=more))
            stream.window = WINDOW_BYTES
        return None

    def _end(self, number: int, stream: _Stream, payload: bytes) -> Event:
        if payload or stream.body is None:
            raise frames.Malformed("An end out of turn")
        body = bytes(stream.body)
        if self._is_ours(number):
            unsent = stream.out is not None
            self._drop(number)
            if unsent:
                self._owe(self._reset(number, "cancelled", "The answer came first."))
            return Answered(number, body)
        self._buffered -= len(body)
        return self._complete(number, body)

    def _credit(self, number: int, stream: _Stream, payload: bytes) -> None:
        waiting = stream.credit == 0
        stream.credit += frames.read_credit(payload)
        if stream.credit > frames.MAX_CREDIT:
            raise frames.Malformed("A credit out of range")
        if waiting and stream.out is not None:
            self._turns.append(number)

    def _was_reset(self, number: int, stream: _Stream, payload: bytes) -> Event | None:
        code, detail = frames.read_reset(payload)
        if self._is_ours(number):
            self._drop(number)
            return Refused(number, code, detail)
        if stream.cancelled:
            return None
        if not stream.delivered or stream.out is not None:
            self._drop(number)  # no work on it goes on
            return None
        stream.cancelled = True
        return Cancelled(number)

    # Shared.

    def _is_ours(self, stream: int) -> bool:
        return (stream ^ self._last_ours) & 1 == 0

    def _send_body(self, number: int, body: bytes) -> None:
        self._streams[number].out = memoryview(body)
        self._turns.insert(self._fresh, number)
        self._fresh += 1

    def _next_frames(self, number: int) -> Iterator[bytes]:
        """One frame of the body, and its end."""
        stream = self._streams[number]
        if stream.out is None:
            return
        left = len(stream.out) - stream.sent
        size = min(left, stream.credit, frames.MAX_PAYLOAD)
        if size:
            piece = bytes(stream.out[stream.sent : stream.sent + size])
            yield frames.frame(frames.Kind.DATA, stream=number, payload=piece)
            stream.sent += size
            stream.credit -= size
        if size == left:
            yield frames.frame(frames.Kind.END, stream=number)
            stream.out = None
            if not self._is_ours(number):
                self._drop(number)
        elif stream.credit:
            self._turns.append(number)

    def _drop(self, number: int) -> bool:
        stream = self._streams.pop(number, None)
        if stream is None:
            return False
        if stream.body is not None and not self._is_ours(number):
            self._buffered -= len(stream.body)
            self._arriving -= 1
        if number in self._turns:
            at = self._turns.index(number)
            del self._turns[at]
            self._fresh -= at < self._fresh
        return True

    def _owe(self, frame: bytes) -> None:
        self._put(frame)
        self._owed += len(frame)

    def _put(self, frame: bytes) -> None:
        self._control.append(frame)
        self.unsent += len(frame)

    @staticmethod
    def _reset(stream: int, code: str, detail: str) -> bytes:
        payload = frames.reset(code, detail=detail)
        return frames.frame(frames.Kind.RESET, stream=stream, payload=payload)
