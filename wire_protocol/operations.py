"""Models of the routes about operations: what takes time, how it stands, and what was asked for."""

from typing import Annotated, Literal

import pydantic

from wire_protocol import admin, versions

MOST_NODES = 500
OperationState = Literal[
    "requested", "running", "preparing", "staging", "restarting", "resuming", "undoing", "done",
    "validating", "creating", "booting", "bootstrapping", "enrolling", "verifying", "active",
    "cancelling", "deleting", "deleted", "unresolved", "failed", "cancelled",
]  # fmt: skip
ErrorClass = Literal["transient", "permanent", "needs-operator"]
ENDED = ("done", "active", "deleted", "failed", "cancelled")


class Step(admin.Answer):
    """One change of an operation's state."""

    at: admin.Moment
    event: str
    state: OperationState
    detail: str


class Operation(admin.Answer):
    """One operation. `target` is the release it is about, where it is about one.

    `retryable`: it failed in a way that may pass, so asking for the same again may work. `waiting`
    is what is in the way of an open one, since `waiting_since`.
    """

    operation_id: str
    kind: str
    state: OperationState
    infra: str
    node_id: str | None
    parent_id: str | None
    depends_on: list[str]
    target: str | None
    created_at: admin.Moment
    created_by: str
    updated_at: admin.Moment
    ended_at: admin.Moment | None
    deadline_at: admin.Moment | None
    tries: int
    reason: str | None
    error_class: Annotated[ErrorClass | None, pydantic.Field(alias="class")]
    retryable: bool
    waiting: str | None = None
    waiting_since: admin.Moment | None = None


class OperationList(admin.Answer):
    """`GET /operations`, newest first."""

    operations: list[Operation]
    next_cursor: str | None = None


class OperationDetails(Operation):
    """`GET /operations/{id}`: with its steps, and its parts in the order in which they come."""

    steps: list[Step]
    parts: list[Operation]


class UpdateRequest(admin.Request):
    """`POST /nodes/update`: which nodes, to which version; none named: all that can be."""

    node_ids: list[admin.NodeIdField] = pydantic.Field(default_factory=list, max_length=MOST_NODES)
    version: Annotated[
        str | None,
        pydantic.Field(
            pattern=versions.PATTERN, description="Unset: the newest that this Platform has."
        ),
    ] = None


class Passed(admin.Answer):
    """A node that gets no update, and why."""

    node_id: str
    reason: str


class UpdateAnswer(admin.Answer):
    """What was begun: one operation with a part for each node. None: there is nothing to do."""

    operation: Operation | None
    parts: list[Operation]
    passed: list[Passed]
