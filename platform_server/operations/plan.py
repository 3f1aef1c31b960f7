"""What is to be done next about a node that is to run another release: a plan from plain values.

Pure; `node_release` does what it says. The node goes into maintenance, gets one order, and says
that the release is in its place; then its Agent is restarted, and what counts is what is heard: the
release, from an Agent that was started since, which has stayed for a while. An Agent started since
that tells another release means that the machine has rolled back.

A release is told by its id where the Agent says it, else by the version.
"""

import dataclasses
import datetime
from collections.abc import Sequence

from platform_server.dispatch import records as orders
from platform_server.dispatch import states as order_states
from platform_server.nodes import states as node_states
from platform_server.operations import holding, kinds, records, states
from wire_protocol import orders as wire_orders
from wire_protocol import problems, updates

_S, _E = states.State, states.Event


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each part may take, in seconds."""

    ready_seconds: float = 120.0  # for the node to be ready, once it is its turn
    staging_seconds: float = 1800.0  # for the order to be taken, and the release to be in its place
    restart_seconds: float = 180.0  # for the release to be heard; the helper gives it 60
    settle_seconds: float = 25.0  # how long the former Agent may be heard; the helper waits ten
    healthy_seconds: float = 15.0  # for how long it has to stay


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What a node's Agent said last of the release it runs, and since when it runs."""

    heard_at: datetime.datetime
    started_at: datetime.datetime
    version: str
    release: str

    def __str__(self) -> str:
        return self.release or self.version


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """How things stand. `node_state` is None where there is no node of that id."""

    formers: Sequence[records.Operation] = ()
    node_state: node_states.State | None
    is_connected: bool = True
    runs: Runs | None = None
    order: orders.Order | None = None


Todo = kinds.Wait | holding.Move


def plan(
    operation: records.Operation,
    *,
    target: updates.Update | None,
    facts: Facts,
    limits: Limits,
    now: datetime.datetime,
) -> Todo:
    """The next change, or how long to wait. `target` is None for a roll back."""
    if operation.state is _S.REQUESTED:
        return _begin(operation, target=target, facts=facts, limits=limits, now=now)
    if operation.state is _S.UNDOING:
        return holding.Move(event=_E.UNDO, detail=operation.reason or "")
    if operation.state is _S.RESUMING:
        return holding.Move(event=_E.SUCCEED)
    if facts.node_state in (None, node_states.State.REMOVED):
        return _failed("The node was removed.")
    if operation.state is _S.PREPARING:
        return holding.Move(event=_E.ORDER, deadline_at=_after(now, limits.staging_seconds))
    judged = _Judged(operation, target=target, facts=facts, limits=limits, now=now)
    return judged.staging() if operation.state is _S.STAGING else judged.restarting()


def _begin(
    operation: records.Operation,
    *,
    target: updates.Update | None,
    facts: Facts,
    limits: Limits,
    now: datetime.datetime,
) -> Todo:
    waits = _of_formers(facts.formers)
    if waits is not None:
        return waits
    if facts.node_state in (None, node_states.State.REMOVED):
        return _failed("The node was removed.")
    runs = facts.runs
    if target is not None and runs is not None and is_release(runs, target):
        return holding.Move(event=_E.SUCCEED, detail=f"The node runs {runs} already.")
    if facts.node_state is not node_states.State.READY or runs is None:
        turn = max([operation.created_at, *(f.ended_at for f in facts.formers if f.ended_at)])
        if now >= _after(turn, limits.ready_seconds):
            state = facts.node_state
            return _failed(
                f"The node is {state}, and was not ready within {limits.ready_seconds:.0f} s.",
                kind=problems.Kind.TRANSIENT,
            )
        return kinds.Wait()
    return holding.Move(
        event=_E.PREPARE,
        detail=f"The node runs {runs}.",
        output={"version": runs.version, "release": runs.release},
    )


def _of_formers(formers: Sequence[records.Operation]) -> Todo | None:
    """What it waits for ends well, or this is never begun; None once all have ended well."""
    for former in formers:
        if former.state in (_S.FAILED, _S.CANCELLED):
            ended = "failed" if former.state is _S.FAILED else "been cancelled"
            reason = f"Not begun, since {former.kind} of {former.subject} has {ended}."
            return holding.Move(
                event=_E.CANCEL,
                failure=holding.Failure(reason=reason, kind=problems.Kind.PERMANENT),
            )
    return kinds.Wait(seconds=kinds.ONCE_WOKEN) if any(one.is_open for one in formers) else None


