"""One request over an open connection, one answer, both bounded.

For: servers that may be anybody's (a Platform behind other people's TLS), hence h11, which also
reads chunked answers.
Not for: opening the connection (``server_trust``), redirects (an answer like any other), retries.
Known limit: one exchange a connection; close it afterwards.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import ClassVar

import h11

from runtime_kit import failures
from runtime_kit.http1 import messages

_READ_BYTES = 65_536
_MAX_HEAD_BYTES = 32_768


class NoAnswer(failures.NetworkFailure):
    """No answer, or too late, or not HTTP; the request may have had its effect all the same."""


class AnswerTooLong(failures.NetworkFailure):
    """The answer is longer than any answer of the kind."""

    kind: ClassVar[failures.Kind] = failures.Kind.PERMANENT


class ClientRefused(failures.NetworkFailure):
    """The server does not accept this client's certificate."""

    kind: ClassVar[failures.Kind] = failures.Kind.NEEDS_OPERATOR


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    method: str,
    target: str,
    host: str,
    headers: Mapping[str, str] = messages.NO_HEADERS,
    body: bytes = b"",
    max_body_bytes: int = 1_048_576,
    timeout_s: float = 30.0,
) -> messages.Answer:
    """Send one request and read its answer.

    Args:
        reader: Of an open connection.
        writer: Of the same; stays open, close it afterwards.
        method: Such as ``POST``.
        target: Such as ``/api/v1/enroll``.
        host: For the Host header, as ``dial.Origin.authority``.
        headers: More headers; Host, Content-Length and Connection are set here.
        body: Sent with its length.
        max_body_bytes: How long the answer's body may be.
        timeout_s: Limit on everything together.

    Raises:
        NoAnswer: Trying again may help; the request may have had its effect.
        AnswerTooLong: Nothing that long is expected.
        ClientRefused: The server refused this client's certificate.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    fields = [("Host", host), *headers.items(), ("Connection", "close")]
    if body or method not in ("GET", "HEAD"):
        fields.append(("Content-Length", str(len(body))))
    out = connection.send(h11.Request(method=method, target=target, headers=fields)) or b""
    if body:
        out += connection.send(h11.Data(data=body)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(out)
            await writer.drain()
            return await _read(reader, connection=connection, host=host, limit=max_body_bytes)
    except TimeoutError as error:
        raise NoAnswer(f"{host} did not answer within {timeout_s:g} s") from error
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if "CERT" in reason.upper() or "UNKNOWN_CA" in reason.upper():
            raise ClientRefused(f"{host} refused this client's certificate: {reason}") from error
        raise NoAnswer(f"{host} broke off: {reason}") from error
    except OSError as error:
        raise NoAnswer(f"{host} broke off: {error.strerror or type(error).__name__}") from error
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"{host} did not answer in HTTP: {error}") from error


async def _read(
    reader: asyncio.StreamReader, *, connection: h11.Connection, host: str, limit: int
) -> messages.Answer:
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_READ_BYTES)
            if not data and head is None:
                raise NoAnswer(f"{host} closed the connection without an answer")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > limit:
                raise AnswerTooLong(f"{host} answered with more than {limit} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return messages.Answer(
                status=head.status_code,
                headers={
                    bytes(name).decode("latin-1"): bytes(value).decode("latin-1")
                    for name, value in head.headers
                },
                body=bytes(body),
            )
        elif not isinstance(event, h11.InformationalResponse):
            raise NoAnswer(f"{host} did not finish its answer")
