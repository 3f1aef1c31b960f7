"""The kind `create-machine`: one order, from `requested` to a ready node, or to a clear end.

`create_plan` says what comes next; here it is done, each in the transaction that writes it down.
The attempt is committed before the create call and the provider's id before anything else is asked.
A call without a clear answer is looked up and never sent again, but by a provider that answers for
the same token itself. What failed is kept, and counts, until somebody deletes or retries it; of a
machine that is nowhere nothing is kept but its row.
"""

import datetime
from typing import Final

from platform_server.cloud import (
    admission,
    attempts,
    children,
    coming_up,
    create_plan,
    doubting,
    giving_up,
    means,
    ordering,
    pausing,
    steps,
)
from platform_server.nodes import records as node_records
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from wire_protocol import ids

NAME: Final = "create-machine"

_D = create_plan.Do
_S = states.State
_E = states.Event


class CreateMachine:
    """The kind."""

    name = NAME

    def __init__(self, means_: means.Means) -> None:
        self._m = means_

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """Whether the plan has a step."""
        todo = await self._todo(tx, operation=operation, now=now)
        return todo if isinstance(todo, kinds.Wait) else kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Takes one step."""
        operation, now = held.operation, self._m.clock.now()

        async def read(
            tx: contract.Tx,
        ) -> tuple[create_plan.Todo, create_plan.Facts]:
            facts = await self._facts(tx, operation=operation)
            return create_plan.plan(operation, facts=facts, limits=self._m.limits, now=now), facts

        todo, facts = await self._m.store.read(read)
        if isinstance(todo, kinds.Wait):
            return
        await self._step(todo, step=steps.Step(m=self._m, held=held, facts=facts))
        if operation.tries and todo in (_D.SEE, _D.POLL, _D.LOOK):
            await self._m.store.transact(lambda tx: holding.went_well(tx, held=held))

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Fails; an attempt in doubt is a person's to settle, so that order is unresolved."""
        facts = await self._m.store.read(lambda tx: self._facts(tx, operation=held.operation))
        step = steps.Step(m=self._m, held=held, facts=facts)
        last = facts.last
        if held.operation.state is _S.CREATING and last and last.state is attempts.State.SENT:
            await doubting.lose(step, reason=failure.reason)
        elif states.find_after(held.operation.state, _E.FAIL) is not None:
            await giving_up.fail(step, failure=failure)

    # What comes next.

    async def _todo(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> create_plan.Todo:
        facts = await self._facts(tx, operation=operation)
        return create_plan.plan(operation, facts=facts, limits=self._m.limits, now=now)

    async def _facts(self, tx: contract.Tx, *, operation: records.Operation) -> create_plan.Facts:
        machine = await means.machine_of(tx, operation=operation)
        last = await attempts.find_last(tx, operation_id=operation.operation_id)
        phases: list[str] = []
        if last is not None and last.sent_at is not None:
            told = await admission.list_phases(
                tx, operation_id=operation.operation_id, since=last.sent_at
            )
            phases = [str(one["phase"]) for one in told]
        node = await node_records.find(tx, node_id=ids.NodeId(machine.node_id))
        is_its = node is not None and last is not None and node.enrollment_id == last.enrollment_id
        return create_plan.Facts(
            machine=machine,
            last=last,
            phases=phases,
            node=node if is_its else None,
            is_hung_on=bool(await children.list_hanging(tx, machine_id=machine.machine_id)),
            is_paused=await pausing.is_paused(
                tx, connection_id=machine.connection_id, now=self._m.clock.now()
            ),
        )

    async def _step(  # noqa: C901 - one line a step
        self, todo: create_plan.Do, *, step: steps.Step
    ) -> None:
        match todo:
            case _D.VALIDATE:
                await step.move(holding.Move(event=_E.VALIDATE))
            case _D.WRITE:
                await ordering.write(step)
            case _D.SEND:
                await ordering.send(step)
            case _D.LOOK:
                await doubting.look_up(step)
            case _D.NEXT:
                await doubting.go_on(step)
            case _D.LOSE:
                await doubting.lose(step, reason=doubting.lost(step))
            case _D.POLL:
                await coming_up.poll(step)
            case _D.SEE:
                await coming_up.see(step)
            case _D.REPORT | _D.JOIN | _D.ADMIT | _D.SUCCEED:
                await coming_up.come_up(step, todo=todo)
            case _D.LATE | _D.DIED:
                await giving_up.came_to_nothing(step, todo=todo)
            case _D.CANCEL:
                await giving_up.cancel(step)
            case _D.REMOVE | _D.CLEAR:
                await giving_up.remove(step, todo=todo)
