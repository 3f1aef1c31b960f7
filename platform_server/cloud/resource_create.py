"""Makes a volume, a snapshot or an address, once.

Most providers take no key for it. So that it was sent is committed before, and then only a look-up
(by our installation's and this operation's id) says whether it may be sent again; where a thing can
carry no mark of ours, nobody but a person can say so.
"""

import dataclasses
import datetime
from typing import Final

from platform_server.cloud import beside, lookup, machines, resource_steps, resources, using
from platform_server.operations import holding, kinds, states
from platform_server.store import contract as store_contract
from provisioning import contract, naming, outcomes
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points
from wire_protocol import problems

LONGEST: Final = datetime.timedelta(hours=2)
"""How long a provider may take to show what it has accepted; a large snapshot takes most of one."""

SENT = crash_points.declare(
    "resource.sent", story="it is stored that a provider is asked for a volume or the like"
)
ANSWERED = crash_points.declare(
    "resource.answered", story="the provider has made it, nothing of that is stored"
)
KEPT = crash_points.declare("resource.kept", story="its id at the provider is stored")


class Create(resource_steps.Kind):
    """Makes a volume, a snapshot or an address."""

    name = resources.CREATE

    async def do(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Confirms it, looks it up, or sends for it: in this order."""
        if resource.provider_ref is not None:
            found = await self._shown(driver, resource)
            found = await self._priced(driver, found)
            await self._keep(held, resource=resource, found=found)
            await self.move(held, event=states.Event.SUCCEED)
        elif resource.sent_at is not None:
            await self._look_up(held, resource=resource, driver=driver)
        else:
            await self._send(held, resource=resource, driver=driver)

    async def _send(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        owner = resource.owner(installation=self.means.installation)
        of = await self._ref_of(held)

        async def sent(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_sent(tx, child_id=resource.child_id, now=self.means.clock.now())

        await self.means.store.transact(sent)
        crash_points.reach(SENT)
        try:
            with using.fenced(sent):
                made = await driver.create_child(
                    resource.kind,
                    owner=owner,
                    name=naming.name_of(owner),
                    region=resource.region,
                    size_gigabytes=resource.size_gigabytes,
                    of=of,
                )
        except outcomes.Fault as fault:
            if fault.outcome is not outcomes.Outcome.UNKNOWN:
                await self._unsend(held, resource=resource)
            raise
        crash_points.reach(ANSWERED)
        await self._keep(held, resource=resource, found=made)

    async def _look_up(
        self, held: holding.Held, *, resource: beside.Resource, driver: contract.Driver
    ) -> None:
        """Whether what was sent is there; raises `TryLater` while nobody can say."""
        inventory = await driver.inventory(self.means.installation)
        for child in inventory.children:
            if child.kind is resource.kind and resource_steps.carries_our_mark(
                child, resource=resource, installation=self.means.installation
            ):
                await self._keep(held, resource=resource, found=child)
                return
        clean = resource.clean_answers + 1 if inventory.is_complete else 0
        rules, now = driver.lookup, self.means.clock.now()
        since = resource.sent_at or now
        settled_after = max(rules.settle, lookup.CALL)
        if clean >= rules.clean_answers and now - since >= settled_after:
            if (driver.provider, resource.kind) in resource_steps.WITHOUT_TAGS:
                raise kinds.Stop(
                    f"Nobody knows whether the provider made the {resource.kind}, which can carry "
                    "no mark of ours there. Look at its console for one that nobody uses, then "
                    "forget this one: enlist cloud addresses forget " + resource.name,
                    kind=problems.Kind.NEEDS_OPERATOR,
                )
            await self._unsend(held, resource=resource)
            raise kinds.TryLater(
                f"The provider has not made the {resource.kind}; it is asked again."
            )

        async def note(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_clean_answers(tx, child_id=resource.child_id, count=clean)

        await self.means.store.transact(note)
        wait = settled_after.total_seconds() / max(rules.clean_answers, 1)
        raise kinds.TryLater(
            f"Nobody knows yet whether the provider made the {resource.kind}: looking it up.",
            patient=True,
            seconds=max(wait, resource_steps.POLL_SECONDS),
        )

    async def on_move(
        self, tx: store_contract.Tx, *, held: holding.Held, event: states.Event
    ) -> None:
        """What failed and was proved not to be there is gone from the lists and from the bill."""
        if event is states.Event.FAIL:
            await tx.execute(
                "UPDATE cloud_children SET gone_at = ? WHERE child_id = ? "
                "AND provider_ref IS NULL AND sent_at IS NULL",
                clock_kit.to_micros(self.means.clock.now()),
                str(held.operation.request["child_id"]),
            )

    async def _shown(self, driver: contract.Driver, resource: beside.Resource) -> contract.Child:
        """What its provider shows; raises while, and where, it does not show it."""
        try:
            found = await driver.describe_child(
                resource.to_child(installation=self.means.installation)
            )
        except outcomes.Fault as fault:
            if not resource_steps.is_under_way(fault):
                raise
            raise self._not_shown(resource) from fault
        if found is None:
            raise self._not_shown(resource)
        return found

    async def _priced(self, driver: contract.Driver, found: contract.Child) -> contract.Child:
        """With what it costs, where the provider tells that in its lists alone."""
        if found.hourly is not None or contract.Capability.PRICE not in driver.capabilities:
            return found
        inventory = await driver.inventory(self.means.installation)
        shown = [
            one for one in inventory.children if (one.kind, one.ref) == (found.kind, found.ref)
        ]
        return dataclasses.replace(found, hourly=shown[0].hourly) if shown else found

    def _not_shown(self, resource: beside.Resource) -> kinds.TryLater | kinds.Stop:
        now = self.means.clock.now()
        if now - (resource.present_at or now) < LONGEST:
            return kinds.TryLater(
                f"The provider does not show the {resource.kind} that it has accepted yet.",
                patient=True,
                seconds=resource_steps.POLL_SECONDS,
            )
        return kinds.Stop(
            f"The provider has accepted the {resource.kind} and does not show it.",
            kind=problems.Kind.NEEDS_OPERATOR,
        )

    async def _ref_of(self, held: holding.Held) -> str | None:
        """What a snapshot is taken of, as its provider names it."""
        machine_id = held.operation.request.get("of")
        if machine_id is None:
            return None
        machine = await self.means.store.read(
            lambda tx: machines.get(tx, machine_id=str(machine_id))
        )
        if machine.provider_ref is None or not machine.counts:
            raise kinds.Stop(f"The machine of {machine.node_id} is gone.")
        return machine.provider_ref

    async def _unsend(self, held: holding.Held, *, resource: beside.Resource) -> None:
        async def work(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_unsent(tx, child_id=resource.child_id)

        await self.means.store.transact(work)

    async def _keep(
        self, held: holding.Held, *, resource: beside.Resource, found: contract.Child
    ) -> None:
        """Its id, its price, and that it costs from the moment it was sent for."""
        now = self.means.clock.now()

        async def work(tx: store_contract.Tx) -> None:
            await holding.require(tx, held=held)
            await beside.set_present(tx, child_id=resource.child_id, found=found, now=now)
            price = found.hourly or resource.price  # what was reserved, where none is told
            if price is not None:
                await resource_steps.charge(tx, resource=resource, price=price, now=now)

        await self.means.store.transact(work)
        crash_points.reach(KEPT)
