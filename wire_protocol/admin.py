"""Models of the operator routes: what the API answers and takes, the SDK and the CLI read.

No list shows a token, a hash of one, or a certificate. Times are RFC 3339 in UTC.
"""

import datetime
from typing import Annotated, Any, Literal

import pydantic

from wire_protocol import ids, labels, times, versions

Moment = Annotated[
    datetime.datetime,
    pydantic.PlainSerializer(times.to_rfc3339, return_type=str, when_used="json"),
]
NodeState = Literal["enrolled", "ready", "unreachable", "needs-operator", "removed"]
Scheduling = Literal["active", "maintenance", "draining", "drained", "fenced"]
Connectivity = Literal["listen", "dial-out"]
EnrollmentState = Literal["pending", "consumed", "replaced", "revoked", "expired"]
AttemptOutcome = Literal["enrolled", "refused", "worker-newer", "node-exists", "invalid"]
# What a schema can say of labels, for the OpenAPI document; `labels.check` judges.
_LABELS_SHAPE: dict[str, Any] = {
    "maxProperties": labels.MOST,
    "propertyNames": {"pattern": labels.KEY_PATTERN},
    "additionalProperties": {"type": "string", "pattern": labels.VALUE_PATTERN},
}
Labels = Annotated[
    dict[str, str],
    pydantic.AfterValidator(labels.check),
    pydantic.Field(json_schema_extra=_LABELS_SHAPE),
]
Permission = Literal[
    "nodes.view", "nodes.enroll", "nodes.manage", "audit.view", "tokens.manage",
    "platform.manage", "operations.view", "operations.manage", "cloud.view", "cloud.connect",
    "cloud.manage", "projects.view", "projects.manage", "secrets.manage", "backup.manage",
]  # fmt: skip
NodeIdField = Annotated[
    str,
    pydantic.Field(
        min_length=1, max_length=64, json_schema_extra={"pattern": ids.NODE_ID_AS_TYPED}
    ),
    pydantic.AfterValidator(ids.parse_node_id),
]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = pydantic.BeforeValidator(_whole)
"""For whole numbers in a request, last in their `Annotated`: JSON does not tell 60.0 from 60."""


class Answer(pydantic.BaseModel):
    """What the Platform sends: a newer one may add fields, which an older reader ignores."""

    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)


class Request(pydantic.BaseModel):
    """What the Platform takes: strict and closed, so that a typing error is never ignored."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


Shown = Annotated[str | None, pydantic.Field(repr=False)]
"""A secret in the one answer that shows it: never part of a printed form."""


class NodeMesh(Answer):
    """A node's place in the mesh; `said` and `said_reason` are the node's own words."""

    address: str
    public_key: str
    state: Literal["waiting", "up", "silent"]
    handshake_at: Moment | None
    said: str | None
    said_reason: str | None


class Node(Answer):
    """One node as lists show it."""

    node_id: str
    agent_id: str
    state: NodeState
    scheduling: Scheduling
    connectivity: Connectivity
    certificate_sha256: str | None
    pin: str | None
    generation: int
    version: str | None
    compatibility: versions.Compatibility
    labels: dict[str, str]
    reported_labels: dict[str, str]
    roles: list[str]
    capacity: dict[str, int] | None
    infra: str
    configured: bool = False
    enrolled_at: Moment | None
    last_seen_at: Moment | None
    clock_offset_ms: int | None
    address: str | None
    provider_state: str | None
    heartbeat_age_ms: int | None
    probe_answered_at: Moment | None
    reason: str | None
    mesh: NodeMesh | None = None


class Enrollment(Answer):
    """One enrollment as lists show it, without its secret or the hash of it."""

    enrollment_id: str
    node_id: str
    state: EnrollmentState
    infra: str
    labels: dict[str, str]
    sources: list[str]
    reenroll: bool
    created_at: Moment
    created_by: str
    expires_at: Moment
    ended_at: Moment | None


class NodeList(Answer):
    """`GET /nodes`: nodes, and the enrollments that are still open."""

    nodes: list[Node]
    enrollments: list[Enrollment]
    next_cursor: str | None = None


class EnrollmentList(Answer):
    """`GET /enrollments`."""

    enrollments: list[Enrollment]
    next_cursor: str | None = None


class IssueRequest(Request):
    """`POST /enrollments`."""

    node_id: NodeIdField
    ttl_minutes: Annotated[int, pydantic.Field(ge=1, le=1440), WHOLE] = 60
    replace: bool = False
    labels: Labels = {}
    from_: Annotated[
        list[Annotated[str, pydantic.Field(max_length=64)]],
        pydantic.Field(alias="from", max_length=16, description="Source networks (CIDR)."),
    ] = []


class IssueAnswer(Answer):
    """The one answer that carries a token; a replay of the call carries null in its place."""

    node_id: str
    enrollment_id: str
    token: Shown
    join_token: Shown
    expires_at: Moment
    platform_url: str | None
    gateway_url: str | None = None  # without one the machine has to listen
    pins: list[str]
    command: Shown
    bare_command: str | None = None  # for a machine without Enlist; where bundles are served
    code: Literal["token-already-shown"] | None = None


class LabelsRequest(Request):
    """`PATCH /nodes/{id}`: labels to set, and with null to take away."""

    labels: Annotated[
        dict[str, str | None],
        pydantic.Field(
            max_length=labels.MOST,
            json_schema_extra={
                **_LABELS_SHAPE,
                "additionalProperties": {
                    "anyOf": [{"type": "string", "pattern": labels.VALUE_PATTERN}, {"type": "null"}]
                },
            },
        ),
    ]


class ReasonRequest(Request):
    """Why, in the operator's words."""

    reason: Annotated[str, pydantic.Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")] = (
        ""  # it is shown on terminals, so it holds no control characters
    )


