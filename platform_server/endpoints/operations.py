"""`/operations`, `/nodes/update`, `/nodes/{id}/roll-back`: what takes time, asked for and shown.

An operation is stored before it is answered for; carrying it out is the reconciler's, in whichever
engine, so the answer says `requested`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import pydantic

from platform_server.endpoints import calls, cursors, mutations, nodes, refusals, routes
from platform_server.nodes import configured
from platform_server.operations import batch, records, requests, shelf
from platform_server.store import contract
from runtime_kit import clock, crash_points
from wire_protocol import admin, ids, problems
from wire_protocol import operations as models

_CURSOR: Final = (int, str)
STORED = crash_points.declare(
    "operation.stored", story="operations are stored, nobody was answered and none is begun"
)


class OperationsQuery(routes.PageQuery):
    """What the list of operations is narrowed to."""

    node_id: Annotated[
        admin.NodeIdField | None, pydantic.Field(description="Only those on this node.")
    ] = None
    open: Annotated[
        bool | None, pydantic.Field(description="Only those that have not ended, or that have.")
    ] = None


class Operations:
    """The handlers. `changed` hears of what was stored; None where dispatch is off."""

    def __init__(
        self,
        *,
        operators: configured.ConfiguredNodes,
        archives: shelf.Archives,
        changed: Callable[[], None] | None,
    ) -> None:
        self._operators = operators
        self._archives = archives
        self._changed = changed

    async def list_page(self, call: calls.Call[None, OperationsQuery]) -> models.OperationList:
        """Newest first."""
        query = call.query
        before = None
        if query.cursor is not None:
            micros, operation_id = cursors.decode(query.cursor, kinds=_CURSOR)
            before = (int(micros), str(operation_id))
        wanted = records.Wanted(infra=query.infra, subject=query.node_id, is_open=query.open)

        async def work(tx: contract.Tx) -> models.OperationList:
            found = await records.list_page(tx, wanted=wanted, limit=query.limit + 1, before=before)
            page = found[: query.limit]
            more = len(found) > len(page)
            return models.OperationList(
                operations=await _shown_all(tx, page),
                next_cursor=cursors.encode(
                    clock.to_micros(page[-1].created_at), page[-1].operation_id
                )
                if more
                else None,
            )

        return await call.read(work)

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> models.OperationDetails:
        """One operation with its steps and parts."""
        operation_id = call.path["operation_id"]

        async def work(tx: contract.Tx) -> models.OperationDetails | None:
            found = await records.find(tx, operation_id=operation_id)
            if found is None:
                return None
            parts = await records.list_parts(tx, parent_id=operation_id, limit=batch.MOST_PARTS)
            return models.OperationDetails(
                **shown(found).model_dump(by_alias=True),
                steps=[
                    models.Step(
                        at=one.at, event=one.event, state=one.state.value, detail=one.detail
                    )
                    for one in found.steps
                ],
                parts=await _shown_all(tx, parts),
            )

        found = await call.read(work)
        if found is None:
            raise refusals.Refusal("not-found", f"There is no operation {operation_id}.")
        return found

    async def update(self, call: calls.Call[models.UpdateRequest, routes.NoQuery]) -> calls.Reply:
        """Has nodes run another release, one after the other."""
        call.require("nodes.manage")
        changed = self._require_dispatch()
        archives = await asyncio.to_thread(self._archives.list_workers)
        wish = requests.Wish(
            node_ids=[ids.NodeId(one) for one in call.body.node_ids],
            version=call.body.version,
            infra=None,
            created_by=call.principal.name,
            now=call.now(),
        )

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.update(
                tx,
                wish=wish,
                archives=archives,
                operators=self._operators,
                environment=call.settings.platform.environment,
            )
            if made.whole is not None:
                await call.record(
                    tx,
                    action="nodes.update",
                    target=made.whole.operation_id,
                    infra=made.whole.infra,
                    details={
                        "nodes": [part.subject for part in made.parts][:100],
                        "count": len(made.parts),
                        "version": call.body.version,
                    },
                )
            return calls.Changed(
                changes=[
                    *(_change(part) for part in made.parts),
                    *(
                        admin.Change(action="pass", target=one.node_id, detail=one.reason)
                        for one in made.passed
                    ),
                ],
                answer=models.UpdateAnswer(
                    operation=None if made.whole is None else shown(made.whole),
                    parts=[shown(part) for part in made.parts],
                    passed=[
                        models.Passed(node_id=one.node_id, reason=one.reason) for one in made.passed
                    ],
                ),
                status=200 if made.whole is None else 201,
            )

        reply = await self._asked(call, work)
        return self._stored(call, reply, changed=changed)

    async def roll_back(self, call: calls.Call[admin.ReasonRequest, routes.NoQuery]) -> calls.Reply:
        """Has the node run the release before its present one."""
        call.require("nodes.manage")
        changed = self._require_dispatch()
        node_id = nodes.node_id_of(call.path)
        now = call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            operation = await requests.roll_back(
                tx,
                node_id=node_id,
                operators=self._operators,
                environment=call.settings.platform.environment,
                created_by=call.principal.name,
                now=now,
            )
            await call.record(
                tx,
                action="nodes.roll-back",
                target=node_id,
                infra=operation.infra,
                details={
                    "operation_id": operation.operation_id,
                    "reason": call.body.reason,
                },
            )
            return calls.Changed(changes=[_change(operation)], answer=shown(operation))

        reply = await self._asked(call, work)
        return self._stored(call, reply, changed=changed)

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        asked: dict[str, Any] = {
            "changes": True,
            "problems": ("not-found", "node-exists", "node-state", "nodes-disabled", "conflict"),
        }
        return (
            routes.Route(
                method="GET",
                path="/api/v1/operations",
                summary="List operations, newest first.",
                handler=self.list_page,
                query=OperationsQuery,
                answer=models.OperationList,
                cursor=_CURSOR,
            ),
            routes.Route(
                method="GET",
                path="/api/v1/operations/{operation_id}",
                summary="One operation, with its steps and its parts.",
                handler=self.show,
                answer=models.OperationDetails,
                parameters={"operation_id": "The operation's id."},
                problems=("not-found",),
            ),
            routes.Route(
                method="POST",
                path="/api/v1/nodes/update",
                summary="Have nodes run another release, one after the other.",
                handler=self.update,
                request=models.UpdateRequest,
                answer=models.UpdateAnswer,
                status=201,
                other_statuses={200: "There is nothing to do."},
                word_may_be_an_id=True,
                **asked,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/nodes/{node_id}/roll-back",
                summary="Have the node run the release before its present one.",
                handler=self.roll_back,
                request=admin.ReasonRequest,
                answer=models.Operation,
                status=201,
                parameters={"node_id": "The node's id."},
                **asked,
            ),
        )

    async def _asked(self, call: calls.Call[Any, Any], work: mutations.Work) -> calls.Reply:
        try:
            return await call.mutate(work)
        except (requests.Busy, requests.CannotUpdate) as fault:
            raise refusals.Refusal("conflict", str(fault)) from None
        except nodes.REFUSED as fault:
            raise nodes.refusal_of(fault) from None

    def _stored(
        self, call: calls.Call[Any, Any], reply: calls.Reply, *, changed: Callable[[], None]
    ) -> calls.Reply:
        if not call.check:
            crash_points.reach(STORED)
            changed()
        return reply

    def _require_dispatch(self) -> Callable[[], None]:
        if self._changed is None:
            raise refusals.Refusal(
                "nodes-disabled",
                "This Platform takes no nodes: start it with --enrollment-port, or set "
                "[dispatch] enabled = true.",
            )
        return self._changed


def shown(operation: records.Operation) -> models.Operation:
    """An operation as the API shows it."""
    kind = operation.error_class
    return models.Operation.model_validate(
        {
            "operation_id": operation.operation_id,
            "kind": operation.kind,
            "state": operation.state.value,
            "infra": operation.infra,
            "node_id": _node_of(operation.subject),
            "parent_id": operation.parent_id,
            "depends_on": list(operation.depends_on),
            "target": _target(operation),
            "created_at": operation.created_at,
            "created_by": operation.created_by,
            "updated_at": operation.updated_at,
            "ended_at": operation.ended_at,
            "deadline_at": operation.deadline_at,
            "tries": operation.tries,
            "reason": operation.reason,
            "class": None if kind is None else kind.value,
            "retryable": not operation.is_open and kind is problems.Kind.TRANSIENT,
            "waiting": operation.waiting,
            "waiting_since": operation.waiting_since,
        }
    )


def _node_of(subject: str | None) -> str | None:
    """What an operation is about, where that is a node; a volume's subject is `volume/ID`."""
    return None if subject is None or "/" in subject else subject


def _target(operation: records.Operation) -> str | None:
    """The release it is about; of a volume, snapshot or address its name."""
    request = operation.request
    return request.get("release") or request.get("version") or request.get("name")


async def _shown_all(tx: contract.Tx, found: Sequence[records.Operation]) -> list[models.Operation]:
    formers = await records.list_dependencies(tx, operation_ids=[one.operation_id for one in found])
    return [
        shown(one).model_copy(update={"depends_on": list(formers.get(one.operation_id, ()))})
        for one in found
    ]


def _change(operation: records.Operation) -> admin.Change:
    target = operation.request.get("release")
    return admin.Change(
        action=operation.kind,
        target=operation.subject or operation.operation_id,
        detail=f"to {target}" if target else "to the release before the present one",
    )
