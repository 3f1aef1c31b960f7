"""One connection of the server: from its first byte to its last, phase by phase.

``HEAD → BODY → WORK → HEAD …`` (after ``WORK`` comes ``SEND`` where the answer is too large to
hold), and at the end ``DROP`` (a refused request's body is read and thrown away, bounded, so that
the refusal gets through) and ``CLOSING``. One timer at a time: each phase sets its own.
Not for: sockets and handshakes, which are ``server``'s.
"""

import asyncio
import enum
import ssl
from typing import Protocol, cast

from runtime_kit.http1 import heads, limits, messages, sending

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Owner(Protocol):
    """What a connection needs of its server."""

    limits: limits.Limits
    draining: bool

    def judge(self, head: messages.Head) -> messages.Response | None:
        """Refuse a request before its body is read."""
        ...

    def refusal(self, status: int) -> messages.Response:
        """The answer to what the server itself refuses."""
        ...

    def work(self, request: messages.Request, *, connection: "Connection") -> "asyncio.Task[None]":
        """Have the request answered by way of ``connection.answer``."""
        ...

    def head_pending(self, connection: "Connection", *, pending: bool) -> None:
        """Whether the connection may be closed to make room."""
        ...

    def gone(self, connection: "Connection") -> None:
        """The socket is closed."""
        ...


class _Phase(enum.Enum):
    HANDSHAKE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    WORK = enum.auto()
    SEND = enum.auto()
    DROP = enum.auto()
    CLOSING = enum.auto()


