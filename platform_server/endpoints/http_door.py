"""HTTP around the routes: the only module of the API that touches aiohttp.

One `HttpDoor` a socket. It finds the route, asks the gate who calls, reads what the route takes,
runs the handler and writes its answer; every refusal and every fault leaves as a problem document
(RFC 9457). What a stranger can trigger comes first and is cheap: no body is read before the route,
the caller and his permission are known.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

import pydantic
from aiohttp import web, web_protocol

from platform_server.endpoints import (
    access_table,
    calls,
    doors,
    measures,
    mutations,
    parsing,
    refusals,
    router,
    routes,
)
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
_BODY_SECONDS: Final = 10.0
_FIRST_HEAD_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 75.0
_FRESH_SECONDS: Final = 0.25
_LINGER_SECONDS: Final = 1.0  # how long the rest of a refused body is read and dropped
_NO_BODY_BYTES: Final = 1024  # enough to tell an empty body from one that is not wanted

# What a refusal of the store means to the caller: its code, sentence and Retry-After in seconds.
_STORE_FAULTS: Final[tuple[tuple[type[contract.StoreError], str, str, int | None], ...]] = (
    (
        contract.StoreBusy,
        "store-busy",
        "The Platform's store is busy. Nothing was changed; try again.",
        1,
    ),
    (
        contract.StoreFull,
        "store-full",
        "The Platform's disk is full. Nothing was changed; free space there.",
        30,
    ),
    (
        contract.StoreUnreachable,
        "unavailable",
        "The Platform's store cannot be reached; its log says more.",
        10,
    ),
    (
        contract.StoreConflict,
        "conflict",
        "Another call changed the same thing at the same time; look again.",
        None,
    ),
    (contract.StoreInvalid, "invalid", "", None),
)


class HttpDoor:
    """Serves one socket's requests."""

    def __init__(
        self,
        served: router.Router,
        *,
        door: doors.Door,
        gate: doors.Gate,
        store: contract.Store,
        settings: groups.Settings,
        clock: clock_kit.Clock,
        meter: measures.Meter,
        draining: asyncio.Event,
    ) -> None:
        self._draining = draining
        self._router = served
        self._door = door
        self._gate = gate
        self._store = store
        self._settings = settings
        self._clock = clock
        self._meter = meter
        self._rules = {route.key: access_table.permission_of(route.key) for route in served.routes}

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request; never raises but when cancelled."""
        request_id = secrets.token_hex(8)
        started = self._clock.monotonic()
        path = "unmatched"
        try:
            match, query = self._match(request)
            path = match.route.path
            answer = await self._answer(request, match=match, query=query, request_id=request_id)
            response = await self._write(request, answer, route=match.route, request_id=request_id)
        except asyncio.CancelledError:
            raise
        except router.MethodNotAllowed as fault:
            problem = problems.Problem(
                code="method-not-allowed", detail=str(fault), request_id=request_id
            )
            response = _problem_response(problem, headers={"Allow": ", ".join(fault.allowed)})
        except Exception as fault:  # noqa: BLE001 - the edge: every fault becomes an answer
            response = _problem_response(self._problem_of(fault, request_id=request_id))
        if self._draining.is_set():
            response.force_close()
        self._meter.answered(
            method=request.method if path != "unmatched" else "-",
            path=path,
            status=response.status,
            seconds=self._clock.monotonic() - started,
        )
        _LOG.debug(
            "Request answered",
            extra={
                "request_id": request_id,
                "door": self._door.value,
                "route": path,
                "status": response.status,
            },
        )
        return response

    def _match(self, request: web.BaseRequest) -> tuple[router.Match, list[tuple[str, str]]]:
        try:
            target = router.read_target(request.raw_path)
        except router.Malformed as fault:
            raise refusals.Refusal("malformed", str(fault)) from None
        try:
            return self._router.find(request.method, target.path), list(target.query)
        except router.NotFound:
            raise refusals.Refusal("not-found", "There is nothing at this address.") from None

    async def _answer(
        self,
        request: web.BaseRequest,
        *,
        match: router.Match,
        query: list[tuple[str, str]],
        request_id: str,
    ) -> calls.Answer:
        route = match.route
        rule = self._rules[route.key]
        caller = doors.Caller(
            door=self._door,
            peer_uid=_peer_uid(request) if self._door is doors.Door.LOCAL else None,
            peer_address=_peer_address(request),
            headers=_lower(request.headers),
        )
        principal = await self._gate.principal_of(caller, rule=rule)
        check, fields = parsing.split_check(query, allowed=route.changes)
        self._gate.require(principal, caller=caller, rule=rule, check=check)
        parsed_query = parsing.read_query(fields, model=route.query)
        body = await self._read_body(request, route=route)
        key = caller.headers.get("idempotency-key") if route.idempotent_by_key else None
        return await route.handler(
            calls.Call(
                principal=principal,
                store=self._store,
                settings=self._settings,
                clock=self._clock,
                body=body,
                query=parsed_query,
                path=match.path,
                check=check,
                request_id=request_id,
                peer=self._gate.address_of(caller),
                headers=caller.headers,
                run=mutations.Mutation(
                    self._store,
                    clock=self._clock,
                    route=route,
                    target=f"{route.method} {request.path}",
                    principal=principal.name,
                    body=body if isinstance(body, pydantic.BaseModel) else None,
                    check=check,
                    key=mutations.read_key(key),
                ),
            )
        )

    async def _read_body(
        self, request: web.BaseRequest, *, route: routes.Route
    ) -> pydantic.BaseModel | bytes | None:
        if route.request is None:
            if request.body_exists and await self._read_bytes(request, most=_NO_BODY_BYTES):
                raise refusals.Refusal("invalid", "This request takes no body.")
            return None
        if request.headers.get("Content-Type") is None or (
            request.content_type != "application/json"
        ):
            raise refusals.Refusal(
                "unsupported-media-type", "Send JSON with Content-Type: application/json."
            )
        group = self._settings.enrollment if route.raw_body else self._settings.api
        raw = await self._read_bytes(request, most=group.body_bytes)
        return raw if route.raw_body else parsing.read_body(raw, model=route.request)

    async def _read_bytes(self, request: web.BaseRequest, *, most: int) -> bytes:
        too_large = refusals.Refusal("too-large", f"The body may have at most {most} bytes.")
        if (request.content_length or 0) > most:
            raise too_large
        parts: list[bytes] = []
        left = most
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while part := await request.content.readany():
                    left -= len(part)
                    if left < 0:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise refusals.Refusal("malformed", "The body did not arrive in time.") from None
        except web.RequestPayloadError:
            raise refusals.Refusal("malformed", "The body could not be read.") from None
        return b"".join(parts)

    async def _write(
        self,
        request: web.BaseRequest,
        answer: calls.Answer,
        *,
        route: routes.Route,
        request_id: str,
    ) -> web.StreamResponse:
        if isinstance(answer, calls.Stream):
            return await _write_stream(request, answer, request_id=request_id)
        if isinstance(answer, calls.Changed):
            raise TypeError("A handler answers what `mutate` gave it, not a bare Changed.")
        reply = (
            answer
            if isinstance(answer, calls.Reply)
            else calls.Reply(body=answer, status=route.status if answer is not None else 204)
        )
        return web.Response(
            body=_body_of(reply.body),
            status=reply.status,
            headers=_headers(request_id, media_type=reply.media_type if reply.body else None),
        )

    def _problem_of(self, fault: Exception, *, request_id: str) -> problems.Problem:
        if isinstance(fault, refusals.Refusal):
            return problems.Problem(
                code=fault.code,
                detail=fault.detail,
                request_id=request_id,
                retry_after=fault.retry_after_seconds,
                fields=fault.members,
            )
        for kind, code, detail, retry_after in _STORE_FAULTS:
            if isinstance(fault, kind):
                _LOG.warning("The store refused", extra={"code": code, "detail": str(fault)})
                return problems.Problem(
                    code=code,
                    detail=detail or str(fault),
                    request_id=request_id,
                    retry_after=retry_after,
                )
        _LOG.error(
            "A request met a fault of ours", exc_info=fault, extra={"request_id": request_id}
        )
        return problems.Problem(
            code="internal",
            detail=f"The Platform met a fault of its own; its log says more at {request_id}.",
            request_id=request_id,
        )


class Server(web.Server):
    """aiohttp's server: bounded in connections, with problem documents for what is not HTTP."""

    def __init__(self, door: HttpDoor, *, connections: int, draining: asyncio.Event) -> None:
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
        """Takes the connection, or closes it at once when there are too many."""
        super().connection_made(handler, transport)
        if len(self._connections) > self._most:
            transport.abort()

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
        response = _problem_response(problem)
        response.force_close()
        return response


