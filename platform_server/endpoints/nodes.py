"""`/nodes`: look, label, remove, allow again. Whether a node takes work: `node_scheduling`.

Configured nodes stand among the registered ones and win over one of the same id. Removal leaves a
tombstone; nothing here deletes history.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import pydantic

from platform_server.audit import events
from platform_server.dispatch import giving
from platform_server.endpoints import calls, cursors, refusals, routes, shown
from platform_server.mesh import members
from platform_server.nodes import configured, registry, states, telling
from platform_server.store import contract
from platform_server.tokens import label_sql
from platform_server.tokens import records as enrollments
from wire_protocol import admin, ids, labels

_MOST_PENDING: Final = 500
_KEY: Final = re.compile(labels.KEY_PATTERN)
_VALUE: Final = re.compile(labels.VALUE_PATTERN)


class RemoveQuery(pydantic.BaseModel):
    """How `DELETE /nodes/{id}` is meant."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    force: Annotated[bool, pydantic.Field(description="Also while work is placed on the node.")] = (
        False
    )


class Nodes:
    """The handlers, with the nodes that the settings name."""

    def __init__(self, operators: configured.ConfiguredNodes) -> None:
        self._operators = operators

    async def list_page(self, call: calls.Call[None, routes.LabelledPageQuery]) -> admin.NodeList:
        """Nodes by id; the first page also carries the enrollments that are still open."""
        query = call.query
        filters = [label_filter(text) for text in query.label]
        after = cursors.decode_text(query.cursor)
        now = call.now()
        own_infra = call.settings.platform.infra

        async def work(tx: contract.Tx) -> tuple[list[admin.Node], list[admin.Enrollment]]:
            found = await registry.list_page(
                tx,
                limit=query.limit + 1,
                after=after,
                infra=query.infra,
                label_filters=filters,
                without=sorted(self._operators.nodes),
            )
            told = await telling.find(tx, node_ids=[one.node_id for one in found], now=now)
            places = await members.find_of(tx, node_ids=[one.node_id for one in found])
            page = [
                shown.node(one, told=told.get(one.node_id), place=places.get(one.node_id), now=now)
                for one in found
            ]
            if not filters and query.infra in (None, own_infra):
                page += await self._configured(tx, call=call, after=after)
            pending = (
                []
                if after is not None
                else await enrollments.list_page(
                    tx,
                    limit=_MOST_PENDING,
                    infra=query.infra,
                    pending_at=now,
                    label_filters=filters,
                )
            )
            return page, [shown.enrollment(one, now=now) for one in pending]

        nodes, open_ones = await call.read(work)
        nodes.sort(key=lambda one: one.node_id)
        page = nodes[: query.limit]
        more = len(nodes) > len(page)
        return admin.NodeList(
            nodes=page,
            enrollments=open_ones,
            next_cursor=cursors.encode(page[-1].node_id) if more else None,
        )

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> admin.Node:
        """One node."""
        node_id = node_id_of(call.path)
        now = call.now()
        own = self._operators.nodes.get(node_id)

        async def work(tx: contract.Tx) -> admin.Node:
            if own is not None:
                learned = await configured.read_learned(tx)
                return shown.configured_node(
                    own,
                    learned=learned.get(node_id),
                    infra=call.settings.platform.infra,
                    now=now,
                )
            node = await registry.get(tx, node_id=node_id)
            told = await telling.find(tx, node_ids=[node_id], now=now)
            place = await members.find_live(tx, node_id=node_id)
            return shown.node(node, told=told.get(node_id), place=place, now=now)

        try:
            return await call.read(work)
        except registry.NoSuchNode as fault:
            raise refusals.Refusal("not-found", str(fault)) from None

    async def change_labels(
        self, call: calls.Call[admin.LabelsRequest, routes.NoQuery]
    ) -> calls.Reply:
        """Sets labels and takes labels away."""
        node_id = node_id_of(call.path)
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            await registry.change_labels(
                tx, node_id=node_id, changes=call.body.labels, operators=self._operators
            )
            node = await registry.get(tx, node_id=node_id)
            await call.record(
                tx,
                action="nodes.label",
                target=node_id,
                infra=node.infra,
                details={"labels": call.body.labels},
            )
            await events.append(
                tx,
                at=now,
                kind="node.labels-changed",
                subject=node_id,
                infra=node.infra,
                data={"labels": dict(node.labels)},
            )
            changes = [
                admin.Change(
                    action="unlabel" if value is None else "label",
                    target=node_id,
                    detail=key if value is None else f"{key}={value}",
                )
                for key, value in sorted(call.body.labels.items())
            ]
            return calls.Changed(changes=changes, answer=shown.node(node, now=now))

        try:
            labels.check({key: value or "" for key, value in call.body.labels.items()})
            return await call.mutate(work)
        except ValueError as fault:
            raise refusals.invalid("labels", f"labels: {fault}") from None
        except REFUSED as fault:
            raise refusal_of(fault) from None

    async def remove(self, call: calls.Call[None, RemoveQuery]) -> calls.Reply:
        """Takes the node away; its id stays taken until `allow`."""
        node_id = node_id_of(call.path)
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            node = await registry.remove(tx, node_id=node_id, operators=self._operators, now=now)
            await giving.cancel_all(
                tx, node_id=node_id, environment=call.settings.platform.environment, now=now
            )
            await call.record(
                tx,
                action="nodes.remove",
                target=node_id,
                infra=node.infra,
                details={
                    "pin": node.pin,
                    "state": node.state.value,
                    "force": call.query.force,
                },
            )
            await events.append(tx, at=now, kind="node.removed", subject=node_id, infra=node.infra)
            changes = [
                admin.Change(
                    action="remove",
                    target=node_id,
                    detail="its key opens nothing any more; unused tokens and orders of it end",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await self._change(call, node_id=node_id, work=work)

    async def allow(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Lifts the tombstone of a removed node."""
        node_id = node_id_of(call.path)
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            node = await registry.allow(tx, node_id=node_id, operators=self._operators, now=now)
            await call.record(tx, action="nodes.allow", target=node_id, infra=node.infra)
            await events.append(tx, at=now, kind="node.allowed", subject=node_id, infra=node.infra)
            changes = [
                admin.Change(
                    action="allow", target=node_id, detail="the id may be issued a token again"
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await self._change(call, node_id=node_id, work=work)

    async def _change(
        self,
        call: calls.Call[None, Any],
        *,
        node_id: ids.NodeId,
        work: Callable[[contract.Tx], Awaitable[calls.Changed]],
    ) -> calls.Reply:
        """Carries out what ends a node or its tombstone, and tells every engine at once."""
        try:
            reply = await call.mutate(work)
        except REFUSED as fault:
            raise refusal_of(fault) from None
        if not call.check:
            call.store.signal(registry.CHANGED, node_id)
        return reply

    async def _configured(
        self,
        tx: contract.Tx,
        *,
        call: calls.Call[None, routes.LabelledPageQuery],
        after: str | None,
    ) -> Sequence[admin.Node]:
        wanted = sorted(
            node_id for node_id in self._operators.nodes if after is None or node_id > after
        )[: call.query.limit + 1]
        if not wanted:
            return []
        learned = await configured.read_learned(tx)
        return [
            shown.configured_node(
                self._operators.nodes[node_id],
                learned=learned.get(node_id),
                infra=call.settings.platform.infra,
                now=call.now(),
            )
            for node_id in wanted
        ]

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        one: dict[str, Any] = {"parameters": {"node_id": "The node's id."}}
        changing: dict[str, Any] = {**one, "changes": True}
        return (
            routes.Route(
                method="GET",
                path="/api/v1/nodes",
                summary="List nodes, and the enrollments that are still open.",
                handler=self.list_page,
                query=routes.LabelledPageQuery,
                answer=admin.NodeList,
            ),
            routes.Route(
                method="GET",
                path="/api/v1/nodes/{node_id}",
                summary="Show one node.",
                handler=self.show,
                answer=admin.Node,
                problems=("not-found",),
                **one,
            ),
            routes.Route(
                method="PATCH",
                path="/api/v1/nodes/{node_id}",
                summary="Set labels, or take them away with null.",
                handler=self.change_labels,
                request=admin.LabelsRequest,
                answer=admin.Node,
                problems=("not-found", "node-exists", "node-state"),
                **changing,
            ),
            routes.Route(
                method="DELETE",
                path="/api/v1/nodes/{node_id}",
                summary="Remove a node; its id stays taken until it is allowed again.",
                handler=self.remove,
                query=RemoveQuery,
                answer=admin.Done,
                problems=("not-found", "node-exists", "node-removed", "node-in-use", "node-state"),
                **changing,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/nodes/{node_id}/allow",
                summary="Lift the tombstone of a removed node.",
                handler=self.allow,
                answer=admin.Done,
                problems=("not-found", "node-exists", "node-state"),
                **changing,
            ),
        )


REFUSED: Final = (
    registry.NoSuchNode,
    registry.OperatorsNode,
    registry.NotRemoved,
    states.WrongState,
)


def node_id_of(path: "Any") -> ids.NodeId:
    """The node id in the path; one that is out of shape is a 422 that names it."""
    try:
        return ids.parse_node_id(path["node_id"])
    except ValueError as fault:
        raise refusals.invalid("node_id", f"node_id: {fault}") from None


def refusal_of(fault: Exception) -> refusals.Refusal:
    """What the caller is told of one of `REFUSED`."""
    if isinstance(fault, registry.NoSuchNode):
        return refusals.Refusal("not-found", str(fault))
    if isinstance(fault, registry.OperatorsNode):
        return refusals.Refusal("node-exists", str(fault))
    return refusals.Refusal("node-state", str(fault))


def label_filter(text: str) -> label_sql.Filter:
    """Reads `KEY=VALUE` or `KEY` from a query; refuses what is out of shape."""
    key, equals, value = text.partition("=")
    if not _KEY.match(key) or not _VALUE.match(value):
        raise refusals.invalid("label", "label: a filter is KEY=VALUE or KEY.")
    return key, value if equals else None
