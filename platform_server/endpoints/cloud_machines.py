"""`/cloud/machines`: order, list, show, refresh, delete, reboot, forget.

An order is stored, with its cap and its price reserved, before it is answered for; carrying it out
is the reconciler's. Deleting is asked for by a name and may be repeated: it is the same operation.
"""

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Final

import pydantic

from platform_server.cloud import connections, console, machines, requests, staying, view
from platform_server.endpoints import (
    calls,
    cloud_means,
    cloud_ordering,
    cloud_shown,
    cursors,
    nodes,
    operations,
    refusals,
    routes,
)
from platform_server.store import contract
from runtime_kit import clock, crash_points
from wire_protocol import admin, cloud, cloud_machines

_CURSOR: Final = (int, str)
_BEGUN: Final = 202
_FRESH: Final = datetime.timedelta(seconds=5)  # whoever asks more often asks the store
STORED: Final = crash_points.declare(
    "asked.machine", story="what was asked for of a machine is stored, nobody was answered"
)


class MachinesQuery(routes.LabelledPageQuery):
    """What the list of machines is narrowed to."""

    connection: Annotated[
        str | None,
        pydantic.Field(
            pattern=cloud.CONNECTION_PATTERN, description="Only those through this connection."
        ),
    ] = None
    ended: Annotated[
        bool, pydantic.Field(description="Also those that are gone or were forgotten.")
    ] = False


