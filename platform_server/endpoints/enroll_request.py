"""Reading an enroll request: its shape, before anything is looked up.

What comes out is well formed in every field and believed in none. Which words of a misshapen
request the audit may keep is decided here too (`fault_of`, and `salvage`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.endpoints import parsing, refusals
from platform_server.enrollment import certificate, enroll
from platform_server.nodes import addresses
from wire_protocol import agent_url, enrollment, enrollment_token, ids, versions

MAX_BODY: Final = 65_536
_KNOWN_FIELDS: Final = frozenset(enrollment.EnrollRequest.model_fields) | frozenset(
    enrollment.PhaseReport.model_fields
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Knock:
    """Who knocks: a token, the node id it is shown for, a ticket, and where it came from."""

    token: enrollment_token.EnrollmentToken
    node_id: ids.NodeId
    version: str | None
    address: str | None
    ticket: enrollment.Ticket | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Enrolling(Knock):
    """A machine that wants to become a node."""

    claim: enroll.Claim
    mesh_public_key: str | None = None
    instance: Mapping[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reporting(Knock):
    """An ordered machine that reports a phase of its first boot."""

    phase: enrollment.Phase
    detail: str


def read(
    body: bytes, *, address: str | None, networks: Sequence[addresses.Network]
) -> Enrolling | Reporting:
    """The request in its shape; raises `Refusal`, naming the field.

    `networks` are those in which an Agent may listen; empty for any.
    """
    if len(body) > MAX_BODY:
        raise refusals.Refusal("too-large", f"The body may have at most {MAX_BODY} bytes.")
    try:
        request = parsing.read_body(body, model=enrollment.EnrollRequest)
    except refusals.Refusal as refusal:
        if refusal.members.get("field") not in ("phase", "certificate_pem"):
            raise
        if b'"phase"' not in body or b'"certificate_pem"' in body:
            raise
        return _reporting(body, address=address)
    if not isinstance(request, enrollment.EnrollRequest):
        raise TypeError("The enroll request was read as another model.")
    return Enrolling(
        token=enrollment_token.parse(request.token.get_secret_value()),
        node_id=ids.NodeId(request.node_id),
        version=request.version,
        address=address,
        claim=_claim(request, address=address, networks=networks),
        mesh_public_key=request.mesh_public_key,
        ticket=request.ticket,
        instance=request.instance,
    )


def fault_of(refusal: refusals.Refusal) -> str:
    """What the audit says of a misshapen request: the name of a field that exists, or our code."""
    field = str(refusal.members.get("field", "")).partition(".")[0]
    return field if field in _KNOWN_FIELDS else refusal.code


def _reporting(body: bytes, *, address: str | None) -> Reporting:
    report = parsing.read_body(body, model=enrollment.PhaseReport)
    if not isinstance(report, enrollment.PhaseReport):
        raise TypeError("The phase report was read as another model.")
    return Reporting(
        token=enrollment_token.parse(report.token.get_secret_value()),
        node_id=ids.NodeId(report.node_id),
        version=_version(report.version),
        address=address,
        ticket=report.ticket,
        phase=report.phase,
        detail=report.detail,
    )


def _version(text: str | None) -> str | None:
    """A phase report may come without a version; one that is out of shape is not kept."""
    try:
        return text if text is not None and versions.parse(text) else None
    except ValueError:
        return None


def _claim(
    request: enrollment.EnrollRequest,
    *,
    address: str | None,
    networks: Sequence[addresses.Network],
) -> enroll.Claim:
    try:
        shown = certificate.read(request.certificate_pem)
    except certificate.Malformed as fault:
        raise refusals.invalid("certificate_pem", f"certificate_pem: {fault}") from None
    if request.url is not None:
        try:
            addresses.judge_url(
                agent_url.parse(request.url),
                caller_is_local=addresses.is_loopback(address),
                networks=networks,
            )
        except addresses.Forbidden as fault:
            raise refusals.invalid("url", f"url: {fault}") from None
    return enroll.Claim(
        node_id=ids.NodeId(request.node_id),
        certificate=shown,
        version=request.version,
        url=request.url,
        reported_labels=request.reported_labels,
    )
