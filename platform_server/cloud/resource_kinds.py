"""Attaches, detaches and deletes volumes, snapshots and addresses: asked first, done, confirmed."""

from platform_server.cloud import (
    beside,
    costs,
    machines,
    resource_create,
    resource_steps,
    resources,
)
from platform_server.operations import holding, kinds, states
from platform_server.store import contract as store_contract
from provisioning import contract
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points

Means = resource_steps.Means
CHANGED = crash_points.declare(
    "resource.changed", story="the provider has attached, detached or deleted it, nothing is stored"
)


class _Hanging(resource_steps.Kind):
    """What gives and takes has in common: it is there, and ours."""

    async def _described(
        self, driver: contract.Driver, resource: beside.Resource
    ) -> contract.Child:
        installation = self.means.installation
        found = await driver.describe_child(resource.to_child(installation=installation))
        if found is None:
            raise kinds.Stop(f"The provider says that the {resource.kind} {resource.name} is gone.")
        resource_steps.require_ours(
            found, resource=resource, driver=driver, installation=installation
        )
        return found


class Attach(_Hanging):
    """Gives a volume or address to a machine."""

    name = resources.ATTACH

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks who has it, then has it given, then asks again."""
        machine_id = str(held.operation.request["machine_id"])
        machine = await self.means.store.read(lambda tx: machines.get(tx, machine_id=machine_id))
        if machine.provider_ref is None or not machine.counts:
            raise kinds.Stop(f"The machine of {machine.node_id} is gone.")
        found = await self._described(driver, resource)
        if found.attached_to == machine.provider_ref:
            await driver.attach(found, to=machine.provider_ref)  # some had to turn it off for that
            await self.move(held, event=states.Event.SUCCEED)
        elif found.attached_to is not None:
            raise kinds.Stop(
                f"At the provider the {resource.kind} hangs on {found.attached_to}: detach it "
                "there first."
            )
        else:
            await driver.attach(found, to=machine.provider_ref)
            crash_points.reach(CHANGED)
            raise resource_steps.under_way("attached")

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It hangs on that machine from now on."""
        if event is states.Event.SUCCEED:
            request = held.operation.request
            await beside.set_machine(
                tx, child_id=str(request["child_id"]), machine_id=str(request["machine_id"])
            )


class Detach(_Hanging):
    """Takes a volume or address away from whatever has it."""

    name = resources.DETACH

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks who has it, then has it taken away, then asks again."""
        found = await self._described(driver, resource)
        if found.attached_to is None:
            await self.move(held, event=states.Event.SUCCEED)
        else:
            await driver.detach(found)
            crash_points.reach(CHANGED)
            raise resource_steps.under_way("detached")

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It hangs on no machine."""
        if event is states.Event.SUCCEED:
            await beside.set_machine(
                tx, child_id=str(held.operation.request["child_id"]), machine_id=None
            )


class Delete(resource_steps.Kind):
    """Deletes one, until its provider says that it is gone."""

    name = resources.DELETE

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Asks whether it is there and ours, then has it deleted, then asks again."""
        found = await driver.describe_child(resource.to_child(installation=self.means.installation))
        if found is None:
            await self.move(held, event=states.Event.SUCCEED)
            return
        resource_steps.require_ours(
            found, resource=resource, driver=driver, installation=self.means.installation
        )
        if found.ref != resource.provider_ref:  # it was still being made when we last looked
            await self._note(held, resource=resource, found=found)
        if found.attached_to is not None:
            raise kinds.TryLater(
                f"At the provider the {resource.kind} hangs on {found.attached_to}."
            )
        await driver.delete_child(found)
        crash_points.reach(CHANGED)
        raise resource_steps.under_way("deleted")

    async def _note(
        self, held: holding.Held, *, resource: beside.Resource, found: contract.Child
    ) -> None:
        """Its id, before anything is done to it: by that alone it can be confirmed gone."""

        async def work(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_present(
                tx, child_id=resource.child_id, found=found, now=self.means.clock.now()
            )

        await self.means.store.transact(work)

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """It is gone, from the lists and from the bill."""
        child_id = str(held.operation.request["child_id"])
        now = self.means.clock.now()
        if event is states.Event.SUCCEED:
            await tx.execute(
                "UPDATE cloud_children SET gone_at = COALESCE(gone_at, ?), machine_id = NULL "
                "WHERE child_id = ?",
                clock_kit.to_micros(now),
                child_id,
            )
            await costs.end(tx, subject_id=child_id, until=now)


def all_of(means: Means) -> tuple[kinds.Kind, ...]:
    """For the reconciler."""
    return (resource_create.Create(means), Attach(means), Detach(means), Delete(means))
