"""`/cloud/orphans`: what carries this installation's id and belongs to nothing that is known.

Deleting one is an operation that asks its provider again first; adopting one is a person's word.
"""

from typing import Annotated, Any, Final

import pydantic

from platform_server.cloud import adopting, connections, orphan_kind, orphans
from platform_server.endpoints import calls, cloud_means, cloud_resources, cloud_shown, routes
from platform_server.store import contract
from wire_protocol import admin, cloud, cloud_machines, ids

_MOST_ORPHANS: Final = 500


class OrphansQuery(pydantic.BaseModel):
    """What the list of orphans is narrowed to."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    infra: Annotated[
        str | None,
        pydantic.Field(pattern=cloud.CONNECTION_PATTERN, description="Only this scope."),
    ] = None


class CloudOrphans:
    """The handlers."""

    def __init__(self, means: cloud_means.CloudMeans) -> None:
        self._means = means

    async def list_orphans(self, call: calls.Call[None, OrphansQuery]) -> cloud_machines.OrphanList:
        """What belongs to nothing that is known."""
        self._means.require()

        async def work(tx: contract.Tx) -> cloud_machines.OrphanList:
            found = await orphans.list_page(tx, limit=_MOST_ORPHANS + 1, infra=call.query.infra)
            shown = []
            for one in found[:_MOST_ORPHANS]:
                through = await connections.find(tx, connection_id=one.connection_id)
                shown.append(_orphan(one, through=through))
            return cloud_machines.OrphanList(orphans=shown, more=len(found) > _MOST_ORPHANS)

        return await call.read(work)

    async def delete_orphan(
        self, call: calls.Call[cloud_machines.DeleteOrphan, routes.NoQuery]
    ) -> calls.Reply:
        """Has one deleted at its provider."""
        self._means.require()
        body, asked = call.body, cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            through = await connections.get(tx, connection_id=body.connection)
            made = await orphan_kind.ask(
                tx,
                connection_id=through.connection_id,
                kind=body.kind,
                provider_ref=body.provider_ref,
                asked=asked,
            )
            return await cloud_resources.begun(
                tx,
                call,
                made.operation,
                action="delete-orphan",
                what=f"{body.kind} {body.provider_ref}",
                detail=f"at {through.name}, if it still belongs to nothing that is known",
            )

        return await self._asked(call, work)

    async def adopt_orphan(
        self, call: calls.Call[cloud_machines.AdoptOrphan, routes.NoQuery]
    ) -> calls.Reply:
        """A person says whose machine it is."""
        self._means.require()
        body, asked = call.body, cloud_means.asked_of(call)

        async def work(tx: contract.Tx) -> calls.Changed:
            machine = await adopting.adopt(
                tx,
                connection=await connections.get(tx, connection_id=body.connection),
                provider_ref=body.provider_ref,
                node_id=ids.parse_node_id(body.node_id),
                installation=self._means.installation,
                asked=asked,
            )
            changes = [
                admin.Change(
                    action="adopt",
                    target=f"machine {body.provider_ref}",
                    detail=f"it is the machine of {machine.node_id}, and is billed as one",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await self._asked(call, work)

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        usual = (*cloud_means.PROBLEMS, "not-found")
        return (
            routes.Route(
                method="GET",
                path="/api/v1/cloud/orphans",
                summary="List what carries this installation's id and belongs to nothing known.",
                handler=self.list_orphans,
                query=OrphansQuery,
                answer=cloud_machines.OrphanList,
                problems=cloud_means.PROBLEMS,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/cloud/orphans/delete",
                summary="Have an orphan deleted at its provider.",
                handler=self.delete_orphan,
                request=cloud_machines.DeleteOrphan,
                answer=cloud_machines.Begun,
                status=cloud_resources.BEGUN,
                changes=True,
                problems=usual,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/cloud/orphans/adopt",
                summary="Say whose machine an orphan is.",
                handler=self.adopt_orphan,
                request=cloud_machines.AdoptOrphan,
                answer=admin.Done,
                changes=True,
                problems=(*usual, "node-exists"),
            ),
        )

    # Inside.

    async def _asked(self, call: calls.Call[Any, Any], work: Any) -> calls.Reply:
        reply: calls.Reply = await cloud_means.refusing(call.mutate(work))
        if not call.check:
            self._means.changed()
        return reply


def _orphan(
    found: orphans.Orphan, *, through: connections.Connection | None
) -> cloud_machines.Orphan:
    return cloud_machines.Orphan(
        connection=found.connection_id if through is None else through.name,
        provider="" if through is None else through.provider,
        kind=found.kind,
        provider_ref=found.provider_ref,
        name=found.name,
        region=found.region,
        operation_id=found.operation_id,
        price=cloud_shown.price(found.price),
        made_at=found.made_at,
        first_seen_at=found.first_seen_at,
        last_seen_at=found.last_seen_at,
        delete_asked_at=found.delete_asked_at,
    )