class DeleteQuery(pydantic.BaseModel):
    """How a machine is deleted."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    keep_machine: Annotated[
        bool, pydantic.Field(description="End the node only: the machine stays, and its bill.")
    ] = False


class CloudMachines:
    """The handlers."""

    def __init__(
        self,
        means: cloud_means.CloudMeans,
        *,
        ordering: cloud_ordering.Ordering,
        viewer: view.Viewer,
    ) -> None:
        self._means = means
        self._ordering = ordering
        self._viewer = viewer

    async def list_page(self, call: calls.Call[None, MachinesQuery]) -> cloud_machines.MachineList:
        """Newest first."""
        self._means.require()
        query, now = call.query, call.now()
        filters = [nodes.label_filter(text) for text in query.label]
        before = None
        if query.cursor is not None:
            micros, machine_id = cursors.decode(query.cursor, kinds=_CURSOR)
            before = (int(micros), str(machine_id))

        async def work(tx: contract.Tx) -> cloud_machines.MachineList:
            through = None
            if query.connection is not None:
                found_connection = await connections.get(tx, connection_id=query.connection)
                through = found_connection.connection_id
            found = await machines.list_page(
                tx,
                limit=query.limit + 1,
                infra=query.infra,
                connection_id=through,
                ended=query.ended,
                label_filters=filters,
                before=before,
            )
            page = found[: query.limit]
            return cloud_machines.MachineList(
                machines=await cloud_shown.machine_page(tx, page, now=now),
                next_cursor=cursors.encode(
                    clock.to_micros(page[-1].ordered_at), page[-1].machine_id
                )
                if len(found) > len(page)
                else None,
            )

        return await cloud_means.refusing(call.read(work))

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> cloud_machines.MachineDetails:
        """One machine, by its node's id or its own."""
        self._means.require()
        return await self._shown(call)

    async def refresh(
        self, call: calls.Call[None, routes.NoQuery]
    ) -> cloud_machines.MachineDetails:
        """The same, after the provider was asked."""
        self._means.require()
        name = cloud_means.machine_of(call.path)
        machine = await cloud_means.refusing(
            call.read(lambda tx: machines.get(tx, machine_id=name))
        )
        looked = machine.looked_at  # also where it was missed: a reader is no reason to ask more
        if machine.counts and (looked is None or call.now() - looked >= _FRESH):
            await cloud_means.refusing(
                self._viewer.refresh_machine(machine, actor=call.principal.name)
            )
        return await self._shown(call)

    async def console(self, call: calls.Call[None, routes.NoQuery]) -> cloud_machines.Console:
        """What its console showed last, asked of its provider now."""
        self._means.require()
        name = cloud_means.machine_of(call.path)
        machine = await cloud_means.refusing(
            call.read(lambda tx: machines.get(tx, machine_id=name))
        )
        shown = await cloud_means.refusing(
            console.read(self._means.clouds, machine=machine, actor=call.principal.name)
        )
        return cloud_machines.Console(node_id=machine.node_id, text=shown, read_at=call.now())

    async def order(
        self, call: calls.Call[cloud_machines.OrderMachine, routes.NoQuery]
    ) -> calls.Reply:
        """Stores the order; the machine enlists itself. The same wish again finds the order."""
        self._means.require()
        self._means.require_installable()
        order = await cloud_means.refusing(self._ordering.judge(call))
        asked = cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.create_machine(
                tx, order=order, operators=self._means.operators, asked=asked
            )
            if made.is_found:
                return await _found(tx, made, now=asked.now)
            await call.record(
                tx,
                action="cloud.machines.order",
                target=made.machine.node_id,
                infra=made.machine.infra,
                details={
                    **_about(made),
                    "region": order.region,
                    "size": order.size,
                    "image": order.image,
                    "hourly_micros": None if order.price is None else order.price.hourly_micros,
                    "currency": None if order.price is None else order.price.currency,
                    "purpose": order.purpose,
                    "tombstone_lifted": made.is_freed,
                },
            )
            shown = (await cloud_shown.machine_page(tx, [made.machine], now=asked.now))[0]
            changes = [
                admin.Change(
                    action="order",
                    target=made.machine.node_id,
                    detail=f"{order.size} in {order.region} at {shown.provider}, "
                    f"{cloud_shown.priced(order.price)}",
                ),
                *(
                    admin.Change(action="warn", target=made.machine.node_id, detail=sentence)
                    for sentence in order.warnings
                ),
            ]
            return calls.Changed(
                changes=changes,
                answer=cloud_machines.Ordered(
                    machine=shown,
                    operation=operations.shown(made.operation),
                    price=cloud_shown.price(order.price),
                    warnings=list(order.warnings),
                ),
            )

        return await self._asked(call, work)

    async def delete(self, call: calls.Call[None, DeleteQuery]) -> calls.Reply:
        """Has it drained, revoked, deleted and confirmed gone."""
        self._means.require()
        asked = cloud_means.asked_of(call)
        keep = call.query.keep_machine

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.delete_machine(
                tx, machine_id=cloud_means.machine_of(call.path), keep_machine=keep, asked=asked
            )
            detail = (
                "its node is drained and revoked; the machine stays, and its bill"
                if keep
                else "its node is drained and revoked, then the machine and what hangs on it is "
                "deleted until its provider says that it is gone"
            )
            return await self._begun(
                tx, call, made=made, action="delete", detail=detail, more={"keep_machine": keep}
            )

        return await self._asked(call, work)

    async def reboot(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Has the provider restart it."""
        self._means.require()
        asked = cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.reboot_machine(
                tx, machine_id=cloud_means.machine_of(call.path), asked=asked
            )
            return await self._begun(
                tx, call, made=made, action="reboot", detail="its provider restarts it", more={}
            )

        return await self._asked(call, work)

    async def forget(
        self, call: calls.Call[cloud_machines.ForgetRequest, routes.NoQuery]
    ) -> calls.Reply:
        """A person says that it is gone."""
        self._means.require()
        asked = cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await requests.forget(
                tx,
                machine_id=cloud_means.machine_of(call.path),
                reason=call.body.reason,
                asked=asked,
            )
            await call.record(
                tx,
                action="cloud.machines.forget",
                target=made.machine.node_id,
                infra=made.machine.infra,
                details={**_about(made), "reason": call.body.reason},
            )
            changes = [
                admin.Change(
                    action="forget",
                    target=made.machine.node_id,
                    detail="it counts no more; if it exists, it "
                    f"{staying.goes_on(made.machine.provider)}",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes), status=200)

        return await self._asked(call, work)

    async def resume_template(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Machines of the template may be ordered again."""
        self._means.require()
        template, now = call.path["template"], call.now()

        async def work(tx: contract.Tx) -> calls.Changed:
            infra = call.settings.platform.infra
            was = await requests.resume_template(tx, template=template, infra=infra, now=now)
            if not was:
                raise refusals.Refusal(
                    "not-found", f"No machine of the template {template[:40]} has failed."
                )
            await call.record(tx, action="cloud.templates.resume", target=template, infra=infra)
            changes = [
                admin.Change(action="resume", target=template, detail="it may be ordered again")
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes), status=200)

        return await call.mutate(work)

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        machine = "/api/v1/cloud/machines/{machine}"
        one: Mapping[str, Any] = {"parameters": {"machine": "The node's id, or the machine's."}}
        usual = (*cloud_means.PROBLEMS, "not-found")
        asked: Mapping[str, Any] = {
            "changes": True,
            "problems": (*usual, "operation-state"),
            **one,
        }
        return (
            routes.Route(
                method="GET",
                path="/api/v1/cloud/machines",
                summary="List machines, newest first, with what each costs.",
                handler=self.list_page,
                query=MachinesQuery,
                answer=cloud_machines.MachineList,
                cursor=_CURSOR,
                problems=usual,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/cloud/machines",
                summary="Order a machine that enlists itself.",
                handler=self.order,
                request=cloud_machines.OrderMachine,
                answer=cloud_machines.Ordered,
                status=201,
                changes=True,
                problems=(
                    *usual,
                    "node-exists",
                    "cap-reached",
                    "template-stopped",
                    "connection-paused",
                    "provider-unavailable",
                    "credential-refused",
                ),
            ),
            routes.Route(
                method="GET",
                path=machine,
                summary="One machine, what hangs on it, and what first boot told.",
                handler=self.show,
                answer=cloud_machines.MachineDetails,
                problems=usual,
                **one,
            ),
            routes.Route(
                method="POST",
                path=f"{machine}/refresh",
                summary="The same, after its provider was asked.",
                handler=self.refresh,
                answer=cloud_machines.MachineDetails,
                problems=(
                    *usual,
                    "connection-paused",
                    "provider-unavailable",
                    "credential-refused",
                    "conflict",
                ),
                **one,
            ),
            routes.Route(
                method="GET",
                path=f"{machine}/console",
                summary="What its console showed last, where its provider lets that be read.",
                handler=self.console,
                answer=cloud_machines.Console,
                problems=(
                    *usual,
                    "conflict",
                    "operation-state",
                    "connection-paused",
                    "provider-unavailable",
                    "credential-refused",
                ),
                **one,
            ),
            routes.Route(
                method="DELETE",
                path=machine,
                summary="Have it drained, revoked, deleted, and confirmed gone.",
                handler=self.delete,
                query=DeleteQuery,
                answer=cloud_machines.Begun,
                status=_BEGUN,
                **asked,
            ),
            routes.Route(
                method="POST",
                path=f"{machine}/reboot",
                summary="Have its provider restart it.",
                handler=self.reboot,
                answer=cloud_machines.Begun,
                status=_BEGUN,
                **asked,
            ),
            routes.Route(
                method="POST",
                path=f"{machine}/forget",
                summary="Say that it is gone which its provider cannot confirm any more.",
                handler=self.forget,
                request=cloud_machines.ForgetRequest,
                answer=admin.Done,
                **asked,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/cloud/templates/{template}/resume",
                summary="Let machines be ordered again of which too many failed in a row.",
                handler=self.resume_template,
                answer=admin.Done,
                changes=True,
                parameters={"template": "The template, as the refusal names it."},
                problems=usual,
            ),
        )

    # Inside.

    async def _shown(self, call: calls.Call[Any, Any]) -> cloud_machines.MachineDetails:
        name, now = cloud_means.machine_of(call.path), call.now()

        async def work(tx: contract.Tx) -> cloud_machines.MachineDetails:
            found = await machines.get(tx, machine_id=name)
            return await cloud_shown.machine(tx, found, now=now)

        return await cloud_means.refusing(call.read(work))

    async def _begun(
        self,
        tx: contract.Tx,
        call: calls.Call[Any, Any],
        *,
        made: requests.Made,
        action: str,
        detail: str,
        more: Mapping[str, object],
    ) -> calls.Changed:
        await call.record(
            tx,
            action=f"cloud.machines.{action}",
            target=made.machine.node_id,
            infra=made.machine.infra,
            details={**_about(made), **more},
        )
        return calls.Changed(
            changes=[admin.Change(action=action, target=made.machine.node_id, detail=detail)],
            answer=cloud_machines.Begun(operation=operations.shown(made.operation)),
        )

    async def _asked(self, call: calls.Call[Any, Any], work: Any) -> calls.Reply:
        reply = await cloud_means.refusing(call.mutate(work))
        if not call.check:
            crash_points.reach(STORED)
            self._means.changed()
        return reply


async def _found(tx: contract.Tx, made: requests.Made, *, now: datetime.datetime) -> calls.Changed:
    """The same wish was stored before: that order is the answer, and nothing is changed."""
    machine = made.machine
    warnings = machine.wish.get("warnings") or []
    return calls.Changed(
        changes=[
            admin.Change(
                action="find",
                target=machine.node_id,
                detail=f"it is ordered already, by the operation {machine.operation_id}",
            )
        ],
        answer=cloud_machines.Ordered(
            machine=(await cloud_shown.machine_page(tx, [machine], now=now))[0],
            operation=operations.shown(made.operation),
            price=cloud_shown.price(machine.price),
            warnings=[str(sentence) for sentence in warnings],
            found=True,
        ),
    )


def _about(made: requests.Made) -> dict[str, Any]:
    return {
        "operation_id": made.operation.operation_id,
        "machine_id": made.machine.machine_id,
        "connection_id": made.machine.connection_id,
        "provider": made.machine.provider,
        "provider_ref": made.machine.provider_ref,
    }
