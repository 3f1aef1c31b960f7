"""`/operations/{id}/retry|cancel|resolve`: what a person decides about an operation.

For orders of machines, and retry for what is kept beside them; what else takes time says in its
refusal what can be done instead. Whoever
decides needs the right to order machines as well.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from platform_server.cloud import connections, consent, requests, resources
from platform_server.endpoints import calls, cloud_means, operations, refusals, routes
from platform_server.operations import records
from platform_server.store import contract
from runtime_kit import crash_points
from wire_protocol import admin, cloud_machines
from wire_protocol import operations as models

RETRY: Final = "retry"
STORED: Final = crash_points.declare(
    "asked.decision", story="a decision about an operation is stored, nobody was answered"
)
Decide = Callable[[contract.Tx, requests.Asked], Awaitable[records.Operation]]


class OperationDecisions:
    """The handlers."""

    def __init__(self, means: cloud_means.CloudMeans) -> None:
        self._means = means

    async def retry(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Tries a failed order again."""
        operation_id = call.path["operation_id"]
        caps, regions = await self._bounds(call)

        async def decide(tx: contract.Tx, asked: requests.Asked) -> records.Operation:
            found = await records.find(tx, operation_id=operation_id)
            if found is not None and found.kind in resources.OURS:
                again = await resources.retry(
                    tx, operation_id=operation_id, caps=caps, regions=regions, asked=asked
                )
                return again.operation
            made = await requests.retry(tx, operation_id=operation_id, caps=caps, asked=asked)
            return made.operation

        return await self._decided(call, decide, action=RETRY, detail="it is tried again")

    async def cancel(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Ends an open order."""

        async def decide(tx: contract.Tx, asked: requests.Asked) -> records.Operation:
            made = await requests.cancel(tx, operation_id=call.path["operation_id"], asked=asked)
            return made.operation

        return await self._decided(
            call, decide, action="cancel", detail="what it has made is deleted, then it has ended"
        )

    async def resolve(
        self, call: calls.Call[cloud_machines.ResolveRequest, routes.NoQuery]
    ) -> calls.Reply:
        """Settles an unresolved order."""
        body = call.body

        async def decide(tx: contract.Tx, asked: requests.Asked) -> records.Operation:
            made = await requests.resolve(
                tx,
                operation_id=call.path["operation_id"],
                choice=body.choice,
                provider_ref=body.provider_ref,
                asked=asked,
            )
            return made.operation

        return await self._decided(call, decide, action="resolve", detail=body.choice)

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        asked: dict[str, Any] = {
            "method": "POST",
            "answer": models.Operation,
            "status": 202,
            "changes": True,
            "parameters": {"operation_id": "The operation's id."},
            "problems": ("not-found", "operation-state", *cloud_means.PROBLEMS),
        }
        path = "/api/v1/operations/{operation_id}"
        return (
            routes.Route(
                path=f"{path}/retry",
                summary="Try a failed operation again.",
                handler=self.retry,
                **{
                    **asked,
                    "problems": (
                        *asked["problems"],
                        "cap-reached",
                        "template-stopped",
                        "node-exists",
                    ),
                },
            ),
            routes.Route(
                path=f"{path}/cancel",
                summary="End an open operation; what it has made is deleted.",
                handler=self.cancel,
                **asked,
            ),
            routes.Route(
                path=f"{path}/resolve",
                summary="Decide an operation whose outcome could not be found out.",
                handler=self.resolve,
                request=cloud_machines.ResolveRequest,
                **asked,
            ),
        )

    # Inside.

    async def _bounds(
        self, call: calls.Call[Any, Any]
    ) -> tuple[tuple[consent.Caps, ...], Sequence[str] | None]:
        """Caps and regions that it is judged by anew; of what is no order, none."""

        async def work(tx: contract.Tx) -> connections.Connection | None:
            operation = await records.find(tx, operation_id=call.path["operation_id"])
            through = None if operation is None else operation.request.get("connection_id")
            return None if through is None else await connections.find(tx, connection_id=through)

        connection = await call.read(work)
        if connection is None:
            return (), None
        rules = await cloud_means.refusing(self._means.rules_of(connection.provider))
        caps = consent.caps_of(connection, rules=rules, now=call.now())
        return caps, None if rules is None else rules.regions

    async def _decided(
        self, call: calls.Call[Any, Any], decide: Decide, *, action: str, detail: str
    ) -> calls.Reply:
        call.require("cloud.manage")
        self._means.require()
        operation_id, asked = call.path["operation_id"], cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            await _require_decidable(tx, operation_id=operation_id, action=action)
            changed = await decide(tx, asked)
            await call.record(
                tx,
                action=f"operations.{action}",
                target=operation_id,
                infra=changed.infra,
                details={"subject": changed.subject, "kind": changed.kind, "decision": detail},
            )
            return calls.Changed(
                changes=[admin.Change(action=action, target=operation_id, detail=detail)],
                answer=operations.shown(changed),
            )

        reply = await cloud_means.refusing(call.mutate(work))
        if not call.check:
            crash_points.reach(STORED)
            self._means.changed()
        return reply


async def _require_decidable(tx: contract.Tx, *, operation_id: str, action: str) -> None:
    """Raises `Refusal` for what does not exist, and for what cannot be decided about."""
    found = await records.find(tx, operation_id=operation_id)
    if found is None:
        raise refusals.Refusal("not-found", f"There is no operation {operation_id}.")
    may_retry = action == RETRY and found.kind in resources.OURS
    if found.kind != requests.CREATE and not may_retry:
        raise refusals.Refusal(
            "operation-state",
            f"The operation {operation_id} is of kind {found.kind}, which knows no {action}: it "
            "goes on or ends by itself. Once it has failed, ask for the same again.",
        )
