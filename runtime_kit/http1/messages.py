"""Requests and answers as values.

Header names are lower case; a repeated header is one value joined by commas (RFC 9110, 5.3).
"""

import dataclasses
import datetime
import http
import ssl
from collections.abc import Mapping

from runtime_kit import clock
from runtime_kit.http1 import sending

NO_HEADERS: Mapping[str, str] = {}
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}
_WITHOUT_LENGTH = frozenset({204, 304})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request before its body: what a server can refuse on."""

    method: str
    target: bytes
    """As it came, not normalised."""
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    content_length: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A complete request."""

    method: str
    target: bytes
    """As it came, not normalised."""
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    body: bytes = dataclasses.field(repr=False)
    peer: str
    """The caller's IP address; empty on a Unix socket."""
    tls: ssl.SSLObject | None = dataclasses.field(default=None, repr=False)
    """For ``tls.check_client_certificate``; None without TLS."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer; length, ``cache-control: no-store`` and ``connection`` are added to it."""

    status: int
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = dataclasses.field(default=b"", repr=False)
    source: sending.Source | None = dataclasses.field(default=None, repr=False)
    """In place of ``body``: what is too large to hold. Whoever writes the answer closes it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = dataclasses.field(repr=False)


def encode_response(response: Response, *, close: bool, with_body: bool) -> bytes:
    """The bytes of an answer; of one with a source the head alone."""
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, '')}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in response.headers.items()]
    if response.status not in _WITHOUT_LENGTH:
        size = len(response.body) if response.source is None else response.source.size
        lines.append(f"content-length: {size}\r\n")
    if "date" not in response.headers:
        # RFC 9110, 6.6.1; a machine measures its clock against it.
        lines.append(f"date: {_http_date(clock.SystemClock().now())}\r\n")
    lines.append("cache-control: no-store\r\n")
    lines.append("connection: close\r\n\r\n" if close else "\r\n")
    head = "".join(lines).encode("latin-1")
    return head + response.body if with_body else head


def _http_date(moment: datetime.datetime) -> str:
    """An IMF-fixdate, whatever the locale (RFC 9110, 5.6.7)."""
    return (
        f"{_DAYS[moment.weekday()]}, {moment.day:02} {_MONTHS[moment.month - 1]} "
        f"{moment.year:04} {moment.hour:02}:{moment.minute:02}:{moment.second:02} GMT"
    )
