"""`/cloud/volumes`, `/cloud/snapshots`, `/cloud/addresses`.

What is kept beside machines is ordered, attached and deleted as machines are: stored as an
operation before it is answered for.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

import pydantic

from platform_server.cloud import (
    beside,
    connections,
    consent,
    machines,
    requests,
    resources,
)
from platform_server.endpoints import (
    calls,
    cloud_means,
    cloud_shown,
    cursors,
    nodes,
    operations,
    routes,
)
from platform_server.operations import records
from platform_server.store import contract
from provisioning import abilities
from provisioning import contract as provider_contract
from wire_protocol import admin, cloud, cloud_machines

_CURSOR: Final = (str, str)
BEGUN: Final = 202
_KIND: Final = provider_contract.ChildKind
NOUNS: Final[Mapping[str, provider_contract.ChildKind]] = {
    "volumes": _KIND.VOLUME,
    "snapshots": _KIND.SNAPSHOT,
    "addresses": _KIND.ADDRESS,
}
_NEEDED: Final[Mapping[provider_contract.ChildKind, provider_contract.Capability]] = {
    _KIND.VOLUME: provider_contract.Capability.VOLUMES,
    _KIND.SNAPSHOT: provider_contract.Capability.SNAPSHOTS,
    _KIND.ADDRESS: provider_contract.Capability.ADDRESSES,
}
_REQUESTS: Final[Mapping[str, type[pydantic.BaseModel]]] = {
    "volumes": cloud_machines.CreateVolume,
    "snapshots": cloud_machines.CreateSnapshot,
    "addresses": cloud_machines.CreateAddress,
}


class ResourcesQuery(routes.LabelledPageQuery):
    """What a list is narrowed to."""

    connection: Annotated[
        str | None,
        pydantic.Field(pattern=cloud.CONNECTION_PATTERN, description="Only through this one."),
    ] = None
    machine: Annotated[
        str | None,
        pydantic.Field(
            pattern=cloud.CONNECTION_PATTERN, description="Only those on this node's machine."
        ),
    ] = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Noun:
    """The handlers of one noun; `CloudResources` holds what they share."""

    word: str
    kind: provider_contract.ChildKind
    whole: "CloudResources"

    async def list_page(self, call: calls.Call[None, ResourcesQuery]) -> cloud_machines.ChildList:
        """By name."""
        return await self.whole.list_page(call, kind=self.kind)

    async def create(self, call: calls.Call[Any, routes.NoQuery]) -> calls.Reply:
        """Orders one."""
        return await self.whole.create(call, kind=self.kind)

    async def delete(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Has it deleted until that is confirmed."""

        async def work(tx: contract.Tx, child_id: str, asked: requests.Asked) -> records.Operation:
            return (await resources.delete(tx, resource_id=child_id, asked=asked)).operation

        detail = "its provider deletes it; what it holds is lost"
        return await self.whole.begin(call, work, noun=self, action="delete", detail=detail)

    async def attach(
        self, call: calls.Call[cloud_machines.AttachRequest, routes.NoQuery]
    ) -> calls.Reply:
        """Gives it to a machine."""

        async def work(tx: contract.Tx, child_id: str, asked: requests.Asked) -> records.Operation:
            made = await resources.attach(
                tx, resource_id=child_id, machine_id=call.body.machine, asked=asked
            )
            return made.operation

        detail = f"to the machine of {call.body.machine}"
        return await self.whole.begin(call, work, noun=self, action="attach", detail=detail)

    async def detach(self, call: calls.Call[None, routes.NoQuery]) -> calls.Reply:
        """Takes it from its machine."""

        async def work(tx: contract.Tx, child_id: str, asked: requests.Asked) -> records.Operation:
            return (await resources.detach(tx, resource_id=child_id, asked=asked)).operation

        return await self.whole.begin(
            call, work, noun=self, action="detach", detail="from its machine"
        )

    async def forget(
        self, call: calls.Call[cloud_machines.ForgetRequest, routes.NoQuery]
    ) -> calls.Reply:
        """A person says that it is gone."""
        return await self.whole.forget(call, kind=self.kind)


Begin = Callable[[contract.Tx, str, requests.Asked], Awaitable[records.Operation]]


