"""A kind that only has parts: it ends with them, and fails with the first that fails.

The parts wait for one another (`depends_on`), so they are carried out one at a time and none is
begun after a failure; the whole does nothing but say how they went.
"""

import datetime
from typing import Final

from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import problems

UPDATE_NODES: Final = "update-nodes"
MOST_PARTS: Final = 500


class Batch:
    """The kind of one such whole."""

    def __init__(
        self, name: str, *, store: contract.Store, environment: str, clock: clock_kit.Clock
    ) -> None:
        self.name = name
        self._store = store
        self._environment = environment
        self._clock = clock

    async def look(
        self,
        tx: contract.Tx,
        *,
        operation: records.Operation,
        now: datetime.datetime,  # noqa: ARG002 - the form of `kinds.Kind`
    ) -> kinds.Found:
        """Whether it begins, or its last part has ended."""
        if await _next(tx, operation=operation) is None:
            return kinds.Wait(seconds=kinds.ONCE_WOKEN)
        return kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Begins it, or ends it."""
        now = self._clock.now()

        async def work(tx: contract.Tx) -> None:
            move = await _next(tx, operation=held.operation)
            if move is not None:
                await holding.move(tx, held=held, move=move, environment=self._environment, now=now)

        await self._store.transact(work)

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Fails without its parts: they go on by themselves, and each says how it went."""
        if states.find_after(held.operation.state, states.Event.FAIL) is None:
            return
        now = self._clock.now()
        move = holding.Move(event=states.Event.FAIL, failure=failure)
        await self._store.transact(
            lambda tx: holding.move(
                tx, held=held, move=move, environment=self._environment, now=now
            )
        )


async def _next(tx: contract.Tx, *, operation: records.Operation) -> holding.Move | None:
    if operation.state is states.State.REQUESTED:
        return holding.Move(event=states.Event.BEGIN)
    parts = await records.list_parts(tx, parent_id=operation.operation_id, limit=MOST_PARTS)
    if any(part.is_open for part in parts):
        return None
    failed = next((part for part in parts if part.state is states.State.FAILED), None)
    if failed is None:
        return holding.Move(
            event=states.Event.SUCCEED, detail=f"{len(parts)} of {len(parts)} done."
        )
    done = sum(part.state is states.State.DONE for part in parts)
    reason = f"{failed.subject}: {failed.reason} {done} of {len(parts)} done, the rest not begun."
    return holding.Move(
        event=states.Event.FAIL,
        failure=holding.Failure(reason=reason, kind=failed.error_class or problems.Kind.PERMANENT),
    )
