"""The server below the doors: aiohttp's, bounded in connections and drained without loss.

What is no HTTP at all gets a problem document too. Not for: what a request means (`http_door`).
"""

import asyncio
import logging
import secrets
from typing import Final

from aiohttp import web, web_protocol

from platform_server.endpoints import http_answers, http_door
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_FIRST_HEAD_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 75.0
_FRESH_SECONDS: Final = 0.25
_BEGIN_SECONDS: Final = 0.01
_LINGER_SECONDS: Final = 1.0  # how long the rest of a refused body is read and dropped


class Server(web.Server):
    """aiohttp's server: bounded in connections, with problem documents for what is not HTTP."""

    def __init__(
        self, door: http_door.HttpDoor, *, connections: int, draining: asyncio.Event
    ) -> None:
        super().__init__(
            door,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
        )
        self._most = connections
        self._draining = draining
        self._listening: list[asyncio.Server] = []

    def __call__(self) -> web_protocol.RequestHandler:
        """One connection's protocol."""
        return _Protocol(self, loop=self._loop, **self._kwargs)

    def connection_made(
        self, handler: web_protocol.RequestHandler, transport: asyncio.Transport
    ) -> None:
        """Takes the connection; when there are too many, closes the oldest that asks nothing.

        Where all are at work the newcomer goes, once aiohttp has begun with it.
        """
        super().connection_made(handler, transport)
        if len(self._connections) <= self._most:
            return
        for known, its_transport in self._connections.items():
            if known is not handler and isinstance(known, _Protocol) and known.is_idle:
                its_transport.abort()
                return
        self._loop.call_later(_BEGIN_SECONDS, transport.abort)

    def listens_on(self, listening: asyncio.Server) -> None:
        """Adds a socket that this server serves."""
        self._listening.append(listening)

    async def drain(self, *, seconds: float) -> None:
        """Takes nothing new, lets what is in work finish, then closes the rest.

        Who has connected a moment ago may still speak: the next engine does not see him.
        """
        self._draining.set()
        for listening in self._listening:
            listening.close()
        await asyncio.sleep(_FRESH_SECONDS)
        await self.shutdown(seconds)


class _Protocol(web_protocol.RequestHandler):
    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._loop.call_later(_FIRST_HEAD_SECONDS, self._close_if_silent)

    @property
    def is_idle(self) -> bool:
        """Whether no request of this connection is being answered."""
        return self._current_request is None

    def _close_if_silent(self) -> None:
        """Closes a connection that has not sent one whole head."""
        if self._request_count == 0 and self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("An answer was begun already.") from exc
        del message  # it may repeat bytes of the request
        code = "internal" if status >= 500 else "malformed"
        if code == "internal":
            _LOG.error("A connection met a fault of ours", exc_info=exc)
        problem = problems.Problem(
            code=code,
            detail="The request is not well-formed HTTP.",
            request_id=secrets.token_hex(8),
        )
        response = http_answers.problem_response(problem)
        response.force_close()
        return response
