"""`/nodes/{id}/orders`: tell a node's Agent to do something, see what became of it, take it back.

An order is stored before it is answered for; delivering it is somebody else's work
(`platform_server.dispatch`), so the answer says `queued` whether the node is there or not.
"""

import datetime
from collections.abc import Callable
from typing import Any, Final

from platform_server.dispatch import giving, records
from platform_server.endpoints import calls, cursors, nodes, refusals, routes
from platform_server.nodes import configured, registry
from platform_server.store import contract
from runtime_kit import crash_points
from wire_protocol import admin, ids, orders

_NUMBERS: Final = (int, int)


class NodeOrders:
    """The handlers. `sign` is None where dispatch is off; `given` hears of each stored order."""

    def __init__(
        self,
        *,
        operators: configured.ConfiguredNodes,
        sign: giving.Signer | None,
        given: Callable[[ids.NodeId], None],
    ) -> None:
        self._operators = operators
        self._sign = sign
        self._given = given

    async def give(self, call: calls.Call[admin.OrderRequest, routes.NoQuery]) -> calls.Reply:
        """Stores the order and has it delivered."""
        node_id = nodes.node_id_of(call.path)
        sign = self._sign
        if sign is None:
            raise refusals.Refusal(
                "nodes-disabled",
                "This Platform takes no nodes: start it with --enrollment-port, or set "
                "[dispatch] enabled = true.",
            )
        now = call.now()
        wish = giving.Wish(
            node_id=node_id,
            kind=orders.Kind(call.body.kind),
            ttl=datetime.timedelta(seconds=call.body.ttl_seconds),
            created_by=call.principal.name,
            purpose=call.body.purpose or None,
        )

        async def work(tx: contract.Tx) -> calls.Changed:
            order = await giving.give(tx, wish=wish, sign=sign, operators=self._operators, now=now)
            await call.record(
                tx,
                action="nodes.order",
                target=node_id,
                infra=order.infra,
                details={
                    "order_id": order.order_id,
                    "kind": order.kind,
                    "purpose": order.purpose,
                    "ttl_seconds": call.body.ttl_seconds,
                },
            )
            changes = [
                admin.Change(
                    action="order",
                    target=node_id,
                    detail=f"{order.kind}, within {call.body.ttl_seconds} s",
                )
            ]
            return calls.Changed(changes=changes, answer=shown(order, now=now))

        try:
            reply = await call.mutate(work)
        except giving.TooMany as fault:
            raise refusals.Refusal("conflict", str(fault)) from None
        except nodes.REFUSED as fault:
            raise nodes.refusal_of(fault) from None
        if not call.check:
            crash_points.reach(giving.STORED)
            self._given(node_id)
        return reply

    async def list_page(self, call: calls.Call[None, routes.PageQuery]) -> admin.OrderList:
        """Orders of the node, newest first; those of a removed node too."""
        node_id = nodes.node_id_of(call.path)
        query, now = call.query, call.now()
        before = (
            None if query.cursor is None else _number(cursors.decode(query.cursor, kinds=_NUMBERS))
        )

        async def work(tx: contract.Tx) -> admin.OrderList:
            node = await registry.get(tx, node_id=node_id)
            if query.infra not in (None, node.infra):
                return admin.OrderList(orders=[])
            found = await records.list_page(
                tx, node_id=node_id, limit=query.limit + 1, before=before
            )
            page = found[: query.limit]
            more = len(found) > len(page)
            return admin.OrderList(
                orders=[shown(one, now=now) for one in page],
                next_cursor=cursors.encode(*page[-1].number) if more else None,
            )

        if self._operators.holds(node_id):
            return admin.OrderList(orders=[])
        try:
            return await call.read(work)
        except registry.NoSuchNode as fault:
            raise refusals.Refusal("not-found", str(fault)) from None

    async def cancel(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Takes back an order that the node has not taken."""
        node_id = nodes.node_id_of(call.path)
        order_id = call.path["order_id"]
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            order = await giving.cancel(
                tx,
                node_id=node_id,
                order_id=order_id,
                environment=call.settings.platform.environment,
                now=now,
            )
            await call.record(
                tx,
                action="nodes.cancel-order",
                target=node_id,
                infra=order.infra,
                details={"order_id": order_id, "kind": order.kind, "tries": order.tries},
            )
            sent = "it was sent without an answer, so the node may have taken it"
            changes = [
                admin.Change(
                    action="cancel",
                    target=f"order {order_id}",
                    detail=sent if order.tries else "the node has not seen it",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        try:
            return await call.mutate(work)
        except giving.NoSuchOrder as fault:
            raise refusals.Refusal("not-found", str(fault)) from None
        except giving.NotQueued as fault:
            raise refusals.Refusal("conflict", str(fault)) from None

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        one: dict[str, Any] = {"parameters": {"node_id": "The node's id."}}
        return (
            routes.Route(
                method="POST",
                path="/api/v1/nodes/{node_id}/orders",
                summary="Order the node's Agent to do something; it is delivered when it can be.",
                handler=self.give,
                request=admin.OrderRequest,
                answer=admin.Order,
                status=201,
                changes=True,
                problems=("not-found", "node-exists", "node-state", "nodes-disabled", "conflict"),
                **one,
            ),
            routes.Route(
                method="GET",
                path="/api/v1/nodes/{node_id}/orders",
                summary="List the node's orders, newest first.",
                handler=self.list_page,
                query=routes.PageQuery,
                answer=admin.OrderList,
                cursor=_NUMBERS,
                problems=("not-found",),
                **one,
            ),
            routes.Route(
                method="DELETE",
                path="/api/v1/nodes/{node_id}/orders/{order_id}",
                summary="Take back an order that the node has not taken yet.",
                handler=self.cancel,
                answer=admin.Done,
                changes=True,
                problems=("not-found", "conflict"),
                parameters={**one["parameters"], "order_id": "The order's id."},
            ),
        )


def shown(order: records.Order, *, now: datetime.datetime) -> admin.Order:
    """An order as the API shows it."""
    return admin.Order(
        order_id=order.order_id,
        node_id=order.node_id,
        kind=order.kind,
        state=order.state_at(now).value,
        infra=order.infra,
        epoch=order.epoch,
        sequence=order.sequence,
        purpose=order.purpose,
        created_at=order.created_at,
        created_by=order.created_by,
        expires_at=order.expires_at,
        tries=order.tries,
        accepted_at=order.accepted_at,
        ended_at=order.ended_at,
        detail=order.detail,
    )


def _number(key: tuple[str | int, ...]) -> tuple[int, int]:
    epoch, sequence = key
    return int(epoch), int(sequence)
