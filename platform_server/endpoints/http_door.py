"""HTTP around the routes; with `http_server` and `http_answers` all that touches aiohttp.

One `HttpDoor` a socket. It finds the route, asks the gate who calls, reads what the route takes,
runs the handler and writes its answer; every refusal and every fault leaves as a problem document
(RFC 9457). What a stranger can trigger comes first and is cheap: no body is read before the route,
the caller and his permission are known.
"""

import asyncio
import logging
import secrets
import socket
import struct
from collections.abc import Mapping
from typing import Final

import pydantic
from aiohttp import web

from platform_server.endpoints import (
    access_table,
    calls,
    doors,
    http_answers,
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
_NO_BODY_BYTES: Final = 1024  # enough to tell an empty body from one that is not wanted


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
            response = http_answers.problem_response(
                problem, more={"Allow": ", ".join(fault.allowed)}
            )
        except Exception as fault:  # noqa: BLE001 - the edge: every fault becomes an answer
            response = http_answers.problem_response(
                http_answers.problem_of(fault, request_id=request_id)
            )
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
        except (web.RequestPayloadError, ConnectionError):  # also a caller that left
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
            return await http_answers.write_stream(request, answer, request_id=request_id)
        if isinstance(answer, calls.Changed):
            raise TypeError("A handler answers what `mutate` gave it, not a bare Changed.")
        reply = (
            answer
            if isinstance(answer, calls.Reply)
            else calls.Reply(body=answer, status=route.status if answer is not None else 204)
        )
        return web.Response(
            body=http_answers.body_of(reply.body),
            status=reply.status,
            headers=http_answers.headers(
                request_id, media_type=reply.media_type if reply.body else None
            ),
        )


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