OrderKind = Literal["refresh-trust", "renew"]
OrderState = Literal["queued", "accepted", "done", "failed", "expired", "cancelled"]


class OrderRequest(Request):
    """`POST /nodes/{id}/orders`: what the node's Agent is to do, and until when."""

    kind: OrderKind
    ttl_seconds: Annotated[
        int,
        pydantic.Field(ge=1, le=7 * 86_400, description="After that it is not carried out."),
        WHOLE,
    ] = 3600
    purpose: Annotated[
        str | None, pydantic.Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    ] = None


class Order(Answer):
    """One order to a node. `detail` is what its Agent, or the Platform, says of how it ended."""

    order_id: str
    node_id: str
    kind: str
    state: OrderState
    infra: str
    epoch: int
    sequence: int
    purpose: str | None
    created_at: Moment
    created_by: str
    expires_at: Moment
    tries: int
    accepted_at: Moment | None
    ended_at: Moment | None
    detail: str | None


class OrderList(Answer):
    """`GET /nodes/{id}/orders`, newest first."""

    orders: list[Order]
    next_cursor: str | None = None


class Change(Answer):
    """One thing that a call did or, under `?check=true`, would do."""

    action: str
    target: str
    detail: str


class Checked(Answer):
    """The answer under `?check=true`: nothing was changed."""

    check: Literal[True] = True
    changes: list[Change]


class EnrollmentAttempt(Answer):
    """One line of the capped log of attempts; repeats of one reason are counted, not repeated."""

    outcome: AttemptOutcome
    reason: str | None
    node_id: str | None
    version: str | None
    count: int
    first_at: Moment
    last_at: Moment


class AttemptList(Answer):
    """`GET /enrollments/audit`, newest first."""

    attempts: list[EnrollmentAttempt]
    next_cursor: str | None = None


class ActionEntry(Answer):
    """One line of the append-only log; `hash` covers the line and the hash before it."""

    seq: int
    at: Moment
    actor: str
    action: str
    target: str
    operation: str | None
    infra: str
    environment: str
    mfa_verified: bool
    details: dict[str, Any]
    previous_hash: str
    hash: str


class ActionList(Answer):
    """`GET /audit`, newest first."""

    entries: list[ActionEntry]
    next_cursor: str | None = None


class ChainVerdict(Answer):
    """Whether the log is whole, and if not where it breaks."""

    intact: bool
    entries: int
    first_seq: int | None
    last_seq: int | None
    last_hash: str | None
    broken_at: int | None
    detail: str


class ApiToken(Answer):
    """An API token as lists show it."""

    token_id: str
    name: str
    permissions: list[str]
    infra: str
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class ApiTokenList(Answer):
    """`GET /tokens`."""

    tokens: list[ApiToken]
    next_cursor: str | None = None


class CreateApiTokenRequest(Request):
    """`POST /tokens`."""

    name: Annotated[str, pydantic.Field(min_length=1, max_length=64, pattern=r"^[ -~]+$")]
    permissions: Annotated[list[Permission], pydantic.Field(min_length=1, max_length=32)]
    ttl_days: Annotated[int | None, pydantic.Field(ge=1, le=3650), WHOLE] = 90


class CreateApiTokenAnswer(Answer):
    """The one answer that carries the token; a replay carries null in its place."""

    token: Shown
    record: ApiToken
    code: Literal["token-already-shown"] | None = None


class PublicTrustKey(Answer):
    """A trust key as `/platform` shows it."""

    key_id: str
    algorithm: str
    public_key: str
    not_before: Moment
    not_after: Moment
    certificate_pem: str


class Platform(Answer):
    """`GET /platform`: addresses, pins, trust keys, environment, version."""

    platform_id: str
    node_id: str
    version: str
    environment: str
    infra: str
    nodes_enabled: bool
    enrollment_url: str | None
    pins: list[str]
    certificate_sha256: str | None
    gateway_url: str | None
    gateway_pins: list[str]
    bundle_url: str | None
    api_pins: list[str] = []  # none where the API is plain http, or serves the operator's own files
    trust_keys: list[PublicTrustKey]
    epoch: int
    serial: int


class Backup(Answer):
    """What a backup holds, as the header `Enlist-Backup` says."""

    backup_id: str
    platform_id: str
    epoch: int
    made_at: Moment
    enlist_version: str
    schema_version: int
    rows: dict[str, int]


class Event(Answer):
    """One event; `seq` resumes a stream."""

    seq: int
    at: Moment
    kind: str
    subject: str
    infra: str
    data: dict[str, Any]


class Done(Answer):
    """What a changing call did."""

    changes: list[Change]


class HealthCheck(Answer):
    """One thing that health looked at."""

    name: str
    status: Literal["ok", "warning", "failed"]
    detail: str = ""


class CheckupFinding(Answer):
    """One thing that a checkup looked at: a health check with its class and what mends it."""

    name: str
    status: Literal["ok", "warning", "failed", "skipped"]
    detail: str = ""
    class_: Annotated[
        Literal["transient", "permanent", "needs-operator"] | None, pydantic.Field(alias="class")
    ] = None
    command: str | None = None
    report_id: str | None = None
    facts: dict[str, Any] = {}


class Checkup(Answer):
    """The health body of `enlist doctor`, as a running engine gives it."""

    status: Literal["ok", "warning", "failed"]
    version: str
    checks: list[CheckupFinding]


class Health(Answer):
    """The one health body: `/healthz` and `/readyz`."""

    status: Literal["ok", "warning", "failed"]
    version: str
    checks: list[HealthCheck]
