"""A client for this machine's Platform that starts fast: a socket and h11, nothing else.

The command line uses it for the local socket and for http on loopback, where there is no TLS:
httpx with its models costs ten times what the whole question does. It follows the same exchange
as `client.Client` and gives documents; for typed answers use that one. One connection a request.
"""

import contextlib
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import h11

from enlist import driving, errors, event_stream, exchange, targets
from runtime_kit import retry

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 30.0
_READ_BYTES = 65_536
_SUCCESSES = range(200, 300)


class _NotSent(Exception):
    """No connection came about; nothing was sent."""


class PlainClient(driving.Waiting):
    """Talks to one Platform on this machine, without TLS."""

    losses = (_NotSent, OSError, h11.RemoteProtocolError)

    def __init__(
        self,
        *,
        target: targets.Target,
        schedule: retry.Schedule = exchange.SCHEDULE,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not target.is_plain:
            raise ValueError("This client speaks no TLS.")
        super().__init__(target=target, schedule=schedule, pause=pause)

    def _ask(self, request: exchange.Request) -> exchange.Reply:
        with _Talk(self.target, silence_seconds=_SILENCE_SECONDS) as talk:
            status, headers = talk.ask(
                request.method,
                target=request.target,
                headers=request.headers,
                content=request.content,
            )
            meter = driving.Meter()
            content = b"".join(meter.pass_on(chunk) for chunk in talk.read())
        return exchange.Reply(status=status, headers=headers, content=content)

    @contextlib.contextmanager
    def _stream(
        self, request: exchange.Request
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        with _Talk(self.target, silence_seconds=_SILENCE_SECONDS) as talk:
            status, headers = talk.ask(
                request.method,
                target=request.target,
                headers=request.headers,
                content=request.content,
            )
            yield status, headers, talk.read()

    def _listen(self, tail: event_stream.Tail) -> Iterator[Any]:
        with _Talk(self.target, silence_seconds=event_stream.SILENCE_SECONDS) as talk:
            status, headers = talk.ask("GET", target=tail.target, headers=tail.headers)
            if status in _SUCCESSES:
                for chunk in talk.read():
                    yield from tail.feed(chunk)
                tail.finished()
                return
            meter = driving.Meter()
            content = b"".join(meter.pass_on(chunk) for chunk in talk.read())
        tail.refused(exchange.Reply(status=status, headers=headers, content=content))

    def _lost(self, error: Exception) -> exchange.Lost:
        shown = self.target.shown
        if isinstance(error, _NotSent):
            hint = " Is the Platform running (enlist serve)?" if self.target.socket else ""
            return exchange.Lost(sentence=f"No connection to {shown}: {error}.{hint}", sent=False)
        if isinstance(error, TimeoutError):
            return exchange.Lost(sentence=f"{shown} did not answer in time.", sent=True)
        return exchange.Lost(sentence=f"{shown} broke the connection off.", sent=True)


class _Talk:
    """One request and its answer on one connection."""

    def __init__(self, target: targets.Target, *, silence_seconds: float) -> None:
        self._host = urllib.parse.urlsplit(target.origin).netloc
        self._wire = h11.Connection(h11.CLIENT)
        self._socket = _connect(target)
        self._socket.settimeout(silence_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def ask(
        self,
        method: str,
        *,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> tuple[int, dict[str, str]]:
        """Sends the request whole; gives the status and the headers of the answer."""
        fields = [("host", self._host), ("connection", "close"), *headers.items()]
        if content is not None:
            fields.append(("content-length", str(len(content))))
        self._send(h11.Request(method=method, target=target, headers=fields))
        if content is not None:
            self._send(h11.Data(data=content))
        self._send(h11.EndOfMessage())
        while True:
            event = self._next()
            if isinstance(event, h11.Response):
                found = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                return event.status_code, found
            if not isinstance(event, h11.InformationalResponse):
                raise errors.Fault("The Platform's answer is not HTTP.")

    def read(self) -> Iterator[bytes]:
        """The body, piece by piece."""
        while True:
            event = self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise ConnectionResetError("closed before the end")

    def _send(self, event: h11.Event) -> None:
        data = self._wire.send(event)
        if data:
            self._socket.sendall(data)

    def _next(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(self._socket.recv(_READ_BYTES))
        return event


def _connect(target: targets.Target) -> socket.socket:
    try:
        if target.socket is None:
            parts = urllib.parse.urlsplit(target.origin)
            address = (parts.hostname or "", parts.port or 80)
            return socket.create_connection(address, timeout=_CONNECT_SECONDS)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(_CONNECT_SECONDS)
            opened.connect(str(target.socket))
        except BaseException:
            opened.close()
            raise
    except TimeoutError as error:
        raise _NotSent("it did not answer") from error
    except OSError as error:
        raise _NotSent(error.strerror or str(error)) from error
    return opened