class Connection(asyncio.Protocol):
    """The protocol object of one accepted socket."""

    def __init__(self, owner: Owner, *, peer: str) -> None:
        self.peer = peer
        self.establishing: asyncio.Task[None] | None = None
        self.working: asyncio.Task[None] | None = None
        self.placed = False
        self._owner = owner
        self._limits = owner.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._buffer_bytes = self._limits.head_bytes + self._limits.body_bytes
        self._phase = _Phase.HANDSHAKE
        self._head: messages.Head | None = None
        self._keep_alive = True
        self._answered = 0
        self._paused = False
        self._clogged = False
        self._to_drop: int | None = None
        self._dropped = 0
        self._sending: sending.Sending | None = None

    @property
    def busy(self) -> bool:
        """Whether a request, or the first one to come, is owed an answer."""
        if self._phase is _Phase.HEAD:
            return bool(self._buffer) or self._answered == 0
        return self._phase is not _Phase.CLOSING

    @property
    def complete(self) -> bool:
        """Whether the request has come in whole."""
        return self._phase in (_Phase.WORK, _Phase.SEND)

    @property
    def in_work(self) -> bool:
        """Whether a complete request is owed an answer, or its answer is on the way out."""
        return self._phase in (_Phase.BODY, _Phase.WORK, _Phase.SEND, _Phase.DROP)

    @property
    def rate(self) -> float | None:
        """How fast the client takes the answer that is on its way out; None where none is."""
        return None if self._sending is None else self._sending.rate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self._transport = cast("asyncio.Transport", transport)
        self._tls = transport.get_extra_info("ssl_object")
        self._phase = _Phase.HEAD
        self._set_timer(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's form
        """The socket is closed, by whomever."""
        self._phase = _Phase.CLOSING
        self._cancel_timer()
        if self._sending is not None:
            self._sending.stop()
        # A request that still waits for a place is nobody's any more; one in work is finished,
        # since what it began must not be torn.
        if self.working is not None and not self.placed:
            self.working.cancel()
        self._owner.gone(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._phase is _Phase.DROP:
            self._drop(len(data))
            return
        if self._phase is _Phase.CLOSING:
            return
        if self._phase is _Phase.HEAD and self._answered and not self._buffer:
            self._set_timer(self._limits.head_s)
        self._buffer += data
        if len(self._buffer) > self._buffer_bytes:
            self._pause()  # a whole request is there; what follows can wait
        self._advance()

    def pause_writing(self) -> None:
        """The client does not read its answers: it gets no further ones until it does."""
        self._clogged = True
        self._pause()
        if self._sending is not None:
            self._sending.pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._clogged = False
        self._resume()
        if self._sending is not None:
            self._sending.resume()
        self._advance()

    def answer(self, response: messages.Response) -> None:
        """Write the answer to the request in work, then go on to the next or close."""
        if self._phase is not _Phase.WORK or self._transport is None or self._head is None:
            if response.source is not None:
                response.source.close()
            return
        with_body = self._head.method != "HEAD"
        close = not self._keep_alive or self._owner.draining
        self._transport.write(messages.encode_response(response, close=close, with_body=with_body))
        if response.source is None:
            self._answer_is_out(close=close)
        elif not with_body:
            response.source.close()
            self._answer_is_out(close=close)
        else:
            self._send(response.source, close=close)

    def _send(self, source: sending.Source, *, close: bool) -> None:
        assert self._transport is not None  # noqa: S101 - `answer` has looked

        def done(whole: bool) -> None:  # noqa: FBT001 - the call's form
            self._sending = None
            if whole:
                self._answer_is_out(close=close)
            else:
                self.abort()

        self._phase = _Phase.SEND
        self._sending = sending.Sending(
            source, transport=self._transport, limits=self._limits, done=done
        )
        if self._clogged:
            self._sending.pause()
        self._sending.start()

    def _answer_is_out(self, *, close: bool) -> None:
        self._answered += 1
        self._head = None
        self.placed = False
        if close:
            self.close()
            return
        self._phase = _Phase.HEAD
        self._owner.head_pending(self, pending=True)
        self._set_timer(self._limits.head_s if self._buffer else self._limits.idle_s)
        self._resume()
        if self._buffer:
            self._loop.call_soon(self._advance)  # not at once: a thousand may be waiting in line

    def close(self) -> None:
        """Say goodbye; whoever does not answer it in time is cut off."""
        if self._transport is None:
            self.abort()
            return
        self._phase = _Phase.CLOSING
        self._owner.head_pending(self, pending=True)
        self._transport.close()
        self._set_timer(self._limits.close_s)

    def abort(self) -> None:
        """Cut the connection off."""
        self._cancel_timer()
        self._phase = _Phase.CLOSING
        if self._transport is not None:
            self._transport.abort()
        elif self.establishing is not None:
            self.establishing.cancel()

    def _advance(self) -> None:
        if self._clogged or (self._phase is not _Phase.HEAD and self._phase is not _Phase.BODY):
            return
        head = self._head or self._take_head()
        if head is None or len(self._buffer) < head.content_length:
            return
        self._cancel_timer()
        body = bytes(self._buffer[: head.content_length])
        del self._buffer[: head.content_length]
        self._phase = _Phase.WORK
        request = messages.Request(
            method=head.method,
            target=head.target,
            headers=head.headers,
            body=body,
            peer=self.peer,
            tls=self._tls,
        )
        self.working = self._owner.work(request, connection=self)

    def _take_head(self) -> messages.Head | None:
        end = self._buffer.find(heads.END)
        size = end + len(heads.END) if end >= 0 else len(self._buffer)
        if size > self._limits.head_bytes:
            self._refuse(self._owner.refusal(431), body_left=None)
            return None
        if end < 0:
            return None
        try:
            head = heads.parse_request(bytes(self._buffer[:size]))
        except heads.Malformed:
            self._refuse(self._owner.refusal(400), body_left=None)
            return None
        del self._buffer[:size]
        self._head = head
        self._owner.head_pending(self, pending=False)
        wishes = head.headers.get("connection", "").lower().split(",")
        self._keep_alive = "close" not in (wish.strip() for wish in wishes)
        expectation = head.headers.get("expect", "").lower()
        refused = self._owner.judge(head)
        if refused is None and head.content_length > self._limits.body_bytes:
            refused = self._owner.refusal(413)
        if refused is None and expectation not in ("", "100-continue"):
            refused = self._owner.refusal(417)
        if refused is not None:
            self._refuse(refused, body_left=head.content_length)
            return None
        self._phase = _Phase.BODY
        if head.content_length:
            self._set_timer(self._limits.body_s)
            if expectation and len(self._buffer) < head.content_length:
                self._write(_CONTINUE)
        return head

    def _refuse(self, response: messages.Response, *, body_left: int | None) -> None:
        """Answer before the body; ``None``: nobody knows how much of it will come."""
        head, self._head = self._head, None
        with_body = head is None or head.method != "HEAD"
        if body_left == 0 and self._keep_alive and not self._owner.draining:
            self._phase = _Phase.WORK
            self._head = head
            self.answer(response)
            return
        self._write(messages.encode_response(response, close=True, with_body=with_body))
        if body_left == 0:
            self.close()
            return
        self._phase = _Phase.DROP
        self._owner.head_pending(self, pending=True)
        self._set_timer(self._limits.drop_s)
        self._to_drop = body_left
        dropped = len(self._buffer)
        self._buffer.clear()
        self._drop(dropped)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._to_drop is not None and self._dropped >= self._to_drop:
            self.close()
        elif self._dropped >= self._limits.drop_bytes:
            # The client is left to read the answer for what remains of the second.
            self._pause()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _pause(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if (
            self._transport is not None
            and self._paused
            and not self._clogged
            and self._phase is not _Phase.DROP
            and len(self._buffer) <= self._buffer_bytes
        ):
            self._paused = False
            self._transport.resume_reading()

    def _time_is_up(self) -> None:
        if self._phase is _Phase.DROP and not self._paused:
            self.close()
        else:
            self.abort()

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._time_is_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