class CloudResources:
    """The handlers."""

    def __init__(self, means: cloud_means.CloudMeans) -> None:
        self._means = means

    async def list_page(
        self,
        call: calls.Call[None, ResourcesQuery],
        *,
        kind: provider_contract.ChildKind,
    ) -> cloud_machines.ChildList:
        """Those of one kind, by name."""
        self._means.require()
        query = call.query
        filters = [nodes.label_filter(text) for text in query.label]
        after = ("", "")
        if query.cursor is not None:
            name, child_id = cursors.decode(query.cursor, kinds=_CURSOR)
            after = (str(name), str(child_id))

        async def work(tx: contract.Tx) -> cloud_machines.ChildList:
            through, of = None, None
            if query.connection is not None:
                through = (await connections.get(tx, connection_id=query.connection)).connection_id
            if query.machine is not None:
                of = (await machines.get(tx, machine_id=query.machine)).machine_id
            found = await beside.list_page(
                tx,
                kind=kind,
                limit=query.limit + 1,
                infra=query.infra,
                connection_id=through,
                machine_id=of,
                label_filters=filters,
                after=after,
            )
            page = found[: query.limit]
            return cloud_machines.ChildList(
                children=[await _shown(tx, one) for one in page],
                next_cursor=cursors.encode(page[-1].name, page[-1].child_id)
                if len(found) > len(page)
                else None,
            )

        return await cloud_means.refusing(call.read(work))

    async def create(
        self, call: calls.Call[Any, routes.NoQuery], *, kind: provider_contract.ChildKind
    ) -> calls.Reply:
        """Stores the order of one."""
        self._means.require()
        asked = cloud_means.asked_of(call)
        wish = await cloud_means.refusing(self._wish(call, kind=kind))

        async def work(tx: contract.Tx) -> calls.Changed:
            made = await resources.create(tx, wish=wish, asked=asked)
            return await begun(
                tx,
                call,
                made.operation,
                action="create",
                what=f"{kind} {wish.name}",
                detail=f"in {made.resource.region}",
            )

        return await self._asked(call, work)

    async def begin(
        self,
        call: calls.Call[Any, Any],
        do: Begin,
        *,
        noun: _Noun,
        action: str,
        detail: str,
    ) -> calls.Reply:
        """Stores what is asked for of one that is there."""
        self._means.require()
        asked = cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            found = await beside.get(tx, resource_id=call.path["resource"], kind=noun.kind)
            operation = await do(tx, found.child_id, asked)
            return await begun(
                tx,
                call,
                operation,
                action=action,
                what=f"{noun.kind} {found.name}",
                detail=detail,
            )

        return await self._asked(call, work)

    async def forget(
        self,
        call: calls.Call[cloud_machines.ForgetRequest, routes.NoQuery],
        *,
        kind: provider_contract.ChildKind,
    ) -> calls.Reply:
        """Nobody asks the provider."""
        self._means.require()
        asked = cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            found = await beside.get(tx, resource_id=call.path["resource"], kind=kind)
            gone = await resources.forget(
                tx, resource_id=found.child_id, reason=call.body.reason, asked=asked
            )
            changes = [
                admin.Change(
                    action="forget",
                    target=f"{kind} {gone.name}",
                    detail="it counts no more; if it exists, it goes on costing money",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await self._asked(call, work)

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        found = [
            route for word, kind in NOUNS.items() for route in _routes_of(_Noun(word, kind, self))
        ]
        return tuple(found)

    # Inside.

    async def _wish(
        self, call: calls.Call[Any, routes.NoQuery], *, kind: provider_contract.ChildKind
    ) -> resources.Wish:
        body, infra = call.body, call.settings.platform.infra

        async def through(tx: contract.Tx) -> connections.Connection:
            if kind is _KIND.SNAPSHOT:
                machine = await machines.get(tx, machine_id=body.machine)
                return await connections.get(tx, connection_id=machine.connection_id)
            return await connections.get(tx, connection_id=body.connection)

        connection = await call.read(through)
        abilities.require(connection.provider, _NEEDED[kind])
        rules = await self._means.rules_of(connection.provider)
        return resources.Wish(
            kind=kind,
            name=body.name,
            infra=infra,
            connection=connection,
            region=getattr(body, "region", ""),
            size_gigabytes=getattr(body, "size_gigabytes", None),
            of=getattr(body, "machine", None),
            labels=body.labels,
            caps=consent.caps_of(connection, rules=rules, now=call.now()),
            regions=None if rules is None else rules.regions,
        )

    async def _asked(self, call: calls.Call[Any, Any], work: Any) -> calls.Reply:
        reply: calls.Reply = await cloud_means.refusing(call.mutate(work))
        if not call.check:
            self._means.changed()
        return reply


def _routes_of(noun: _Noun) -> tuple[routes.Route, ...]:
    path = f"/api/v1/cloud/{noun.word}"
    one = f"{path}/{{resource}}"
    usual = (*cloud_means.PROBLEMS, "not-found")
    begun: Mapping[str, Any] = {
        "answer": cloud_machines.Begun,
        "status": BEGUN,
        "changes": True,
        "problems": (*usual, "operation-state"),
    }
    named: Mapping[str, Any] = {"parameters": {"resource": "Its name, or its id."}}
    attaching = (
        routes.Route(
            method="POST",
            path=f"{one}/attach",
            summary=f"Give the {noun.kind} to the machine of a node.",
            handler=noun.attach,
            request=cloud_machines.AttachRequest,
            **begun,
            **named,
        ),
        routes.Route(
            method="POST",
            path=f"{one}/detach",
            summary=f"Take the {noun.kind} from its machine.",
            handler=noun.detach,
            **begun,
            **named,
        ),
    )
    return (
        routes.Route(
            method="GET",
            path=path,
            summary=f"List {noun.word} of our own, by name.",
            handler=noun.list_page,
            query=ResourcesQuery,
            answer=cloud_machines.ChildList,
            cursor=_CURSOR,
            problems=usual,
        ),
        routes.Route(
            method="POST",
            path=path,
            summary="Have one reserved."
            if noun.kind is _KIND.ADDRESS
            else f"Have a {noun.kind} made.",
            handler=noun.create,
            request=_REQUESTS[noun.word],
            **{**begun, "problems": (*usual, "operation-state", "cap-reached")},
        ),
        routes.Route(
            method="DELETE",
            path=one,
            summary=f"Have the {noun.kind} deleted, and confirmed gone.",
            handler=noun.delete,
            **begun,
            **named,
        ),
        *(() if noun.kind is _KIND.SNAPSHOT else attaching),
        routes.Route(
            method="POST",
            path=f"{one}/forget",
            summary="Say that it is gone which its provider cannot confirm any more.",
            handler=noun.forget,
            request=cloud_machines.ForgetRequest,
            answer=admin.Done,
            changes=True,
            problems=usual,
            **named,
        ),
    )


async def _shown(tx: contract.Tx, found: beside.Resource) -> cloud_machines.Child:
    through = await connections.find(tx, connection_id=found.connection_id)
    machine = None
    if found.machine_id is not None:
        machine = await machines.find(tx, machine_id=found.machine_id)
    return cloud_machines.Child(
        child_id=found.child_id,
        kind=found.kind.value,
        name=found.name,
        labels=dict(found.labels),
        connection=found.connection_id if through is None else through.name,
        provider="" if through is None else through.provider,
        region=found.region,
        provider_ref=found.provider_ref,
        node_id=None if machine is None else machine.node_id,
        keep=True,
        address=found.address,
        size_gigabytes=found.size_gigabytes,
        price=cloud_shown.price(found.price),
        present_at=found.present_at,
        delete_asked_at=found.delete_asked_at,
        gone_at=found.gone_at,
    )


async def begun(
    tx: contract.Tx,
    call: calls.Call[Any, Any],
    operation: records.Operation,
    *,
    action: str,
    what: str,
    detail: str,
) -> calls.Changed:
    """The operation as it is answered for, and the action on record."""
    await call.record(
        tx,
        action=f"cloud.resources.{action}",
        target=what,
        infra=operation.infra,
        details={"operation_id": operation.operation_id, "detail": detail},
    )
    return calls.Changed(
        changes=[admin.Change(action=action, target=what, detail=detail)],
        answer=cloud_machines.Begun(operation=operations.shown(operation)),
    )
