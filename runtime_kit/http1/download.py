"""One GET over an open connection, its body handed on piece by piece, bounded.

For: an answer too large for memory, from a server that may be anybody's. A download that was cut
off is asked for from where it stands; a server that answers with the whole says so.
Not for: opening the connection (``server_trust``), redirects (an answer like any other), retries,
and what the bytes are: the caller knows their hash.
Known limit: one exchange a connection; close it afterwards.
"""

import asyncio
import dataclasses
import http
import ssl
from collections.abc import Callable
from typing import ClassVar, Final

import h11

from runtime_kit import failures
from runtime_kit.http1 import client

_READ_BYTES: Final = 65_536
_MAX_HEAD_BYTES: Final = 32_768
_LATER: Final = frozenset({429, 500, 502, 503, 504})


class NotServed(failures.NetworkFailure):
    """The server does not give it; another address may."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT


class BeyondIts(NotServed):
    """What is here is longer than what the server has: begin anew."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the bytes go. `start` hears from where they come; then `write` gets each piece."""

    start: Callable[[int], None]
    write: Callable[[bytes], None]


async def fetch(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    target: str,
    host: str,
    sink: Sink,
    most_bytes: int,
    from_byte: int = 0,
    idle_s: float = 30.0,
) -> None:
    """Asks for the target and hands its bytes on; returns at their end.

    Args:
        reader: Of an open connection.
        writer: Of the same; stays open, close it afterwards.
        target: Path and query.
        host: For the Host header.
        sink: Where the bytes go.
        most_bytes: How long the whole may be, what was there before included.
        from_byte: How much of it is there; the server may begin anew all the same.
        idle_s: How long nothing may come.

    Raises:
        client.NoAnswer: Cut off, silent, busy, or not HTTP; what was handed on is good to go on
            from.
        client.AnswerTooLong: More than `most_bytes`.
        NotServed: Any other status than the two of a success.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    fields = [("Host", host), ("Accept", "*/*"), ("Connection", "close")]
    if from_byte:
        fields.append(("Range", f"bytes={from_byte}-"))
    out = connection.send(h11.Request(method="GET", target=target, headers=fields)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    body = _Body(sink, host=host, from_byte=from_byte, most_bytes=most_bytes)
    try:
        async with asyncio.timeout(idle_s):
            writer.write(out)
            await writer.drain()
        while not body.is_whole:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(idle_s):
                    connection.receive_data(await reader.read(_READ_BYTES))
            else:
                body.take(event)
    except TimeoutError as error:
        raise client.NoAnswer(f"{host} sent nothing for {idle_s:g} s") from error
    except ssl.SSLError as error:
        raise client.NoAnswer(f"{host} broke off: {error.reason or error}") from error
    except ConnectionError as error:
        reason = error.strerror or type(error).__name__
        raise client.NoAnswer(f"{host} broke off: {reason}") from error
    except h11.RemoteProtocolError as error:
        raise client.NoAnswer(f"{host} broke off, or did not answer in HTTP: {error}") from error


class _Body:
    """What has come of an answer."""

    def __init__(self, sink: Sink, *, host: str, from_byte: int, most_bytes: int) -> None:
        self._sink = sink
        self._host = host
        self._from_byte = from_byte
        self._most_bytes = most_bytes
        self._has_head = False
        self._have = 0
        self.is_whole = False

    def take(self, event: object) -> None:
        """Takes what h11 has read."""
        if isinstance(event, h11.Response):
            self._begin(event)
        elif isinstance(event, h11.Data):
            self._have += len(event.data)
            if self._have > self._most_bytes:
                raise client.AnswerTooLong(
                    f"{self._host} sends more than the {self._most_bytes} bytes that it is to be"
                )
            self._sink.write(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and self._has_head:
            self.is_whole = True
        elif not isinstance(event, h11.InformationalResponse):
            raise client.NoAnswer(f"{self._host} did not finish its answer")

    def _begin(self, head: h11.Response) -> None:
        status = head.status_code
        if self._from_byte and status == http.HTTPStatus.PARTIAL_CONTENT:
            said = next((v for n, v in head.headers if n == b"content-range"), b"")
            if not said.startswith(b"bytes %d-" % self._from_byte):
                raise NotServed(f"{self._host} sends another part than the one asked for")
            self._have = self._from_byte
        elif status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and self._from_byte:
            raise BeyondIts(f"{self._host} has less of it than is here")
        elif status in _LATER:
            raise client.NoAnswer(f"{self._host} answered with status {status}")
        elif status != http.HTTPStatus.OK:
            raise NotServed(f"{self._host} answered with status {status}")
        self._has_head = True
        self._sink.start(self._have)
