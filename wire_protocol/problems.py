"""Problem documents (RFC 9457), their codes, and what a program does about each.

Every failure is one of three kinds: transient (the same again may work), permanent (it will not),
needs-operator (a person must act, and the message names the command). Status, kind and the CLI's
exit code hang together here and nowhere else.
"""

import dataclasses
import enum
import json
from typing import Any

MEDIA_TYPE = "application/problem+json"
MAX_BYTES = 65_536


class Kind(enum.StrEnum):
    """What to do about a failure."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    NEEDS_OPERATOR = "needs-operator"


class Exit(enum.IntEnum):
    """Exit codes of every `enlist` command; systemd units rely on them."""

    DONE = 0
    OUR_FAULT = 1
    INVALID = 2
    REFUSED = 3
    CONFLICT = 4
    NOT_FOUND = 5
    NEEDS_OPERATOR = 6
    NOT_PERMITTED = 7
    TEMPORARY = 75


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """One code: the HTTP status it comes with, what kind it is, its title, the CLI's exit code."""

    status: int
    kind: Kind
    title: str
    exit: Exit


_T, _P, _N = Kind.TRANSIENT, Kind.PERMANENT, Kind.NEEDS_OPERATOR

CODES: dict[str, Code] = {
    "enrollment-refused": Code(403, _P, "Enrollment refused.", Exit.REFUSED),
    "worker-newer": Code(409, _N, "The machine is newer than the Platform.", Exit.NEEDS_OPERATOR),
    "node-exists": Code(409, _P, "The node exists.", Exit.CONFLICT),
    "node-in-use": Code(409, _P, "The node is in use.", Exit.CONFLICT),
    "node-removed": Code(409, _P, "The node was removed.", Exit.CONFLICT),
    "node-state": Code(409, _P, "The node's state does not allow this.", Exit.CONFLICT),
    "enrollment-pending": Code(409, _P, "An unused enrollment exists.", Exit.CONFLICT),
    "enrollment-ended": Code(409, _P, "The enrollment has ended.", Exit.CONFLICT),
    "nodes-disabled": Code(409, _N, "Nodes are turned off.", Exit.CONFLICT),
    "idempotency-mismatch": Code(
        409, _P, "The idempotency key was used for another request.", Exit.CONFLICT
    ),
    "connection-in-use": Code(409, _P, "The connection is in use.", Exit.CONFLICT),
    "connection-paused": Code(409, _N, "The connection is paused.", Exit.NEEDS_OPERATOR),
    "cap-reached": Code(409, _P, "A cap on machines or money is reached.", Exit.CONFLICT),
    "template-stopped": Code(409, _N, "Orders of this template were stopped.", Exit.NEEDS_OPERATOR),
    "operation-state": Code(409, _P, "The operation's state does not allow this.", Exit.CONFLICT),
    "credential-kind-rejected": Code(
        422, _P, "This kind of credential is not taken.", Exit.INVALID
    ),
    "credential-refused": Code(422, _P, "The provider refuses the credential.", Exit.INVALID),
    "conflict": Code(409, _P, "Conflict with the present state.", Exit.CONFLICT),
    "invalid": Code(422, _P, "Invalid input.", Exit.INVALID),
    "malformed": Code(400, _P, "The request could not be read.", Exit.INVALID),
    "too-large": Code(413, _P, "The request is too large.", Exit.INVALID),
    "unsupported-media-type": Code(415, _P, "The body must be JSON.", Exit.INVALID),
    "not-signed-in": Code(401, _N, "Not signed in.", Exit.NOT_PERMITTED),
    "not-permitted": Code(403, _N, "Not permitted.", Exit.NOT_PERMITTED),
    "not-found": Code(404, _P, "Not found.", Exit.NOT_FOUND),
    "method-not-allowed": Code(405, _P, "Method not allowed.", Exit.INVALID),
    "too-many": Code(429, _T, "Too many attempts.", Exit.TEMPORARY),
    "unavailable": Code(503, _T, "Temporarily unavailable.", Exit.TEMPORARY),
    "cloud-unavailable": Code(503, _T, "The cloud is not set up.", Exit.TEMPORARY),
    "provider-unavailable": Code(503, _T, "The provider gives no clear answer.", Exit.TEMPORARY),
    "store-busy": Code(503, _T, "The store is busy.", Exit.TEMPORARY),
    "store-full": Code(503, _T, "The Platform's disk is full.", Exit.TEMPORARY),
    "internal": Code(500, _P, "A fault of ours.", Exit.OUR_FAULT),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem document."""

    code: str
    detail: str
    request_id: str = ""
    retry_after: int | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def meaning(self) -> Code:
        """The row of the table; an unknown code counts as a fault of the other side."""
        return CODES.get(self.code, CODES["internal"])

    def to_json(self) -> bytes:
        """The document as it crosses the wire."""
        meaning = self.meaning
        document: dict[str, Any] = {
            **self.fields,
            "type": "about:blank",
            "title": meaning.title,
            "status": meaning.status,
            "detail": self.detail,
            "code": self.code,
            "class": meaning.kind.value,
            "request_id": self.request_id,
        }
        if self.retry_after is not None:
            document["retry_after"] = self.retry_after
        return json.dumps(document, separators=(",", ":")).encode()


_KNOWN = {"type", "title", "status", "detail", "code", "class", "request_id", "retry_after"}


def parse(status: int, body: bytes) -> Problem:
    """Reads an answer that is not a success; what is no problem document becomes one by status."""
    try:
        document = json.loads(body[:MAX_BYTES])
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        return Problem(code=_code_for(status), detail=f"The other side answered with {status}.")
    retry_after = document.get("retry_after")
    return Problem(
        code=document["code"] if document["code"] in CODES else _code_for(status),
        detail=str(document.get("detail", ""))[:2000],
        request_id=str(document.get("request_id", ""))[:64],
        retry_after=retry_after if isinstance(retry_after, int) else None,
        fields={key: value for key, value in document.items() if key not in _KNOWN},
    )


def _code_for(status: int) -> str:
    by_status = {
        400: "malformed",
        401: "not-signed-in",
        403: "not-permitted",
        404: "not-found",
        405: "method-not-allowed",
        409: "conflict",
        413: "too-large",
        415: "unsupported-media-type",
        422: "invalid",
        429: "too-many",
        502: "unavailable",
        503: "unavailable",
        504: "unavailable",
    }
    return by_status.get(status, "internal")
