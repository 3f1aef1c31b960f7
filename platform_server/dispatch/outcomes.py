"""Stores what a delivery came to, and what nodes say of orders they took.

Each in one transaction, behind the node's lock: the same may be told by two engines, and that an
order was taken and what became of it at one moment.
"""

import logging

from platform_server.dispatch import ending, giving, plan, records, states
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import ids, orders

_LOG = logging.getLogger(__name__)
OVER_AT_ONCE = 100


class Outcomes:
    """Writes for one engine's delivery."""

    def __init__(self, store: contract.Store, *, environment: str, clock: clock_kit.Clock) -> None:
        self._store = store
        self._environment = environment
        self._clock = clock

    async def of_try(
        self, step: plan.Step, *, event: states.Event | None = None, detail: str = ""
    ) -> None:
        """The order was handed over: counted if it was a try, and what the node said of it."""

        async def work(tx: contract.Tx) -> None:
            await ending.lock(tx, node_ids=[step.order.node_id])
            if step.do is plan.Do.SEND:
                await records.count_try(tx, order_id=step.order.order_id)
            if event is not None:
                await self._said(tx, step.order, event=event, detail=detail)

        if event is not None or step.do is plan.Do.SEND:
            await self._store.transact(work)

    async def of_result(self, node_id: ids.NodeId, result: orders.Result) -> None:
        """A node says what became of an order; one that nobody knows of is from a restored past.

        A node can name any number: what is unknown costs a look and nothing else.
        """
        number = (result.epoch, result.sequence)

        async def work(tx: contract.Tx) -> None:
            order = await records.find_by_number(tx, node_id=node_id, number=number)
            if order is not None:
                event = states.Event.SUCCEED if result.is_done else states.Event.FAIL
                await self._said(tx, order, event=event, detail=result.detail)

        found = await self._store.read(
            lambda tx: records.find_by_number(tx, node_id=node_id, number=number)
        )
        if found is None:
            _LOG.debug("A result of an unknown order", extra={"node": node_id, "number": number})
            return
        await self._store.transact(work)

    async def end(self, steps: list[plan.Step]) -> None:
        """Ends what the plan says."""

        async def work(tx: contract.Tx) -> None:
            await ending.lock(tx, node_ids=[step.order.node_id for step in steps])
            for step in steps:
                await self._end(tx, step)

        await self._store.transact(work)

    async def end_of_gone(self, node_id: ids.NodeId) -> None:
        """Ends what is open for a node that was removed."""
        now = self._clock.now()
        await self._store.transact(
            lambda tx: giving.cancel_all(
                tx, node_id=node_id, environment=self._environment, now=now
            )
        )

    async def end_what_is_over(self) -> None:
        """Ends queued orders whose time has passed, and open ones of nodes that are gone."""
        now = self._clock.now()

        async def work(tx: contract.Tx) -> None:
            over = await records.list_over(tx, now=now, limit=OVER_AT_ONCE)
            await ending.lock(tx, node_ids=[order.node_id for order in over])
            for order in over:
                if order.state is states.State.QUEUED and order.expires_at <= now:
                    (step,) = plan.plan([order], epoch=order.epoch, now=now)
                    await self._end(tx, step)
                else:
                    await giving.end_of_removed(
                        tx, order=order, environment=self._environment, now=now
                    )

        # A write by each engine every few seconds would cost more than the look: read first.
        if await self._store.read(lambda tx: records.list_over(tx, now=now, limit=1)):
            await self._store.transact(work)

    async def _said(
        self, tx: contract.Tx, order: records.Order, *, event: states.Event, detail: str
    ) -> None:
        await ending.happened(
            tx,
            order=order,
            event=event,
            environment=self._environment,
            now=self._clock.now(),
            actor=ids.agent_id_of(order.node_id),
            detail=detail,
        )

    async def _end(self, tx: contract.Tx, step: plan.Step) -> None:
        await ending.happened(
            tx,
            order=step.order,
            event=step.event,
            environment=self._environment,
            now=self._clock.now(),
            detail=step.detail,
        )
