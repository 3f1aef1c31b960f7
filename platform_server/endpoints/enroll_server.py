"""How the anonymous door is reached: over run/enroll.sock, and as two routes of the API.

Only the enrollment listener connects to the socket, so the header `x-enlist-peer` is believed
there and nowhere else; it is the machine's address. On the API port the caller's address is what
the gate makes of socket and trusted proxies.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

import pydantic

from platform_server.endpoints import calls, enroll_door, refusals, routes
from platform_server.store import contract
from runtime_kit.http1 import messages
from wire_protocol import enrollment, problems, product

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 2.0
PEER_HEADER: Final = "x-enlist-peer"
_ENROLL: Final = product.ENROLL_PATH.encode("ascii")
_TRUST: Final = product.TRUST_PATH.encode("ascii")
# What a refusal of the store means to a machine: code, sentence and Retry-After in seconds.
_STORE_FAULTS: Final[tuple[tuple[type[contract.StoreError], str, str, int], ...]] = (
    (
        contract.StoreFull,
        "store-full",
        "The Platform's disk is full. Nothing was changed; try again later.",
        30,
    ),
    (
        contract.StoreBusy,
        "store-busy",
        "The Platform's store is busy. Nothing was changed; try again.",
        1,
    ),
    (
        contract.StoreUnreachable,
        "unavailable",
        "The Platform's store cannot be reached; try again later.",
        30,
    ),
)


class TrustQuestion(pydantic.BaseModel):
    """`POST /trust` asks nothing: an empty object."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class TrustAnswer(pydantic.BaseModel):
    """The present statement and the last ones that changed keys, oldest first.

    Only the signed bytes in `statement` count; the rest is shown for people.
    """

    statement: str
    signatures: list[dict[str, Any]]
    chain: list[dict[str, Any]]
    trust_keys: list[dict[str, Any]]
    pins: list[str]
    gateway_pins: list[str]


class SocketDoor:
    """Answers what comes over run/enroll.sock; give `answer` to `http1.server.Server`."""

    def __init__(self, door: enroll_door.EnrollDoor) -> None:
        self._door = door

    async def answer(self, request: messages.Request) -> messages.Response:
        """Answers one request; a fault of ours leaves as a problem document too."""
        if request.method != "POST" or request.target not in (_ENROLL, _TRUST):
            return messages.Response(status=404)
        address = request.headers.get(PEER_HEADER, "")  # without it: nobody known, never "local"
        request_id = secrets.token_hex(8)
        ask = self._door.answer_enroll if request.target == _ENROLL else self._door.answer_trust
        try:
            answered = await ask(request.body, address=address, request_id=request_id)
        except contract.StoreError as fault:
            return _response_of_problem(_store_problem(fault, request_id=request_id))
        except Exception:  # noqa: BLE001 - the edge: every fault becomes an answer
            _LOG.exception("A request met a fault of ours", extra={"request_id": request_id})
            return _response_of_problem(_fault_of_ours(request_id))
        _LOG.debug(
            "Request answered",
            extra={
                "request_id": request_id,
                "route": request.target.decode("ascii"),
                "status": answered.status,
            },
        )
        return _response(answered)


class Places:
    """How many strangers' requests are in work at once on the API port, as at the listener's."""

    def __init__(self, most: int, *, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._free = asyncio.Semaphore(most)
        self._wait_seconds = wait_seconds

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """One place for the length of an `async with`; refuses when none came free in time."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise refusals.Refusal(
                "unavailable",
                "Too many requests are in work; try again.",
                retry_after_seconds=1,
            ) from None
        try:
            yield
        finally:
            self._free.release()


def routes_of(door: enroll_door.EnrollDoor, *, places: Places) -> tuple[routes.Route, ...]:
    """The two routes for the API port."""

    async def enroll(call: calls.Call[bytes, routes.NoQuery]) -> calls.Reply:
        async with places.taken():
            return _reply(
                await door.answer_enroll(call.body, address=call.peer, request_id=call.request_id)
            )

    async def trust(call: calls.Call[bytes, routes.NoQuery]) -> calls.Reply:
        async with places.taken():
            return _reply(
                await door.answer_trust(call.body, address=call.peer, request_id=call.request_id)
            )

    raw: dict[str, Any] = {"method": "POST", "raw_body": True}
    return (
        routes.Route(
            path=product.ENROLL_PATH,
            summary="Enroll this machine as the node that the token was issued for.",
            handler=enroll,
            request=enrollment.EnrollRequest,
            answer=enrollment.EnrollAnswer,
            status=201,
            other_statuses={
                200: "The same token and key again: the same answer.",
                204: "A phase of an ordered machine's first boot was written down.",
            },
            problems=(
                "enrollment-refused",
                "worker-newer",
                "too-large",
                "too-many",
                "provider-unavailable",
            ),
            **raw,
        ),
        routes.Route(
            path=product.TRUST_PATH,
            summary="Ask for the Platform's signed trust statement.",
            handler=trust,
            request=TrustQuestion,
            answer=TrustAnswer,
            problems=("nodes-disabled", "too-many"),
            **raw,
        ),
    )


def _reply(answered: enroll_door.DoorAnswer) -> calls.Reply:
    if answered.retry_after_seconds is not None and answered.status == 503:
        raise refusals.Refusal(
            "provider-unavailable",
            "The provider's view of this machine is not known yet; ask again.",
            retry_after_seconds=answered.retry_after_seconds,
        )
    if answered.retry_after_seconds is not None:
        raise refusals.Refusal(
            "too-many",
            "Too many failed attempts; try again later.",
            retry_after_seconds=answered.retry_after_seconds,
        )
    return calls.Reply(body=answered.body, status=answered.status, media_type=answered.media_type)


def _response(answered: enroll_door.DoorAnswer) -> messages.Response:
    headers = {"content-type": answered.media_type}
    if answered.retry_after_seconds is not None:
        headers["retry-after"] = str(answered.retry_after_seconds)
    return messages.Response(status=answered.status, headers=headers, body=answered.body)


def _response_of_problem(problem: problems.Problem) -> messages.Response:
    headers = {"content-type": problems.MEDIA_TYPE}
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    return messages.Response(status=problem.meaning.status, headers=headers, body=problem.to_json())


def _store_problem(fault: contract.StoreError, *, request_id: str) -> problems.Problem:
    """503 for what passes; anything else the store says is a fault of ours."""
    for kind, code, detail, retry_after in _STORE_FAULTS:
        if isinstance(fault, kind):
            return problems.Problem(
                code=code, detail=detail, request_id=request_id, retry_after=retry_after
            )
    _LOG.error("The store refused an enrollment", exc_info=fault, extra={"request_id": request_id})
    return _fault_of_ours(request_id)


def _fault_of_ours(request_id: str) -> problems.Problem:
    return problems.Problem(
        code="internal",
        detail=f"The Platform met a fault of its own; its log says more at {request_id}.",
        request_id=request_id,
    )
