"""`/nodes/{id}/maintenance`, `/drain`, `/resume`: whether a node takes work.

What may follow what stands in `platform_server.nodes.scheduling`. An order that finds everything
as it wants it answers with no changes and writes nothing down. Every step is an event of its own,
the order one line in the action log.
"""

import functools
from typing import Final

from platform_server.audit import events
from platform_server.endpoints import calls, nodes, routes
from platform_server.nodes import configured, scheduling
from platform_server.store import contract
from wire_protocol import admin

KIND: Final = "node.scheduling-changed"
_SAYS: Final = {
    scheduling.Scheduling.ACTIVE: "takes work again",
    scheduling.Scheduling.MAINTENANCE: "takes no new work; what runs there stays",
    scheduling.Scheduling.DRAINED: "no work is left on it",
}


class NodeScheduling:
    """The handlers, with the nodes that the settings name."""

    def __init__(self, operators: configured.ConfiguredNodes) -> None:
        self._operators = operators

    async def order(
        self,
        call: calls.Call[admin.ReasonRequest, routes.NoQuery],
        *,
        event: scheduling.Event,
    ) -> calls.Reply:
        """Carries out one order; the reason goes into the log and the events."""
        node_id = nodes.node_id_of(call.path)
        now = call.now()
        reason = call.body.reason

        async def work(tx: contract.Tx) -> calls.Changed:
            done = await scheduling.order(
                tx, node_id=node_id, event=event, operators=self._operators
            )
            if not done.steps:
                return calls.Changed(changes=[], answer=admin.Done(changes=[]))
            infra = done.node.infra
            await call.record(
                tx,
                action=f"nodes.{event}",
                target=node_id,
                infra=infra,
                details={
                    "from": done.steps[0].before.value,
                    "to": done.steps[-1].after.value,
                    "reason": reason,
                },
            )
            for step in done.steps:
                await events.append(
                    tx,
                    at=now,
                    kind=KIND,
                    subject=node_id,
                    infra=infra,
                    data={"from": step.before.value, "to": step.after.value, "reason": reason},
                )
            changes = [
                admin.Change(action=event.value, target=node_id, detail=_SAYS[done.steps[-1].after])
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        try:
            return await call.mutate(work)
        except nodes.REFUSED as fault:
            raise nodes.refusal_of(fault) from None

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return tuple(
            routes.Route(
                method="POST",
                path=f"/api/v1/nodes/{{node_id}}/{event}",
                summary=summary,
                handler=functools.partial(self.order, event=event),
                request=admin.ReasonRequest,
                answer=admin.Done,
                parameters={"node_id": "The node's id."},
                changes=True,
                problems=("not-found", "node-exists", "node-state"),
            )
            for event, summary in (
                (
                    scheduling.Event.MAINTENANCE,
                    "Give the node no new work; what runs there stays.",
                ),
                (scheduling.Event.DRAIN, "Move the node's work elsewhere and give it no more."),
                (scheduling.Event.RESUME, "Take the node back into service."),
            )
        )
