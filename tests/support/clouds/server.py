"""A loopback HTTP server in front of a fake cloud, which does to it what the script says.

The fake only answers requests; losing answers, holding them back and refusing credentials is done
here, once for all fakes. Every exchange passes the referee where there is one.
"""

import contextlib
import dataclasses
import datetime
import email.utils
import http.server
import json
import socket
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any, Protocol, Self

from runtime_kit import clock as clock_kit
from tests.support.clouds import ledger as ledger_kit
from tests.support.clouds import script as script_kit

_HTML = b"<html><head><title>Bad Gateway</title></head><body>nginx</body></html>"
_STOP_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request. `query` keeps every value of a name; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's JSON; raises `ValueError` where it is none."""
        return json.loads(self.body)

    def first(self, name: str, otherwise: str = "") -> str:
        """The first value of this name in the query."""
        return self.query.get(name, [otherwise])[0]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; `document` is sent as JSON, `raw` as it is."""

    status: int = 200
    document: Any = None
    raw: bytes | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def body(self) -> bytes:
        """The bytes that are sent."""
        if self.raw is not None:
            return self.raw
        return b"" if self.document is None else json.dumps(self.document).encode()


class Cloud(Protocol):
    """What a fake is to the server. Its methods are called one at a time."""

    script: script_kit.Script
    ledger: ledger_kit.Ledger
    clock: clock_kit.Clock

    def name_of(self, asked: Asked) -> str:
        """The call's name in the driver's table; "" where there is no such route."""
        ...

    def answer(self, asked: Asked, *, name: str, async_fail: script_kit.Armed | None) -> Reply:
        """Does the work. `async_fail`: accept it, and let it fail afterwards with this code."""
        ...

    def error(self, *, status: int | None, code: str, message: str) -> Reply:
        """The provider's error of this code; `status` None: that which the provider gives it."""
        ...

    def unauthorized(self) -> Reply:
        """How the provider refuses a credential that is none (any more)."""
        ...

    def rate_limited(self) -> Reply:
        """How the provider refuses a call too many."""
        ...


class Referee(Protocol):
    """Holds every exchange to the provider's own description."""

    def check(self, asked: Asked, reply: Reply, *, address: str) -> None:
        """Writes down what the description does not allow."""
        ...


class Served:
    """A fake cloud that can be called at `address`; a context manager."""

    def __init__(self, cloud: Cloud, *, referee: Referee | None = None) -> None:
        self.cloud = cloud
        self._referee = referee
        self._work = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.broken: list[BaseException] = []  # faults of the fake itself

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every connection and the threads behind them; may be repeated."""
        self.cloud.script.release()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(_STOP_SECONDS)
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def exchange(self, asked: Asked) -> Reply | None:
        """What is answered; None: the connection is closed without a word."""
        cloud, verb = self.cloud, script_kit.Verb
        with self._work:
            name = cloud.name_of(asked)
            cloud.ledger.seen.append(
                ledger_kit.Seen(
                    at=cloud.script.now(cloud.clock),
                    name=name,
                    method=asked.method,
                    target=_target(asked),
                    headers=dict(asked.headers),
                    body=asked.body,
                )
            )
        if cloud.script.is_token_revoked:
            return self._refereed(asked, cloud.unauthorized())
        armed = cloud.script.take(name)
        if armed is None:
            return self._worked(asked, name=name)
        if armed.verb in {verb.HANG, verb.BEFORE_5XX, verb.RATE, verb.FAIL_CODE}:
            return self._refused(asked, armed)
        if armed.verb is verb.DELAY:
            cloud.script.hold(armed.seconds, clock=cloud.clock)
            return self._worked(asked, name=name)
        if armed.verb is verb.ASYNC_FAIL:
            return self._worked(asked, name=name, async_fail=armed)
        self._worked(asked, name=name)
        return None if armed.verb is verb.COMMIT_THEN_DROP else self._gateway_error(armed)

    def _refused(self, asked: Asked, armed: script_kit.Armed) -> Reply | None:
        cloud, verb = self.cloud, script_kit.Verb
        if armed.verb is verb.HANG:
            cloud.script.hold(None, clock=cloud.clock)
            return None
        if armed.verb is verb.BEFORE_5XX:
            return self._gateway_error(armed)
        if armed.verb is verb.RATE:
            reply = cloud.rate_limited()
            reply = dataclasses.replace(reply, headers={**reply.headers, **armed.headers})
        else:
            reply = cloud.error(status=armed.status, code=armed.code, message=armed.message)
        return self._refereed(asked, reply)

    def _worked(
        self, asked: Asked, *, name: str, async_fail: script_kit.Armed | None = None
    ) -> Reply:
        with self._work:
            try:
                reply = self.cloud.answer(asked, name=name, async_fail=async_fail)
            except Exception as fault:
                self.broken.append(fault)
                raise
        return self._refereed(asked, reply)

    def _refereed(self, asked: Asked, reply: Reply) -> Reply:
        if self._referee is not None:
            with self._work:
                self._referee.check(asked, reply, address=self.address)
        return reply

    def _gateway_error(self, armed: script_kit.Armed) -> Reply:
        status = armed.status or 504
        if armed.raw is not None:
            return Reply(status=status, raw=armed.raw, headers=armed.headers)
        if armed.html:
            headers = {"content-type": "text/html", **armed.headers}
            return Reply(status=status, raw=_HTML, headers=headers)
        reply = self.cloud.error(
            status=status, code=armed.code or "server_error", message=armed.message
        )
        return dataclasses.replace(reply, headers={**reply.headers, **armed.headers})

    def working(self) -> threading.Lock:
        """To be held by whoever changes the fake beside its requests."""
        return self._work

    def date(self) -> str:
        """The Date header, by the fake's own clock."""
        now: datetime.datetime = self.cloud.script.now(self.cloud.clock)
        return email.utils.format_datetime(now, usegmt=True)

    def opened(self, connection: socket.socket) -> None:
        """Remembers a connection, to end it at the close."""
        self._sockets.add(connection)

    def ended(self, connection: socket.socket) -> None:
        """Forgets it."""
        self._sockets.discard(connection)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that went away is what many tests are about."""


def _handler(served: Served) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            served.opened(self.connection)

        def finish(self) -> None:
            served.ended(self.connection)
            with contextlib.suppress(OSError):
                super().finish()

        def log_message(self, *_: object) -> None:
            pass

        def _do(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            parts = urllib.parse.urlsplit(self.path)
            asked = Asked(
                method=self.command,
                path=urllib.parse.unquote(parts.path),
                query=urllib.parse.parse_qs(parts.query, keep_blank_values=True),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
            )
            reply = served.exchange(asked)
            if reply is None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            content = reply.body()
            self.send_response_only(reply.status)
            headers = {"content-type": "application/json", "date": served.date(), **reply.headers}
            for header, value in headers.items():
                self.send_header(header, value)
            if reply.status != http.HTTPStatus.NO_CONTENT:
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD" and reply.status != http.HTTPStatus.NO_CONTENT:
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _do  # noqa: N815

    return Handler


def _target(asked: Asked) -> str:
    query = urllib.parse.urlencode(asked.query, doseq=True)
    return f"{asked.path}?{query}" if query else asked.path
