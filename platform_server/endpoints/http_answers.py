"""Answers as HTTP: JSON, problem documents (RFC 9457), streams, and the headers all of them carry.

Also the one place where an exception becomes a problem. Not for: deciding anything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

import pydantic
from aiohttp import web

from platform_server.endpoints import calls, refusals
from platform_server.store import contract
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_OUTCOME_UNKNOWN: Final = (
    "The store's answer was lost: whether the change was made is unknown. Look before you repeat "
    "it, or repeat it with the same Idempotency-Key."
)
_PART_SECONDS: Final = 30.0  # a reader that takes nothing for so long is let go

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


def problem_of(fault: Exception, *, request_id: str) -> problems.Problem:
    """The problem that an exception means to the caller; faults of ours go to the log in full."""
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
            if "unknown" in str(fault):  # the commit's answer was lost (store.contract)
                detail = _OUTCOME_UNKNOWN  # noqa: PLW2901 - said instead
            return problems.Problem(
                code=code,
                detail=detail or str(fault),
                request_id=request_id,
                retry_after=retry_after,
            )
    _LOG.error("A request met a fault of ours", exc_info=fault, extra={"request_id": request_id})
    return problems.Problem(
        code="internal",
        detail=f"The Platform met a fault of its own; its log says more at {request_id}.",
        request_id=request_id,
    )


async def write_stream(
    request: web.BaseRequest, answer: calls.Stream, *, request_id: str
) -> web.StreamResponse:
    """Sends a stream to its end, or until the reader leaves or takes nothing any more."""
    response = web.StreamResponse(
        status=200,
        headers={**headers(request_id, media_type=answer.media_type), **answer.headers},
    )
    try:
        async with contextlib.aclosing(answer.parts) as parts:
            await response.prepare(request)
            async for part in parts:
                async with asyncio.timeout(_PART_SECONDS):
                    await response.write(part)
        await response.write_eof()
    except (ConnectionResetError, TimeoutError):
        _LOG.debug("A reader left", extra={"request_id": request_id})
        _break_off(request, answer=answer)
    except contract.StoreError as fault:
        # the head is out: all that is left is to end the stream, and the reader resumes
        _LOG.warning("A stream ends early", extra={"reason": str(fault)})
        response.force_close()
        _break_off(request, answer=answer)
    except Exception:
        _break_off(request, answer=answer)
        raise
    return response


def _break_off(request: web.BaseRequest, *, answer: calls.Stream) -> None:
    """Lets no reader take a part for the whole."""
    if answer.whole and request.transport is not None:
        request.transport.abort()


def problem_response(
    problem: problems.Problem, *, more: Mapping[str, str] | None = None
) -> web.Response:
    """A problem document with the status and the headers that belong to its code."""
    all_headers = headers(problem.request_id, media_type=problems.MEDIA_TYPE) | dict(more or {})
    if problem.retry_after is not None:
        all_headers["Retry-After"] = str(problem.retry_after)
    if problem.code == "not-signed-in":
        all_headers["WWW-Authenticate"] = 'Bearer realm="enlist"'
    return web.Response(body=problem.to_json(), status=problem.meaning.status, headers=all_headers)


def headers(request_id: str, *, media_type: str | None) -> dict[str, str]:
    """What every answer carries."""
    carried = {
        "Server": "enlist",
        "X-Request-Id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if media_type is not None:
        carried["Content-Type"] = media_type
    return carried


def body_of(body: Any) -> bytes | None:
    """A handler's answer as JSON; bytes are JSON already."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, pydantic.BaseModel):
        return body.model_dump_json(by_alias=True).encode()
    return pydantic.TypeAdapter(dict[str, Any]).dump_json(dict(body))
