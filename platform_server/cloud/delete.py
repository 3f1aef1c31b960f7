"""The kind `delete-machine`: node and machine are taken away, until the provider says so.

It cannot fail. What is in its way (a provider that does not answer, a credential that is refused, a
protection) stands in the operation with the moment since when, and it is tried for as long as it
takes; the one other way out is a person's `forget`. With `keep_machine` the node goes and the
machine stays, counts and costs on, until somebody deletes it without.
"""

import datetime
from typing import Final

from platform_server.cloud import (
    attempts,
    create_plan,
    machines,
    means,
    pausing,
    removal,
    staying,
)
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from runtime_kit import crash_points

NAME: Final = "delete-machine"

DELETING = crash_points.declare(
    "cloud.deleting", story="it is stored that a machine is being deleted, nobody was asked"
)
GONE = crash_points.declare("cloud.gone", story="it is stored that nothing is left of a machine")


class DeleteMachine:
    """The kind."""

    name = NAME

    def __init__(self, means_: means.Means) -> None:
        self._m = means_

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """Whether a step is due."""
        if operation.state is states.State.REQUESTED:
            return kinds.Ready()
        machine = await means.machine_of(tx, operation=operation)
        if await pausing.is_paused(tx, connection_id=machine.connection_id, now=now):
            return kinds.Wait(seconds=5.0)
        last = await attempts.find_last(tx, operation_id=machine.operation_id)
        todo = create_plan.paced_removal(machine, last=last, now=now)
        return todo if isinstance(todo, kinds.Wait) else kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Takes one step."""
        m = self._m
        if held.operation.state is states.State.REQUESTED:
            move = holding.Move(event=states.Event.DELETE)
            await m.store.transact(lambda tx: self._moved(tx, held, move))
            crash_points.reach(DELETING)
            return
        machine = await m.store.read(lambda tx: means.machine_of(tx, operation=held.operation))
        await removal.revoke_node(m, held=held, machine=machine)
        if machine.keep_machine:
            await self._keep(held, machine=machine)
        elif await removal.remove(m, held=held, machine=machine):
            await self._end(held, machine=machine)
        elif held.operation.tries:
            await m.store.transact(lambda tx: holding.went_well(tx, held=held))

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Only what was not begun can fail: everything else is tried for as long as it takes."""
        if states.find_after(held.operation.state, states.Event.FAIL) is None:
            return
        move = holding.Move(event=states.Event.FAIL, failure=failure)
        await self._m.store.transact(lambda tx: self._moved(tx, held, move))

    async def _end(self, held: holding.Held, *, machine: machines.Machine) -> None:
        now = self._m.clock.now()
        move = holding.Move(
            event=states.Event.GONE,
            detail=f"{machine.provider} says that nothing of it is left.",
        )

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await removal.close_rows(tx, machine=machine, now=now)
            await self._moved(tx, held, move)

        await self._m.store.transact(work)
        crash_points.reach(GONE)

    async def _keep(self, held: holding.Held, *, machine: machines.Machine) -> None:
        """The node is gone; the machine stays where it is, and in the bill."""
        move = holding.Move(
            event=states.Event.SUCCEED,
            detail=f"The node is gone. The machine stays at {machine.provider} as "
            f"{machine.provider_ref} and {staying.goes_on(machine.provider)}: "
            "enlist cloud machines delete "
            f"{machine.node_id}",
        )

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await machines.unask_delete(tx, machine_id=machine.machine_id)
            await self._moved(tx, held, move)

        await self._m.store.transact(work)

    async def _moved(self, tx: contract.Tx, held: holding.Held, move: holding.Move) -> None:
        await holding.move(
            tx, held=held, move=move, environment=self._m.environment, now=self._m.clock.now()
        )
