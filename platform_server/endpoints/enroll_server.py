"""How the anonymous door is reached: over run/enroll.sock, and as two routes of the API.

Only the enrollment listener connects to the socket, so the header `x-enlist-peer` is believed
there and nowhere else; it is the machine's address. On the API port the caller's address is what
the gate makes of socket and trusted proxies.
"""

import logging
import secrets
from typing import Any, Final

import pydantic

from platform_server.endpoints import calls, enroll_door, refusals, routes
from platform_server.store import contract
from runtime_kit.http1 import messages
from wire_protocol import enrollment, problems, product

_LOG = logging.getLogger(__name__)
PEER_HEADER: Final = "x-enlist-peer"
_ENROLL: Final = product.ENROLL_PATH.encode("ascii")
_TRUST: Final = product.TRUST_PATH.encode("ascii")
_BUSY_SECONDS: Final = 1
_AWAY_SECONDS: Final = 30


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
        try:
            if request.target == _ENROLL:
                answered = await self._door.answer_enroll(request.body, address=address)
            else:
                answered = await self._door.answer_trust(request.body, address=address)
        except contract.StoreError as fault:
            return _response_of_problem(_store_problem(fault))
        except Exception:  # noqa: BLE001 - the edge: every fault becomes an answer
            request_id = secrets.token_hex(8)
            _LOG.exception("A request met a fault of ours", extra={"request_id": request_id})
            return _response_of_problem(
                problems.Problem(
                    code="internal",
                    detail=f"The Platform met a fault of its own; its log says more at "
                    f"{request_id}.",
                    request_id=request_id,
                )
            )
        return _response(answered)


def routes_of(door: enroll_door.EnrollDoor) -> tuple[routes.Route, ...]:
    """The two routes for the API port."""

    async def enroll(call: calls.Call[bytes, routes.NoQuery]) -> calls.Reply:
        return _reply(await door.answer_enroll(call.body, address=call.peer))

    async def trust(call: calls.Call[bytes, routes.NoQuery]) -> calls.Reply:
        return _reply(await door.answer_trust(call.body, address=call.peer))

    raw: dict[str, Any] = {"method": "POST", "raw_body": True}
    return (
        routes.Route(
            path=product.ENROLL_PATH,
            summary="Enroll this machine as the node that the token was issued for.",
            handler=enroll,
            request=enrollment.EnrollRequest,
            answer=enrollment.EnrollAnswer,
            status=201,
            other_statuses={200: "The same token and key again: the same answer."},
            problems=(
                "enrollment-refused",
                "worker-newer",
                "too-large",
                "too-many",
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


def _store_problem(fault: contract.StoreError) -> problems.Problem:
    """503 for what passes; anything else the store says is a fault of ours."""
    if isinstance(fault, contract.StoreFull):
        return problems.Problem(
            code="store-full",
            detail="The Platform's disk is full. Nothing was changed; try again later.",
            retry_after=_AWAY_SECONDS,
        )
    if isinstance(fault, contract.StoreBusy):
        return problems.Problem(
            code="store-busy",
            detail="The Platform's store is busy. Nothing was changed; try again.",
            retry_after=_BUSY_SECONDS,
        )
    if isinstance(fault, contract.StoreUnreachable):
        return problems.Problem(
            code="unavailable",
            detail="The Platform's store cannot be reached; try again later.",
            retry_after=_AWAY_SECONDS,
        )
    _LOG.error("The store refused an enrollment", exc_info=fault)
    return problems.Problem(code="internal", detail="The Platform met a fault of its own.")
