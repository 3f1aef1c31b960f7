"""One adapter for the libcloud drivers that can carry first-boot data and an owner's tag.

A provider is a `Dialect`: how it names its calls, what an order looks like, how its JSON is read.
libcloud makes the orders (so first-boot data is encoded once, by it); lists, pages and readings are
ours, since libcloud's own lose the id of a machine whose answer lacks a field.

Known limit: machines alone. No volumes, snapshots or addresses are offered here, and a look-up
reads the whole list, since none of the three can be asked for a tag that we may rely on.
"""

import datetime
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from provisioning import answers, contract, outcomes, shaped, wide_open
from provisioning.libcloud_drivers import errors

MOST_PAGES: Final = 500
_REF: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_LOOKUP: Final = contract.LookupRules(clean_answers=3, settle=datetime.timedelta(minutes=5))


class Dialect(Protocol):
    """What is particular about one provider. Every method may raise `outcomes.Fault`."""

    provider: str
    capabilities: frozenset[contract.Capability]

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        ...

    async def account(self) -> contract.Validation:
        """Who the credential is."""
        ...

    async def offer(self) -> contract.Offer:
        """What can be ordered."""
        ...

    async def settle(self, request: contract.Request) -> contract.Plan:
        """What stands against the request, and the request with names made ids."""
        ...

    async def order(self, request: contract.Request) -> dict[str, Any]:
        """Sends the order, once; what it made, as the provider tells it."""
        ...

    async def machines(self) -> list[dict[str, Any]]:
        """All machines, all pages."""
        ...

    async def machine(self, ref: str) -> dict[str, Any]:
        """This machine."""
        ...

    async def remove(self, ref: str) -> None:
        """Has it deleted."""
        ...

    async def restart(self, ref: str) -> None:
        """Restarts it."""
        ...

    def read(self, machine: dict[str, Any]) -> contract.Instance:
        """Its JSON as our value."""
        ...

    async def close(self) -> None:
        """Gives its thread back."""
        ...


