"""`/cloud/connections`: save, list, show, check, forget, consent. No answer holds a credential.

Saving and checking ask the provider before anything is stored, outside of any transaction; what
asks is written into the action log first. A rehearsal (`?check=true`) asks nobody.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import pydantic

from platform_server.cloud import connecting, connections, consent, forgetting, view, wishes
from platform_server.endpoints import calls, cloud_means, cloud_shown, cursors, refusals, routes
from platform_server.store import contract
from provisioning import contract as provider_contract
from provisioning import providers
from wire_protocol import admin, cloud

_CURSOR: Final = (str,)


class ConnectionsQuery(routes.PageQuery):
    """What the list of connections is narrowed to."""

    provider: Annotated[
        cloud.Provider | None, pydantic.Field(description="Only those to this provider.")
    ] = None


class CheckQuery(routes.NoQuery):
    """What a check is to say beside rights."""

    wanted: Annotated[
        int,
        pydantic.Field(
            ge=1, le=cloud.MOST_MACHINES, description="Say how many of so many machines fit."
        ),
    ] = 1


class CloudConnections:
    """The handlers."""

    def __init__(self, means: cloud_means.CloudMeans, *, viewer: view.Viewer) -> None:
        self._means = means
        self._viewer = viewer

    async def list_page(self, call: calls.Call[None, ConnectionsQuery]) -> cloud.ConnectionList:
        """By name."""
        self._means.require()
        query, now = call.query, call.now()
        provider = None if query.provider is None else providers.get(query.provider).name
        after = ""
        if query.cursor is not None:
            after = str(cursors.decode(query.cursor, kinds=_CURSOR)[0])

        async def work(tx: contract.Tx) -> cloud.ConnectionList:
            found = await connections.list_page(
                tx, limit=query.limit + 1, infra=query.infra, provider=provider, after=after
            )
            page = found[: query.limit]
            return cloud.ConnectionList(
                connections=await cloud_shown.connection_page(tx, page, now=now),
                next_cursor=cursors.encode(page[-1].name) if len(found) > len(page) else None,
            )

        return await call.read(work)

    async def show(self, call: calls.Call[None, routes.NoQuery]) -> cloud.Connection:
        """One of them."""
        self._means.require()
        return await self._read(call)

    async def save(self, call: calls.Call[cloud.SaveConnection, routes.NoQuery]) -> calls.Answer:
        """Proves the credential, then keeps it."""
        self._means.require()
        name, body = call.path["connection"], call.body
        if call.check:
            return calls.Reply(body=admin.Checked(changes=await self._plan(call)), status=200)
        wish = wishes.Wish(
            name=name,
            provider=body.provider,
            kind=body.credential.kind,
            fields=dict(body.credential.fields),
            settings=dict(body.settings),
            infra=call.settings.platform.infra,
            actor=call.principal.name,
        )
        try:
            saved = await cloud_means.refusing(self._means.connecting.save(wish))
        except refusals.Refusal as refusal:
            raise _unsaved(refusal, name=name) from None
        return await self._saved(call, saved)

    async def check(self, call: calls.Call[None, CheckQuery]) -> calls.Answer:
        """Tries the stored credential; creates nothing."""
        self._means.require()
        found = await cloud_means.refusing(
            self._means.connecting.check(
                call.path["connection"], actor=call.principal.name, wanted=call.query.wanted
            )
        )
        return await self._saved(call, found)

    async def inventory(self, call: calls.Call[None, routes.NoQuery]) -> cloud.Inventory:
        """Asks the provider now for all of this installation's; all pages."""
        self._means.require()
        shown = await self._read(call)
        found = await cloud_means.refusing(
            self._viewer.refresh_connection(shown.connection_id, actor=call.principal.name)
        )
        return cloud.Inventory(
            connection=shown.name,
            complete=found.is_complete,
            held=[
                *(_held("machine", one, state=one.power.value) for one in found.machines),
                *(_held(one.kind.value, one, state=None) for one in found.children),
            ],
            calls_left=found.calls_left,
        )

    async def forget(self, call: calls.Call[None, routes.NoQuery]) -> calls.Answer:
        """Removes credential and consent."""
        self._means.require()

        async def work(tx: contract.Tx) -> calls.Changed:
            gone = await forgetting.forget(
                tx,
                name=call.path["connection"],
                actor=call.principal.name,
                environment=call.settings.platform.environment,
                now=call.now(),
            )
            changes = [
                admin.Change(
                    action="forget",
                    target=gone.name,
                    detail="its credential and its consent are removed",
                )
            ]
            return calls.Changed(changes=changes, answer=admin.Done(changes=changes))

        return await cloud_means.refusing(call.mutate(work))

    async def give_consent(
        self, call: calls.Call[cloud.ConsentRequest, routes.NoQuery]
    ) -> calls.Answer:
        """What may be spent without a person."""
        self._means.require()
        body = call.body
        wish = consent.Wish(
            most_machines=body.most_machines,
            most_hourly_micros=body.most_hourly_micros,
            currency=body.currency,
            days=body.days,
        )

        shown = await self._read(call)
        rules = await cloud_means.refusing(self._means.rules_of(shown.provider))

        async def work(tx: contract.Tx) -> calls.Changed:
            found = await connections.get(tx, connection_id=call.path["connection"])
            given = await consent.give(
                tx,
                connection=found,
                wish=wish,
                rules=rules,
                actor=call.principal.name,
                environment=call.settings.platform.environment,
                now=call.now(),
            )
            detail = (
                f"{given.most_machines} machines, {given.most_hourly_micros} millionths of "
                f"{given.currency} an hour"
            )
            return await self._consented(tx, call, name=found.name, detail=detail)

        return await cloud_means.refusing(call.mutate(work))

    async def withdraw_consent(self, call: calls.Call[None, routes.NoQuery]) -> calls.Answer:
        """Nothing is spent without a person any more."""
        self._means.require()

        async def work(tx: contract.Tx) -> calls.Changed:
            found = await connections.get(tx, connection_id=call.path["connection"])
            await consent.withdraw(
                tx,
                connection=found,
                actor=call.principal.name,
                environment=call.settings.platform.environment,
                now=call.now(),
            )
            return await self._consented(tx, call, name=found.name, detail="withdrawn")

        return await cloud_means.refusing(call.mutate(work))

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        one: Mapping[str, Any] = {
            "path": "/api/v1/cloud/connections/{connection}",
            "parameters": {"connection": "The connection's name."},
        }
        consent_of: Mapping[str, Any] = {**one, "path": f"{one['path']}/consent"}
        usual = (*cloud_means.PROBLEMS, "not-found")
        asking = (*usual, "provider-unavailable", "credential-refused", "connection-paused")
        return (
            routes.Route(
                method="GET",
                path="/api/v1/cloud/connections",
                summary="List connections to providers, by name, without their credentials.",
                handler=self.list_page,
                query=ConnectionsQuery,
                answer=cloud.ConnectionList,
                cursor=_CURSOR,
                problems=cloud_means.PROBLEMS,
            ),
            routes.Route(
                method="GET",
                summary="One connection, with what hangs on it.",
                handler=self.show,
                answer=cloud.Connection,
                problems=usual,
                **one,
            ),
            routes.Route(
                method="PUT",
                summary="Keep a credential, once it has proved itself; or a new one in its place.",
                handler=self.save,
                request=cloud.SaveConnection,
                answer=cloud.SavedConnection,
                changes=True,
                problems=(*asking, "credential-kind-rejected"),
                **one,
            ),
            routes.Route(
                method="POST",
                summary="What the credential may do now, and which rights it lacks.",
                handler=self.check,
                query=CheckQuery,
                answer=cloud.SavedConnection,
                problems=asking,
                **{**one, "path": f"{one['path']}/check"},
            ),
            routes.Route(
                method="POST",
                summary="What the provider holds of this installation, asked now.",
                handler=self.inventory,
                answer=cloud.Inventory,
                problems=asking,
                **{**one, "path": f"{one['path']}/inventory"},
            ),
            routes.Route(
                method="DELETE",
                summary="Forget the credential, and end the consent.",
                handler=self.forget,
                answer=admin.Done,
                changes=True,
                problems=(*usual, "connection-in-use"),
                **one,
            ),
            routes.Route(
                method="PUT",
                summary="Say what may be spent through the connection without a person.",
                handler=self.give_consent,
                request=cloud.ConsentRequest,
                answer=cloud.Connection,
                changes=True,
                problems=usual,
                **consent_of,
            ),
            routes.Route(
                method="DELETE",
                summary="End the consent: nothing is spent without a person.",
                handler=self.withdraw_consent,
                answer=cloud.Connection,
                changes=True,
                problems=usual,
                **consent_of,
            ),
        )

    # Inside.

    async def _read(self, call: calls.Call[Any, Any]) -> cloud.Connection:
        now = call.now()

        async def work(tx: contract.Tx) -> cloud.Connection:
            found = await connections.get(tx, connection_id=call.path["connection"])
            return await cloud_shown.connection(tx, found, now=now)

        return await cloud_means.refusing(call.read(work))

    async def _plan(
        self, call: calls.Call[cloud.SaveConnection, routes.NoQuery]
    ) -> list[admin.Change]:
        former = await call.read(
            lambda tx: connections.find(tx, connection_id=call.path["connection"])
        )
        how = "a new credential" if former is not None else "a first credential"
        return [
            admin.Change(
                action="save",
                target=call.path["connection"],
                detail=f"{how} of kind {call.body.credential.kind} at {call.body.provider}, once "
                "it has proved itself there",
            )
        ]

    async def _saved(self, call: calls.Call[Any, Any], saved: connecting.Saved) -> calls.Answer:
        shown = await self._read(call)
        if shown.last_check is None:
            raise TypeError("What was checked has the moment of its check.")
        return calls.Reply(
            body=cloud.SavedConnection(
                connection=shown,
                check=shown.last_check,
                setup=saved.setup,
                fits=saved.checked.fits,
            ),
            status=200,
        )

    async def _consented(
        self, tx: contract.Tx, call: calls.Call[Any, Any], *, name: str, detail: str
    ) -> calls.Changed:
        changed = await connections.get(tx, connection_id=name)
        return calls.Changed(
            changes=[admin.Change(action="consent", target=name, detail=detail)],
            answer=await cloud_shown.connection(tx, changed, now=call.now()),
        )


def _held(
    kind: str, found: provider_contract.Instance | provider_contract.Child, *, state: str | None
) -> cloud.Held:
    owner = found.owner
    return cloud.Held(
        kind=kind,
        provider_ref=found.ref,
        name=found.name,
        region=found.region,
        state=state,
        node_id=None if owner is None else owner.node,
        operation_id=None if owner is None else owner.operation,
    )


def _unsaved(refusal: refusals.Refusal, *, name: str) -> refusals.Refusal:
    """The same; where the credential is at fault it also says what became of it."""
    if refusal.code != "credential-refused":
        return refusal
    return refusals.Refusal(
        refusal.code,
        f"{refusal.detail.rstrip('.')}. Nothing was saved: save {name} again with a credential "
        "that works.",
        retry_after_seconds=refusal.retry_after_seconds,
        members=refusal.members,
    )