class _Judged:
    """A node that was given its order."""

    def __init__(
        self,
        operation: records.Operation,
        *,
        target: updates.Update | None,
        facts: Facts,
        limits: Limits,
        now: datetime.datetime,
    ) -> None:
        self._operation = operation
        self._target = target
        self._facts = facts
        self._limits = limits
        self._now = now

    def staging(self) -> Todo:
        order = self._facts.order
        if order is None:
            return _failed("The order that the node was given is not there any more.")
        if order.state is order_states.State.DONE:
            return holding.Move(
                event=_E.STAGE,
                detail=order.detail or "",
                deadline_at=_after(self._now, self._limits.restart_seconds),
            )
        if self._has_it(order):
            return self._heard()
        if order.state not in order_states.OPEN:
            return self._of_ended(order)
        if self._is_over():
            return _failed(
                "The node did not put the release in its place in time.",
                kind=problems.Kind.TRANSIENT,
            )
        return kinds.Wait()

    def restarting(self) -> Todo:
        order, runs = self._facts.order, self._facts.runs
        if order is None:
            return _failed("The order that the node was given is not there any more.")
        if self._has_it(order):
            return self._heard()
        staged_at = order.ended_at or order.created_at
        if (
            runs is not None
            and self._was_restarted(order)
            and not self._is_wanted(runs)
            and runs.heard_at >= _after(staged_at, self._limits.settle_seconds)
        ):
            return _failed(
                f"The release did not come up, and the machine has rolled back: it runs {runs}."
            )
        if self._is_over():
            told = "nothing was heard of the node" if runs is None else f"the node runs {runs}"
            return _failed(
                f"The release was not heard within {self._limits.restart_seconds:.0f} s; {told}.",
                kind=problems.Kind.TRANSIENT,
            )
        return kinds.Wait()

    def _of_ended(self, order: orders.Order) -> Todo:
        """Where the Agent does not know what became of it, the helper may be at work."""
        detail = order.detail or ""
        if order.state is not order_states.State.FAILED:
            return _failed(
                f"The order to the node is {order.state}: {detail or 'nobody took it'}",
                kind=problems.Kind.TRANSIENT,
            )
        ended_at = order.ended_at or order.created_at
        if detail.startswith(wire_orders.INTERRUPTED[:40]) and self._now < _after(
            ended_at, self._limits.restart_seconds
        ):
            return kinds.Wait()
        return _failed(f"The node could not do it: {detail}")

    def _heard(self) -> Todo:
        runs = self._facts.runs
        assert runs is not None  # noqa: S101 - `_has_it` saw it
        return holding.Move(
            event=_E.HEAR,
            detail=f"The node runs {runs}.",
            output={"version": runs.version, "release": runs.release},
        )

    def _has_it(self, order: orders.Order) -> bool:
        """Whether the release runs, is ready, and has stayed."""
        runs = self._facts.runs
        return (
            runs is not None
            and self._was_restarted(order)
            and self._is_wanted(runs)
            and self._facts.node_state is node_states.State.READY
            and self._facts.is_connected
            and self._now >= _after(runs.started_at, self._limits.healthy_seconds)
        )

    def _was_restarted(self, order: orders.Order) -> bool:
        runs = self._facts.runs
        return runs is not None and runs.started_at > (order.accepted_at or order.created_at)

    def _is_wanted(self, runs: Runs) -> bool:
        if self._target is not None:
            return is_release(runs, self._target)
        before = self._operation.find_step(_E.PREPARE)
        if before is None:
            return False
        if runs.release:
            return runs.release != before.output.get("release")
        return runs.version != before.output.get("version")

    def _is_over(self) -> bool:
        deadline = self._operation.deadline_at
        return deadline is not None and self._now >= deadline


def is_release(runs: Runs, target: updates.Update) -> bool:
    """Whether that is what runs."""
    return runs.release == target.release if runs.release else runs.version == target.version


def _failed(reason: str, *, kind: problems.Kind = problems.Kind.PERMANENT) -> holding.Move:
    return holding.Move(
        event=_E.FAIL, detail=reason, failure=holding.Failure(reason=reason, kind=kind)
    )


def _after(moment: datetime.datetime, seconds: float) -> datetime.datetime:
    return moment + datetime.timedelta(seconds=seconds)
