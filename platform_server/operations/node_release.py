"""Two kinds: `update-node` has a node run another release, `roll-back-node` the one before it.

What comes next is `plan`'s to say. Here the facts are read and the change is carried out, each in
the transaction that writes it down: maintenance, the order, and at the end the node's place among
those that take work, as it was. A node that was not taking work before stays as it is, and what an
operator changed meanwhile stands.
"""

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

from platform_server.audit import actions, events
from platform_server.dispatch import ending, giving
from platform_server.dispatch import records as order_records
from platform_server.dispatch import states as order_states
from platform_server.nodes import configured, heartbeats, registry, scheduling
from platform_server.nodes import records as node_records
from platform_server.nodes import states as node_states
from platform_server.operations import holding, kinds, plan, records, shelf, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import heartbeats as heartbeat_form
from wire_protocol import ids, orders, updates

UPDATE: Final = "update-node"
ROLL_BACK: Final = "roll-back-node"
SCHEDULING_CHANGED: Final = "node.scheduling-changed"

PREPARED = crash_points.declare(
    "operation.prepared", story="a node is in maintenance for an operation, it has no order yet"
)
ORDERED = crash_points.declare(
    "operation.ordered", story="an order of an operation is stored, nobody delivers it yet"
)
STAGED = crash_points.declare(
    "operation.staged", story="it is stored that a node has the release in its place"
)
HEARD = crash_points.declare(
    "operation.heard", story="it is stored that the release runs, the node is in maintenance still"
)
RESUMED = crash_points.declare(
    "operation.resumed", story="the node takes work again and the operation has ended"
)
FAILED = crash_points.declare(
    "operation.failed", story="it is stored that an operation failed, it is not undone yet"
)
_POINTS: Final = {
    states.Event.PREPARE: PREPARED,
    states.Event.ORDER: ORDERED,
    states.Event.STAGE: STAGED,
    states.Event.HEAR: HEARD,
    states.Event.SUCCEED: RESUMED,
    states.Event.FAIL: FAILED,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What both kinds stand on."""

    store: contract.Store
    sign: giving.Signer
    given: Callable[[ids.NodeId], None]
    operators: configured.ConfiguredNodes
    archives: shelf.Archives
    environment: str
    limits: plan.Limits
    clock: clock_kit.Clock


class NodeRelease:
    """One of the two kinds."""

    def __init__(self, name: str, *, means: Means) -> None:
        self.name = name
        self._means = means

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """Whether the plan has a change."""
        todo = await self._todo(tx, operation=operation, now=now)
        return todo if isinstance(todo, kinds.Wait) else kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Carries one change out."""
        now = self._means.clock.now()
        urls = () if held.operation.state is not states.State.PREPARING else self._urls(held)
        done = await self._means.store.transact(
            lambda tx: self._change(tx, held=held, urls=urls, now=now)
        )
        if done is None:
            return
        if done is states.Event.ORDER:
            crash_points.reach(ORDERED)
            self._means.given(_node_of(held.operation))
        elif done in _POINTS:
            crash_points.reach(_POINTS[done])

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Fails from wherever it stands; what is undone or ending cannot fail any more."""
        if states.find_after(held.operation.state, states.Event.FAIL) is None:
            return
        now = self._means.clock.now()
        await self._means.store.transact(
            lambda tx: self._write(
                tx,
                held=held,
                move=holding.Move(event=states.Event.FAIL, failure=failure),
                now=now,
            )
        )
        crash_points.reach(FAILED)

    # Inside.

    async def _change(
        self,
        tx: contract.Tx,
        *,
        held: holding.Held,
        urls: tuple[str, ...],
        now: datetime.datetime,
    ) -> states.Event | None:
        todo = await self._todo(tx, operation=held.operation, now=now)
        if isinstance(todo, kinds.Wait):
            return None
        await holding.begin(tx, held=held, event=todo.event, now=now)
        output: dict[str, Any] = dict(todo.output)
        if todo.event is states.Event.PREPARE:
            output |= await self._to_maintenance(tx, held=held, now=now)
        elif todo.event is states.Event.ORDER:
            output |= await self._order(tx, held=held, urls=urls, now=now)
        elif todo.event in (states.Event.SUCCEED, states.Event.UNDO):
            await self._back(tx, held=held, now=now)
        await self._write(tx, held=held, move=dataclasses.replace(todo, output=output), now=now)
        return todo.event

    async def _write(
        self, tx: contract.Tx, *, held: holding.Held, move: holding.Move, now: datetime.datetime
    ) -> None:
        await holding.move(tx, held=held, move=move, environment=self._means.environment, now=now)

    async def _todo(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> plan.Todo:
        return plan.plan(
            operation,
            target=_target_of(operation),
            facts=await self._facts(tx, operation=operation),
            limits=self._means.limits,
            now=now,
        )

    async def _facts(self, tx: contract.Tx, *, operation: records.Operation) -> plan.Facts:
        node_id = _node_of(operation)
        node = await node_records.find(tx, node_id=node_id)
        step = operation.find_step(states.Event.ORDER)
        order = None
        if step is not None:
            order = await order_records.find(tx, order_id=str(step.output["order_id"]))
        formers: Sequence[records.Operation] = ()
        if operation.state is states.State.REQUESTED:
            formers = await records.list_formers(tx, operation_id=operation.operation_id)
        return plan.Facts(
            formers=formers,
            node_state=None if node is None else node.state,
            is_connected=node is not None and await _is_connected(tx, node=node),
            runs=await find_runs(tx, node_id=node_id),
            order=order,
        )

    def _urls(self, held: holding.Held) -> tuple[str, ...]:
        """Where the archive is, as this engine serves it; a roll back needs none."""
        target = _target_of(held.operation)
        if target is None:
            return ()
        urls = self._means.archives.urls(target.archive_sha256)
        if not urls:
            raise kinds.TryLater(
                f"This Platform does not serve the archive of {target.release} on a bundle port. "
                "See: enlist platform bundles list"
            )
        return urls

    async def _to_maintenance(
        self, tx: contract.Tx, *, held: holding.Held, now: datetime.datetime
    ) -> dict[str, Any]:
        """A node that takes work takes no new work; any other stays as it is."""
        node = await registry.get(tx, node_id=_node_of(held.operation))
        taken_out = node.scheduling == scheduling.Scheduling.ACTIVE.value
        if taken_out:
            await self._schedule(tx, held=held, event=scheduling.Event.MAINTENANCE, now=now)
        return {"taken_out": taken_out}

    async def _order(
        self,
        tx: contract.Tx,
        *,
        held: holding.Held,
        urls: tuple[str, ...],
        now: datetime.datetime,
    ) -> dict[str, Any]:
        operation, target = held.operation, _target_of(held.operation)
        wish = giving.Wish(
            node_id=_node_of(operation),
            kind=orders.Kind.ROLL_BACK if target is None else orders.Kind.UPDATE,
            ttl=datetime.timedelta(seconds=self._means.limits.staging_seconds),
            created_by=operation.created_by,
            purpose=f"operation {operation.operation_id}",
            content={} if target is None else dataclasses.replace(target, urls=urls).to_content(),
        )
        try:
            order = await giving.give(
                tx, wish=wish, sign=self._means.sign, operators=self._means.operators, now=now
            )
        except giving.TooMany as fault:
            raise kinds.TryLater(str(fault)) from fault
        except (
            registry.NoSuchNode,
            registry.OperatorsNode,
            node_states.WrongState,
        ) as fault:
            raise kinds.Stop(str(fault)) from fault
        await self._record(
            tx,
            held=held,
            action="nodes.order",
            details={"order_id": order.order_id, "kind": order.kind},
            now=now,
        )
        return {"order_id": order.order_id}

    async def _back(self, tx: contract.Tx, *, held: holding.Held, now: datetime.datetime) -> None:
        """An order that nobody took is taken back, and the node takes work again as before."""
        step = held.operation.find_step(states.Event.ORDER)
        if step is not None and held.operation.state is states.State.UNDOING:
            await ending.lock(tx, node_ids=[_node_of(held.operation)])
            order = await order_records.find(tx, order_id=str(step.output["order_id"]))
            if order is not None and order.state is order_states.State.QUEUED:
                await ending.happened(
                    tx,
                    order=order,
                    event=order_states.Event.CANCEL,
                    environment=self._means.environment,
                    now=now,
                    detail=f"The operation {held.operation.operation_id} has failed.",
                )
        prepared = held.operation.find_step(states.Event.PREPARE)
        node = await node_records.find(tx, node_id=_node_of(held.operation))
        if (
            prepared is not None
            and prepared.output.get("taken_out")
            and node is not None
            and node.state is not node_states.State.REMOVED
            and node.scheduling == scheduling.Scheduling.MAINTENANCE.value
        ):
            await self._schedule(tx, held=held, event=scheduling.Event.RESUME, now=now)

    async def _schedule(
        self,
        tx: contract.Tx,
        *,
        held: holding.Held,
        event: scheduling.Event,
        now: datetime.datetime,
    ) -> None:
        operation, node_id = held.operation, _node_of(held.operation)
        reason = f"operation {operation.operation_id} ({operation.kind})"
        try:
            done = await scheduling.order(
                tx, node_id=node_id, event=event, operators=self._means.operators
            )
        except (
            registry.NoSuchNode,
            registry.OperatorsNode,
            node_states.WrongState,
        ) as fault:
            raise kinds.Stop(str(fault)) from fault
        for step in done.steps:
            await events.append(
                tx,
                at=now,
                kind=SCHEDULING_CHANGED,
                subject=node_id,
                infra=operation.infra,
                data={"from": step.before.value, "to": step.after.value, "reason": reason},
            )
        await self._record(
            tx, held=held, action=f"nodes.{event}", details={"reason": reason}, now=now
        )

    async def _record(
        self,
        tx: contract.Tx,
        *,
        held: holding.Held,
        action: str,
        details: dict[str, Any],
        now: datetime.datetime,
    ) -> None:
        await actions.append(
            tx,
            action=actions.Action(
                at=now,
                actor=holding.ACTOR,
                action=action,
                target=_node_of(held.operation),
                environment=self._means.environment,
                infra=held.operation.infra,
                operation=held.operation.operation_id,
                details=details,
            ),
        )


async def find_runs(tx: contract.Tx, *, node_id: ids.NodeId) -> plan.Runs | None:
    """What the node told last of the release it runs."""
    heard = (await heartbeats.find_last(tx, node_ids=[node_id])).get(node_id)
    if heard is None:
        return None
    seconds = int(heard.content.get("uptime_seconds", 0))  # may have been stored by an older engine
    uptime = datetime.timedelta(seconds=min(seconds, heartbeat_form.LONGEST_UPTIME_SECONDS))
    return plan.Runs(
        heard_at=heard.at,
        started_at=heard.at - uptime,
        version=str(heard.content.get("version", "")),
        release=str(heard.content.get("release", "")),
    )


async def _is_connected(tx: contract.Tx, *, node: node_records.Node) -> bool:
    """A node that dials out has a session that is not lost; one that listens is asked anyway."""
    if node.connectivity != "dial-out":
        return True
    row = await tx.fetch_one(
        "SELECT 1 AS held FROM sessions WHERE node_id = ? AND lost_at IS NULL", node.node_id
    )
    return row is not None


def _node_of(operation: records.Operation) -> ids.NodeId:
    return ids.NodeId(operation.subject or "")


def _target_of(operation: records.Operation) -> updates.Update | None:
    """What an update is to; its addresses are those of whoever gives the order."""
    if operation.kind != UPDATE:
        return None
    return updates.Update(
        version=str(operation.request["version"]),
        release=str(operation.request["release"]),
        archive_sha256=str(operation.request["archive_sha256"]),
        size=int(operation.request["size"]),
        urls=(),
    )
