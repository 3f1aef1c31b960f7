"""Kept-alive connections to one server of ours behind a Unix socket.

For: the leg from a public port to the process that decides. Requests handed to it must be safe to
send again: where a connection breaks before the first byte of an answer, the request goes out over
a new one, at most two times. While nobody listens on the socket the request waits, within its own
limit.
Not for: other people's servers; answers must state their length.
Known limit: no more connections than callers; whoever calls bounds how many there are.
"""

import asyncio
import contextlib
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from runtime_kit import failures
from runtime_kit.http1 import heads, messages

_MAX_HEAD_BYTES = 16_384
_MAX_IDLE = 64
_RETRY_S = 0.05  # between attempts to reach a socket on which nobody listens
_ABSENT = frozenset({errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN, errno.ECONNRESET})
_BODILESS = frozenset({204, 304})


class Unreachable(failures.NetworkFailure):
    """Nobody answered on the socket in time; the request may or may not have had its effect."""


class _ClosedEarly(Exception):
    """The connection ended before the first byte of an answer."""


class Pool:
    """Connections to one Unix socket, made when needed and kept while they last."""

    def __init__(self, path: Path, *, max_body_bytes: int = 1_048_576) -> None:
        self._path = str(path)
        self._max_body_bytes = max_body_bytes
        self._idle: list[_Connection] = []

    async def exchange(
        self,
        *,
        method: str,
        target: bytes,
        headers: Mapping[str, str] = messages.NO_HEADERS,
        body: bytes = b"",
        timeout_s: float = 10.0,
    ) -> messages.Answer:
        """Send one request and read its answer, waiting for the server if it is away.

        Raises:
            Unreachable: No complete answer within ``timeout_s``.
        """
        lines = [f"{method} {target.decode('ascii')} HTTP/1.1\r\nhost: localhost\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
        lines.append(f"content-length: {len(body)}\r\n\r\n")
        request = "".join(lines).encode("latin-1") + body
        try:
            async with asyncio.timeout(timeout_s):
                return await self._send(request)
        except TimeoutError as error:
            raise Unreachable(f"No answer on {self._path} within {timeout_s:g} s") from error
        except (heads.Malformed, _ClosedEarly, OSError) as error:
            raise Unreachable(f"No answer on {self._path}: {error}") from error

    def close(self) -> None:
        """Close the idle connections; those in use end with their exchange."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def _send(self, request: bytes) -> messages.Answer:
        """Over a kept connection, then over new ones: of the kept, others may be closed too."""
        kept = self._find_idle()
        if kept is not None:
            with contextlib.suppress(_ClosedEarly):
                return await self._send_over(kept, request)
        with contextlib.suppress(_ClosedEarly):  # taken by a server that was about to go
            return await self._send_over(await self._connect(), request)
        return await self._send_over(await self._connect(), request)

    async def _send_over(self, connection: "_Connection", request: bytes) -> messages.Answer:
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.abort()
            raise
        if connection.reusable and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    def _find_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, connection = await loop.create_unix_connection(
                    lambda: _Connection(self._max_body_bytes), self._path
                )
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                return connection


class _Connection(asyncio.Protocol):
    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiter: asyncio.Future[messages.Answer] | None = None
        self._head: tuple[int, dict[str, str], int] | None = None
        self.reusable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.reusable = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._buffer or self._head is not None:
            self._fail(exc or ConnectionResetError("the answer broke off"))
        else:
            self._fail(_ClosedEarly("closed without an answer"))

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.reusable = False  # bytes that answer nothing
            self.abort()
            return
        self._buffer += data
        try:
            self._advance(self._waiter)
        except heads.Malformed as error:
            self._fail(error)

    async def exchange(self, request: bytes) -> messages.Answer:
        if self._transport is None or not self.reusable:
            raise _ClosedEarly("closed before the request")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _advance(self, waiter: asyncio.Future[messages.Answer]) -> None:
        if self._head is None:
            end = self._buffer.find(heads.END)
            if end < 0:
                if len(self._buffer) > _MAX_HEAD_BYTES:
                    raise heads.Malformed("The head is too long")
                return
            size = end + len(heads.END)
            status, headers, length = heads.parse_answer(bytes(self._buffer[:size]))
            del self._buffer[:size]
            if length is None and status not in _BODILESS:
                raise heads.Malformed("The answer does not state its length")
            if (length or 0) > self._max_body_bytes:
                raise heads.Malformed("The answer is too long")
            self._head = status, headers, length or 0
        status, headers, length = self._head
        if len(self._buffer) < length:
            return
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._head = None
        if self._buffer or headers.get("connection", "").lower() == "close":
            self.reusable = False
        with contextlib.suppress(asyncio.InvalidStateError):
            waiter.set_result(messages.Answer(status=status, headers=headers, body=body))

    def _fail(self, error: Exception) -> None:
        self.reusable = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
