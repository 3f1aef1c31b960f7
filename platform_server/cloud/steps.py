"""One step of an order as those that take it see it: what they stand on, and what is known."""

import dataclasses

from platform_server.cloud import attempts, create_plan, machines, means
from platform_server.operations import holding, kinds, records
from platform_server.store import contract


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The operation as it is held, and the facts by which the step was chosen."""

    m: means.Means
    held: holding.Held
    facts: create_plan.Facts

    @property
    def machine(self) -> machines.Machine:
        """The ordered machine."""
        return self.facts.machine

    @property
    def last(self) -> attempts.Attempt:
        """The newest attempt."""
        if self.facts.last is None:
            raise kinds.Stop("The order has no attempt: a fault of ours.")
        return self.facts.last

    async def move(self, move: holding.Move) -> records.Operation:
        """Writes a change of the state, in a transaction of its own."""
        return await self.m.store.transact(lambda tx: self.moved(tx, move))

    async def moved(self, tx: contract.Tx, move: holding.Move) -> records.Operation:
        """Writes a change of the state, last in a transaction."""
        return await holding.move(
            tx,
            held=self.held,
            move=move,
            environment=self.m.environment,
            now=self.m.clock.now(),
        )
