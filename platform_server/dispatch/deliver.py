"""Delivers orders: to the sessions that this engine holds, and to Agents that listen.

An order given at one engine reaches the node through another: the one that stored it signals the
node's id, and whichever engine holds the session delivers. Each engine also looks every few seconds
by itself, so a lost signal or a killed engine costs seconds and never an order. What is in doubt is
handed over again: the Agent carries out each number once, and answers for it as often as it is
asked. Nodes that listen are served by one engine, which holds the lease.

Known limit: at most `MOST_AT_ONCE` nodes are served at one moment; the others wait their turn.
"""

import asyncio
import dataclasses
import functools
import logging
from typing import Final

from platform_server.dispatch import outcomes, pauses, plan, records, states, ways
from platform_server.nodes import asking, leading, roster
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from runtime_kit.mux import link as links
from wire_protocol import ids, orders, session, strict_json

_LOG = logging.getLogger(__name__)
CHANNEL: Final = "orders"
LEASE: Final = "order-delivery"
LOOK_SECONDS: Final = 5.0
MOST_AT_ONCE: Final = 64
_PAGE: Final = 500

SENDING = crash_points.declare("order.sending", story="an order is about to be sent")
SENT = crash_points.declare(
    "order.sent", story="the Agent has answered an order, nothing of that is stored"
)
ACCEPTED = crash_points.declare(
    "order.accepted", story="what the Agent answered to an order is stored"
)
RESULT_STORED = crash_points.declare(
    "order.result-stored", story="an order's result is stored, the Agent does not know that yet"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a look at one node's orders gave. `target` is for one that listens."""

    steps: list[plan.Step]
    target: asking.Target | None = None
    is_gone: bool = False


class Deliverer:
    """The delivery of one engine. Used from its event loop."""

    def __init__(
        self,
        store: contract.Store,
        *,
        asker: asking.Asker | None,
        environment: str,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._asker = asker
        self._clock = clock
        self._outcomes = outcomes.Outcomes(store, environment=environment, clock=clock)
        self._leading = leading.Leading(store, name=LEASE, clock=clock)
        self._leads = False
        self._at_work: dict[ids.NodeId, asyncio.Task[None]] = {}
        self._again: set[ids.NodeId] = set()
        self._waiting: dict[ids.NodeId, None] = {}  # in order, without doubles
        self._reopened: set[ids.NodeId] = set()  # whose every open order is to be asked about
        self._open: set[ids.NodeId] = set()  # nodes that had open orders when last looked at
        self._pauses = pauses.Pauses[ids.NodeId](clock)
        self._asks = pauses.Pauses[str](clock)  # by order
        self._look_now = asyncio.Event()
        self._is_running = False
        self.find: ways.Find = ways.no_sessions
        """Where the gateway's sessions are found; the gateway sets it."""

    # What other parts of the engine tell it.

    def given(self, node_id: ids.NodeId) -> None:
        """An order of this node was stored by this engine: deliver it, or let another."""
        self._open.add(node_id)
        self._wake(node_id)
        self._store.signal(CHANNEL, node_id)

    def session_opened(self, node_id: ids.NodeId, link: links.Link) -> None:  # noqa: ARG002 - the gateway's form
        """The node has a session here now; what it has not answered is handed over again.

        Only where something is known to be open: thousands may come back at once, and for those
        the next look is soon enough.
        """
        self._pauses.forget(node_id)
        self._reopened.add(node_id)
        if node_id in self._open:
            self._wake(node_id)

    async def take_result(self, node_id: ids.NodeId, body: bytes) -> bytes:
        """A node says what became of an order; stored when this returns, so it may forget it.

        Raises `links.Refusal`. What nobody knows of is taken too: it may be from before a restore.
        """
        try:
            await self._outcomes.of_result(node_id, orders.parse_result(body))
        except strict_json.Malformed as fault:
            raise links.Refusal(session.Refusal.INVALID, str(fault)) from fault
        except contract.StoreError as fault:
            raise links.Refusal(session.Refusal.NOT_NOW, "The Platform cannot store it.") from fault
        crash_points.reach(RESULT_STORED)
        return b""

    async def run(self) -> None:
        """Delivers for ever. For a supervised task."""
        cancel = self._store.listen(CHANNEL, self._heard)
        self._is_running = True
        try:
            while True:
                self._look_now.clear()
                try:
                    await self._look()
                except contract.StoreError as fault:
                    _LOG.warning("Orders cannot be looked at", extra={"reason": str(fault)})
                await self._pause()
        finally:
            self._is_running = False
            cancel()
            tasks = list(self._at_work.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _heard(self, payload: str) -> None:
        if payload:
            self._open.add(ids.NodeId(payload))
            self._wake(ids.NodeId(payload))
        else:
            self._look_now.set()

    async def _pause(self) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
        looking = asyncio.ensure_future(self._look_now.wait())
        try:
            await asyncio.wait({sleeping, looking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleeping, looking):
                task.cancel()
            await asyncio.gather(sleeping, looking, return_exceptions=True)

    async def _look(self) -> None:
        """Ends what is over, and finds nodes with open orders that this engine can reach."""
        self._leads = await self._leading.holds()
        await self._outcomes.end_what_is_over()
        after: str | None = ""
        open_nodes: set[ids.NodeId] = set()
        while after is not None:
            page = await self._store.read(
                functools.partial(records.list_waiting_nodes, after=after, limit=_PAGE)
            )
            for one in page:
                open_nodes.add(one.node_id)
                reachable = self.find(one.node_id) is not None or (self._leads and one.listens)
                if reachable and not self._pauses.lasts(one.node_id):
                    self._wake(one.node_id)
            after = page[-1].node_id if len(page) == _PAGE else None
        self._open = open_nodes
        self._pauses.keep(open_nodes)
        self._asks.forget_old()
        self._reopened &= open_nodes

    def _is_reachable(self, node_id: ids.NodeId) -> bool:
        """Whether it is worth a look at the node's orders; the look says what is true."""
        return self.find(node_id) is not None or (self._leads and self._asker is not None)

    def _wake(self, node_id: ids.NodeId) -> None:
        """Serves the node soon; one that is being served is looked at once more after that."""
        if not self._is_running or not self._is_reachable(node_id):
            return
        if node_id in self._at_work:
            self._again.add(node_id)
        elif len(self._at_work) >= MOST_AT_ONCE:
            self._waiting[node_id] = None
        else:
            self._at_work[node_id] = asyncio.create_task(
                self._serve(node_id), name=f"orders-{node_id}"
            )

    async def _serve(self, node_id: ids.NodeId) -> None:
        try:
            while True:
                self._again.discard(node_id)
                if not await self._serve_once(node_id) and node_id not in self._again:
                    return
        except contract.StoreError as fault:
            _LOG.warning("An order waits", extra={"node": node_id, "reason": str(fault)})
        except Exception:  # noqa: BLE001 - one node's fault is not to end delivery to all others
            _LOG.exception("An order met a fault of ours", extra={"node": node_id})
            self._pauses.begin(node_id)
        finally:
            self._again.discard(node_id)
            self._at_work.pop(node_id, None)
            if self._waiting:
                following = next(iter(self._waiting))
                del self._waiting[following]
                self._wake(following)

    async def _serve_once(self, node_id: ids.NodeId) -> bool:
        """Does what there is to do first; says whether there may be more."""
        found = await self._store.read(
            functools.partial(
                self._look_at, node_id=node_id, has_session=self.find(node_id) is not None
            )
        )
        if found.is_gone:
            await self._outcomes.end_of_gone(node_id)
            return False
        over = [step for step in found.steps if step.do is plan.Do.END]
        if over:
            await self._outcomes.end(over)
        steps = self._due(node_id, steps=found.steps)
        way = self._way(node_id, target=found.target)
        if not steps or way is None:
            return False
        return await self._hand(steps[0], way=way)

    def _due(self, node_id: ids.NodeId, *, steps: list[plan.Step]) -> list[plan.Step]:
        """Without what is over, and without what was asked about a moment ago."""
        if node_id in self._reopened:
            self._reopened.discard(node_id)
            for step in steps:
                self._asks.forget(step.order.order_id)
        return [
            step
            for step in steps
            if step.do is plan.Do.SEND
            or (step.do is plan.Do.ASK and not self._asks.lasts(step.order.order_id))
        ]

    async def _hand(self, step: plan.Step, *, way: ways.Way) -> bool:
        """Hands one order over, and writes down what came of that."""
        node_id, answer = step.order.node_id, b""
        self._asks.begin(step.order.order_id)
        crash_points.reach(SENDING)
        try:
            answer = await way.hand(step.order.signed.to_bytes())
            result = orders.parse_result(answer) if answer else None
        except ways.NotNow as fault:
            _LOG.info("An order waits", extra={"node": node_id, "reason": str(fault)})
            self._pauses.begin(node_id)
            await self._outcomes.of_try(step)
            return False
        except (ways.Refused, strict_json.Malformed) as fault:
            crash_points.reach(SENT)
            await self._outcomes.of_try(step, event=states.Event.FAIL, detail=str(fault))
        else:
            crash_points.reach(SENT)
            if result is None:
                await self._outcomes.of_try(step, event=states.Event.TAKE)
            else:
                event = states.Event.SUCCEED if result.is_done else states.Event.FAIL
                await self._outcomes.of_try(step, event=event, detail=result.detail)
        self._pauses.forget(node_id)
        crash_points.reach(ACCEPTED)
        if not answer and isinstance(way, ways.ToPort):
            # Nobody brings the result from there: it is asked for, soon at first.
            await self._clock.sleep(pauses.FIRST_SECONDS)
        return True

    async def _look_at(self, tx: contract.Tx, *, node_id: ids.NodeId, has_session: bool) -> _Found:
        """What is to be done; on a snapshot, since a commit here would cost each order a sync."""
        standing = await records.look(tx, node_id=node_id)
        if standing is None or standing.is_gone:
            return _Found(steps=[], is_gone=standing is not None)
        target = None
        if self._leads and not has_session:
            entry = await roster.find(tx, node_id=node_id)
            target = None if entry is None else entry.target
        steps = plan.plan(
            standing.orders,
            epoch=standing.epoch,
            now=self._clock.now(),
            enrolled_at=standing.enrolled_at,
        )
        return _Found(steps=steps, target=target)

    def _way(self, node_id: ids.NodeId, *, target: asking.Target | None) -> ways.Way | None:
        link = self.find(node_id)
        if link is not None:
            return ways.OverSession(link=link)
        if target is not None and self._asker is not None:
            return ways.ToPort(asker=self._asker, target=target)
        return None