async def _write_stream(
    request: web.BaseRequest, answer: calls.Stream, *, request_id: str
) -> web.StreamResponse:
    response = web.StreamResponse(
        status=200, headers=_headers(request_id, media_type=answer.media_type)
    )
    try:
        await response.prepare(request)
        async with contextlib.aclosing(answer.parts) as parts:
            async for part in parts:
                await response.write(part)
        await response.write_eof()
    except ConnectionResetError:
        _LOG.debug("A reader left", extra={"request_id": request_id})
    except contract.StoreError as fault:
        # the head is out: all that is left is to end the stream, and the reader resumes
        _LOG.warning("A stream ends early", extra={"reason": str(fault)})
        response.force_close()
    return response


def _problem_response(
    problem: problems.Problem, *, headers: Mapping[str, str] | None = None
) -> web.Response:
    all_headers = _headers(problem.request_id, media_type=problems.MEDIA_TYPE) | dict(headers or {})
    if problem.retry_after is not None:
        all_headers["Retry-After"] = str(problem.retry_after)
    if problem.code == "not-signed-in":
        all_headers["WWW-Authenticate"] = 'Bearer realm="enlist"'
    return web.Response(body=problem.to_json(), status=problem.meaning.status, headers=all_headers)


def _headers(request_id: str, *, media_type: str | None) -> dict[str, str]:
    headers = {
        "Server": "enlist",
        "X-Request-Id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if media_type is not None:
        headers["Content-Type"] = media_type
    return headers


def _body_of(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, pydantic.BaseModel):
        return body.model_dump_json(by_alias=True).encode()
    return pydantic.TypeAdapter(dict[str, Any]).dump_json(dict(body))


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    lowered: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        # a header sent twice is one list (RFC 9110, section 5.3)
        lowered[key] = f"{lowered[key]}, {value}" if key in lowered else value
    return lowered


def _peer_uid(request: web.BaseRequest) -> int | None:
    transport = request.transport
    if transport is None:
        return None
    peer = transport.get_extra_info("socket")
    if peer is None:
        return None
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(credentials)[1]
    return uid


def _peer_address(request: web.BaseRequest) -> str | None:
    transport = request.transport
    if transport is None:
        return None
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return None
    address = str(name[0]).partition("%")[0]
    return address.removeprefix("::ffff:") if "." in address else address
