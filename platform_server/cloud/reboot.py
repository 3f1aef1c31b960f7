"""The kind `reboot-machine`: the provider restarts it once, and it is seen to run again.

That the provider is asked is stored before it is asked, so a run that was cut off in between does
not restart it twice: rebooting twice is harm, and one that did not happen can be asked for again.
"""

import datetime
from typing import Final

from platform_server.cloud import means, pausing
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import crash_points
from wire_protocol import problems

NAME: Final = "reboot-machine"
LONGEST: Final = datetime.timedelta(minutes=10)
_PACE: Final = datetime.timedelta(seconds=10)

REBOOTING = crash_points.declare(
    "cloud.rebooting", story="it is stored that a machine restarts, nobody was asked"
)


class RebootMachine:
    """The kind."""

    name = NAME

    def __init__(self, means_: means.Means) -> None:
        self._m = means_

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """Whether it is to be asked for, or looked at again."""
        machine = await means.machine_of(tx, operation=operation)
        if await pausing.is_paused(tx, connection_id=machine.connection_id, now=now):
            return kinds.Wait(seconds=5.0)
        looked = max(machine.looked_at or operation.updated_at, operation.updated_at)
        if operation.state is states.State.RUNNING and now - looked < _PACE:
            return kinds.Wait(seconds=(looked + _PACE - now).total_seconds())
        return kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Asks for it, or sees that it runs."""
        if held.operation.state is states.State.REQUESTED:
            await self._ask(held)
        else:
            await self._see(held)

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Writes down that it did not restart."""
        if states.find_after(held.operation.state, states.Event.FAIL) is not None:
            await self._move(held, holding.Move(event=states.Event.FAIL, failure=failure))

    async def _ask(self, held: holding.Held) -> None:
        m = self._m
        machine = await m.store.read(lambda tx: means.machine_of(tx, operation=held.operation))
        if machine.provider_ref is None or not machine.counts:
            raise kinds.Stop("The machine is not there any more.")
        moved = held
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="reboot machine",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=True,
            ) as driver:
                if provider.Capability.REBOOT not in driver.capabilities:
                    raise kinds.Stop(f"{machine.provider} cannot restart a machine.")
                operation = await self._move(moved, holding.Move(event=states.Event.BEGIN))
                moved = holding.Held(operation=operation, holder=held.holder, fence=held.fence)
                crash_points.reach(REBOOTING)
                await driver.reboot(machine.provider_ref, region=machine.region)
        except outcomes.Fault as fault:
            if moved is held:
                raise means.later(fault) from fault
            await self.fail(
                moved,
                holding.Failure(
                    reason=f"{fault} Whether it restarts is not known where the answer was lost; "
                    "ask again if it does not.",
                    kind=problems.Kind.TRANSIENT,
                ),
            )

    async def _see(self, held: holding.Held) -> None:
        m = self._m
        machine = await m.store.read(lambda tx: means.machine_of(tx, operation=held.operation))
        try:
            seen = await m.viewer.refresh_machine(
                machine,
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
            )
        except outcomes.Fault as fault:
            raise means.later(fault) from fault
        if seen.power == provider.Power.RUNNING.value and not seen.missed:
            await self._move(held, holding.Move(event=states.Event.SUCCEED))
        elif m.clock.now() - held.operation.updated_at >= LONGEST:
            raise kinds.Stop(
                f"The machine is {seen.power} {LONGEST} after it was restarted.",
                kind=problems.Kind.NEEDS_OPERATOR,
            )

    async def _move(self, held: holding.Held, move: holding.Move) -> records.Operation:
        m = self._m
        return await m.store.transact(
            lambda tx: holding.move(
                tx, held=held, move=move, environment=m.environment, now=m.clock.now()
            )
        )
