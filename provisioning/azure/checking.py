"""What can be known of a connection to Azure: its rights, what it may order, how much is left.

A role on the resource group is enough to make machines. What stands at the subscription is asked
too; where that right is missing it is said by its name, apart, and the tested catalogue stands in
for what could not be asked (`Offer.told_at` is then None).

Known limit: neither Azure Policy nor deny assignments show before a use.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from provisioning import catalogue, contract, outcomes
from provisioning.azure import arm as arm_kit
from provisioning.azure import calls, places, reading, rights, subscription
from runtime_kit import clock as clock_kit

_GROUPS: Final = "2022-09-01"
_AUTHORIZATION: Final = "2022-04-01"
_NAMESPACES: Final = ("Microsoft.Compute", "Microsoft.Network")
_GIB: Final = 2**30
_USUAL_DISK: Final = 30 * 10**9
_NESTED: Final = re.compile(r"Standard_[DE]\d+[a-z]*_v[345]")  # documented as able to nest
_READER: Final = (
    "Machines can be made all the same, but sizes and quota cannot be looked at. "
    "Grant Reader at the subscription, or a role with these rights, to see them."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Checking:
    """Asks, and makes nothing."""

    arm: arm_kit.Arm
    place: places.Place
    clock: clock_kit.Clock
    principal: str
    details: Mapping[str, Any]

    async def validate(self) -> contract.Validation:
        """Who we are here and what is missing."""
        self.arm.prove_anew()  # a token that is held proves nothing of the credential now
        missing = await self._missing_in_group()
        tested = catalogue.tested("azure")
        asked = subscription.Subscription(self.arm, self.place)
        region = tested.regions[0].name
        warnings = [said for name in _NAMESPACES if (said := await asked.registration(name))]
        await asked.sizes(region)
        await asked.locations()
        left = await asked.left(region)
        if asked.unreadable:
            names = ", ".join(asked.unreadable)
            warnings.append(f"At the subscription these rights are missing: {names}. {_READER}")
        return contract.Validation(
            account=self.place.subscription,
            principal=self.principal,
            missing=missing,
            unproved=("Azure Policy and deny assignments",),
            room=None if left is None else _room(left, cores=tested.tiers[0].size.cores),
            warnings=tuple(warnings),
            details={
                **self.details,
                "resource_group": self.place.group,
                "missing_at_subscription": tuple(asked.unreadable),
            },
        )

    async def offer(self) -> contract.Offer:
        """What this subscription can have in the tested regions."""
        tested = catalogue.tested("azure")
        asked = subscription.Subscription(self.arm, self.place)
        sizes: dict[str, contract.Size] = {}
        locations = await asked.locations()
        for region in tested.regions:
            for row in await asked.sizes(region.name) or []:
                _add(sizes, row, region=region.name, tested=tested)
        if asked.unreadable or locations is None:
            return contract.Offer(
                regions=tuple(one.name for one in tested.regions),
                sizes=tuple(one.size for one in tested.tiers),
                images=tested.images,
                address_price=tested.address_price,
            )
        return contract.Offer(
            regions=tuple(one.name for one in tested.regions if one.name in locations),
            sizes=tuple(sizes.values()),
            images=tested.images,
            address_price=tested.address_price,
            told_at=self.clock.now(),
        )

    async def _missing_in_group(self) -> tuple[str, ...]:
        needed = calls.rights_of(contract.Feature, of_the_subscription=False)
        try:
            await self.arm.send(calls.RESOURCE_GROUP, self.place.path, version=_GROUPS)
        except outcomes.Fault as fault:
            if fault.code == "ResourceGroupNotFound":
                raise outcomes.Fault(
                    f"There is no resource group {self.place.group}, and it is never made for you. "
                    f"Make it first: az group create -n {self.place.group} -l LOCATION",
                    outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                    topic=outcomes.Topic.INPUT,
                    code=fault.code,
                ) from None
            if fault.topic is not outcomes.Topic.RIGHTS:
                raise
        path = self.place.all_of("Microsoft.Authorization/permissions")
        try:
            rows = await self.arm.pages(calls.PERMISSIONS, path, version=_AUTHORIZATION)
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.RIGHTS:
                raise
            rows = []  # not even this may be read: nothing is granted here
        return rights.missing(needed, grants=rights.grants_of(rows))


def _add(
    sizes: dict[str, contract.Size],
    row: reading.Body,
    *,
    region: str,
    tested: catalogue.Catalogue,
) -> None:
    name = reading.text(row, "name")
    here = () if subscription.is_restricted(row) else (region,)
    known = sizes.get(name)
    if known is not None:
        sizes[name] = dataclasses.replace(known, regions=(*known.regions, *here))
        return
    tier = tested.tier(name)
    sizes[name] = contract.Size(
        name=name,
        cores=round(subscription.number(row, "vCPUs")),
        memory_bytes=math.floor(subscription.number(row, "MemoryGB") * _GIB),
        disk_bytes=tier.size.disk_bytes if tier is not None else _USUAL_DISK,
        architecture=subscription.architecture(row),
        regions=here,
        prices=tier.size.prices if tier is not None else {},
        nested_virt=_NESTED.fullmatch(name) is not None,
    )


def _room(left: Mapping[str, int], *, cores: int) -> int | None:
    sizes = (("cores", cores), ("virtualMachines", 1))
    return min((left[name] // size for name, size in sizes if name in left), default=None)
