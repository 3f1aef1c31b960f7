"""Deletes an orphan at its provider, until the provider says that it is gone.

The provider is asked anew right before, and it is deleted only if it still carries this
installation's id, and nothing here knows it by then: it may have been adopted, or its order may
have found it.
"""

import dataclasses
import datetime
import secrets
from typing import Final

from platform_server.cloud import known, orphans, pausing, requests, resource_steps
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract as store_contract
from provisioning import contract, outcomes
from wire_protocol import problems

DELETE: Final = "delete-orphan"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was stored."""

    operation: records.Operation
    orphan: orphans.Orphan


async def delete(
    tx: store_contract.Tx,
    *,
    orphan: orphans.Orphan,
    is_double: bool = False,
    asked: requests.Asked,
) -> records.Operation:
    """Stores the operation, or gives the one that is open.

    `is_double`: an order has found another machine of its own, so it may go while that is open.
    """
    subject = f"orphan/{orphan.connection_id}/{orphan.kind}/{orphan.provider_ref}"
    await tx.lock(f"cloud-{subject}")
    present = await records.find_open(tx, subject=subject)
    if present is not None:
        return present
    operation = records.Operation(
        operation_id=secrets.token_hex(8),
        kind=DELETE,
        infra=orphan.infra,
        subject=subject,
        parent_id=None,
        state=states.State.REQUESTED,
        request={
            "connection_id": orphan.connection_id,
            "kind": orphan.kind,
            "provider_ref": orphan.provider_ref,
            "region": orphan.region,
            "name": orphan.name,
            "is_double": is_double,
        },
        created_at=asked.now,
        created_by=asked.by,
        updated_at=asked.now,
        next_at=asked.now,
    )
    await orphans.set_delete_asked(tx, orphan=orphan, now=asked.now)
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=asked.environment, now=asked.now)
    return operation


async def ask(
    tx: store_contract.Tx,
    *,
    connection_id: str,
    kind: str,
    provider_ref: str,
    asked: requests.Asked,
) -> Made:
    """A person has it deleted; raises `orphans.NoSuchOrphan`."""
    orphan = await orphans.find(
        tx, connection_id=connection_id, kind=kind, provider_ref=provider_ref
    )
    if orphan is None:
        raise orphans.NoSuchOrphan(
            f"There is no orphan {kind} {provider_ref} there. See: enlist cloud orphans list"
        )
    return Made(operation=await delete(tx, orphan=orphan, asked=asked), orphan=orphan)


class DeleteOrphan:
    """The kind, for the reconciler."""

    name = DELETE

    def __init__(self, means: resource_steps.Means) -> None:
        self._means = means

    async def look(
        self, tx: store_contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """There is something to do unless the connection is paused."""
        connection_id = str(operation.request["connection_id"])
        if await pausing.is_paused(tx, connection_id=connection_id, now=now):
            return kinds.Wait(seconds=pausing.LOOK_SECONDS)
        return kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """See `kinds.Kind.advance`."""
        operation, means = held.operation, self._means
        if operation.state is not states.State.RUNNING:
            await self._move(held, event=states.Event.BEGIN)
            return
        try:
            async with means.clouds.driver(
                str(operation.request["connection_id"]),
                purpose=operation.kind,
                actor=operation.created_by,
                operation_id=operation.operation_id,
                changes=True,
            ) as driver:
                is_gone = await self._delete(held, driver=driver)
        except outcomes.Fault as fault:
            raise resource_steps.verdict_of(fault) from fault
        if not is_gone:
            raise resource_steps.under_way("deleted")
        await self._move(held, event=states.Event.SUCCEED)

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """See `kinds.Kind.fail`."""
        await self._move(held, event=states.Event.FAIL, failure=failure)

    async def _delete(self, held: holding.Held, *, driver: contract.Driver) -> bool:
        """Has it deleted if it is there and ours; says whether it is gone."""
        request = held.operation.request
        kind, ref = str(request["kind"]), str(request["provider_ref"])
        region = str(request["region"])
        if kind == orphans.MACHINE:
            instance = await driver.describe(ref, region=region)
            if instance is None:
                return True
            await self._require_orphan(held, owner=instance.owner)
            if instance.power is not contract.Power.DELETING:
                await driver.delete(ref, region=region)
            return False
        child = contract.Child(
            kind=contract.ChildKind(kind), ref=ref, name=str(request["name"]), region=region
        )
        found = await driver.describe_child(child)
        if found is None:
            return True
        await self._require_orphan(held, owner=found.owner)
        await driver.delete_child(found)
        return False

    async def _require_orphan(self, held: holding.Held, *, owner: contract.Owner | None) -> None:
        request, means = held.operation.request, self._means
        if owner is None or owner.installation != means.installation:
            raise kinds.Stop(
                "At the provider it does not carry this installation's id, so it is not deleted.",
                kind=problems.Kind.NEEDS_OPERATOR,
            )
        present = await means.store.read(
            lambda tx: known.read(tx, connection_id=str(request["connection_id"]))
        )
        kind, ref = str(request["kind"]), str(request["provider_ref"])
        is_known = (
            ref in present.machine_refs
            if kind == orphans.MACHINE
            else present.has_child(kind=kind, ref=ref)
        )
        is_awaited = owner.operation in present.open_operations and not request.get("is_double")
        if is_known or is_awaited:
            raise kinds.Stop("It belongs to something known by now, so it is not deleted.")

    async def _move(
        self,
        held: holding.Held,
        *,
        event: states.Event,
        failure: holding.Failure | None = None,
    ) -> None:
        async def work(tx: store_contract.Tx) -> None:
            now, request = self._means.clock.now(), held.operation.request
            await holding.begin(tx, held=held, event=event, now=now)
            if event is states.Event.SUCCEED:
                await orphans.set_gone(
                    tx,
                    connection_id=str(request["connection_id"]),
                    key=(str(request["kind"]), str(request["provider_ref"])),
                    now=now,
                )
            if event is states.Event.FAIL:
                await tx.execute(
                    "UPDATE cloud_orphans SET delete_asked_at = NULL WHERE connection_id = ? "
                    "AND kind = ? AND provider_ref = ?",
                    str(request["connection_id"]),
                    str(request["kind"]),
                    str(request["provider_ref"]),
                )
            await holding.move(
                tx,
                held=held,
                move=holding.Move(event=event, failure=failure),
                environment=self._means.environment,
                now=now,
            )

        await self._means.store.transact(work)