class Driver:
    """The contract spoken through a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    @property
    def provider(self) -> str:
        """Its name."""
        return self._dialect.provider

    @property
    def capabilities(self) -> frozenset[contract.Capability]:
        """What can be done beyond the core."""
        return self._dialect.capabilities

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        return self._dialect.calls

    @property
    def lookup(self) -> contract.LookupRules:
        """Nothing is written down of how fast these lists follow: as late as the latest."""
        return _LOOKUP

    async def validate(self) -> contract.Validation:
        """Who the credential is, and whether it sees machines."""
        with shaped.reading(f"What {self.provider} tells of its offer"):
            return await self._dialect.account()

    async def offer(self) -> contract.Offer:
        """What can be ordered now."""
        with shaped.reading(f"What {self.provider} tells of its offer"):
            return await self._dialect.offer()

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether this order can work."""
        with shaped.reading(f"What {self.provider} tells of its offer"):
            plan = await self._dialect.settle(request)
        refusals = [*plan.refusals, *_beyond(request, self.capabilities)]
        warnings = [*plan.warnings]
        if contract.Capability.SSH_KEY in self.capabilities:
            title = self.provider.capitalize()
            refusals += wide_open.refusals(request, provider=title)
            warnings += wide_open.warnings(request, provider=title)
        return contract.Plan(
            refusals=tuple(refusals),
            warnings=tuple(warnings),
            price=plan.price,
            settled=plan.settled,
        )

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order, once."""
        made = await self._dialect.order(request)
        with shaped.reading(f"The order at {self.provider}"):
            instance = self._dialect.read(made)
        return contract.Created(ref=instance.ref, instance=instance)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """Over once the machine runs; shown as failed, the order has failed."""
        try:
            instance = await self.describe(created.ref, region="")
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from None
        if instance is not None and instance.power is contract.Power.FAILED:
            raise outcomes.Fault(
                f"The order was accepted and has failed: {instance.failure or 'no reason told'}.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.CAPACITY,
                code=instance.failure_code or "machine_failed",
                ref=created.ref,
            )
        if instance is None or instance.power is contract.Power.STARTING:
            return contract.Progress.RUNNING
        return contract.Progress.DONE

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By the owner's tag and by name, in the whole list."""
        del region
        found = [
            one
            for one in await self._machines()
            if one.name == name
            or (
                one.owner is not None
                and (one.owner.installation, one.owner.operation)
                == (owner.installation, owner.operation)
            )
        ]
        return contract.Sightings(instances=tuple(found))

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The machine; None where the provider says clearly that there is none."""
        del region
        self._require(ref)
        try:
            machine = await self._dialect.machine(ref)
        except outcomes.Fault as fault:
            if errors.is_gone(fault):
                return None
            raise
        with shaped.reading(f"A machine of {self.provider}"):
            return self._dialect.read(machine)

    async def delete(self, ref: str, *, region: str) -> None:
        """Has it deleted; gone already is done."""
        del region
        self._require(ref)
        try:
            await self._dialect.remove(ref)
        except outcomes.Fault as fault:
            if not errors.is_gone(fault):
                raise

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        del region
        self._require(ref)
        await self._dialect.restart(ref)

    async def inventory(self, installation: str) -> contract.Inventory:
        """All machines of this installation."""
        machines = [
            one
            for one in await self._machines()
            if one.owner is not None and one.owner.installation == installation
        ]
        return contract.Inventory(machines=tuple(machines), children=())

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """Nothing is offered here that could be described."""
        raise self._not_offered(child.kind)

    async def delete_child(self, child: contract.Child) -> None:
        """Nothing is offered here that could be deleted."""
        raise self._not_offered(child.kind)

    async def create_child(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None = None,
        of: str | None = None,
    ) -> contract.Child:
        """Nothing is offered here that could be made."""
        del owner, name, region, size_gigabytes, of
        raise self._not_offered(kind)

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Nothing is offered here that could be attached."""
        del to
        raise self._not_offered(child.kind)

    async def detach(self, child: contract.Child) -> None:
        """Nothing is offered here that could be detached."""
        raise self._not_offered(child.kind)

    async def console(self, ref: str, *, region: str) -> str | None:
        """None is offered here."""
        del ref, region
        return None

    async def close(self) -> None:
        """Gives its thread back."""
        await self._dialect.close()

    async def _machines(self) -> list[contract.Instance]:
        with shaped.reading(f"The list of machines of {self.provider}"):
            return [self._dialect.read(one) for one in await self._dialect.machines()]

    def _require(self, ref: str) -> None:
        outcomes.require_ref(_REF, ref, provider=self.provider)

    def _not_offered(self, kind: contract.ChildKind) -> outcomes.Fault:
        return outcomes.Fault(
            f"A {kind} of {self.provider} cannot be handled here; use the provider's own tools.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )


def _beyond(request: contract.Request, capabilities: frozenset[contract.Capability]) -> list[str]:
    wishes = (
        (request.ssh is not None, contract.Capability.SSH_KEY, "an SSH key"),
        (request.network is not None, contract.Capability.NETWORKS, "a network"),
        (request.subnet is not None, contract.Capability.NETWORKS, "a subnet"),
        (bool(request.volumes), contract.Capability.VOLUMES, "volumes"),
        (bool(request.addresses), contract.Capability.ADDRESSES, "stable addresses"),
        (request.disk_gigabytes is not None, contract.Capability.VOLUMES, "a disk of its own size"),
    )
    refusals = [
        f"This provider's machines cannot be ordered with {what} here; leave it out."
        for wished, capability, what in wishes
        if wished and capability not in capabilities
    ]
    if not request.public_ipv4:
        refusals.append("This provider's machines cannot be ordered without public IPv4 here.")
    return refusals
