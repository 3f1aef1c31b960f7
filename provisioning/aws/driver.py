"""EC2 as every provider is to the Platform: the contract's questions, answered by the parts here.

Known limits: only regions that the connection watches can be ordered in (`regions` in its settings,
the tested ones by default); groups of machines are orders side by side.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioning import catalogue, contract, outcomes, providers
from provisioning.aws import account as account_kit
from provisioning.aws import (
    calls,
    children,
    identity,
    inventory,
    launching,
    link,
    machines,
    offering,
    placing,
    trust,
    validation,
)

_CAPABILITY = contract.Capability
_CAPABILITIES: Final = frozenset(
    {
        _CAPABILITY.ADDRESSES,
        _CAPABILITY.CONSOLE,
        _CAPABILITY.CUSTOM_IMAGE,
        _CAPABILITY.FEDERATION,
        _CAPABILITY.NESTED_VIRT,
        _CAPABILITY.NETWORKS,
        _CAPABILITY.REBOOT,
        _CAPABILITY.SNAPSHOTS,
        _CAPABILITY.SSH_KEY,
        _CAPABILITY.VOLUMES,
    }
)
_LOOKUP: Final = contract.LookupRules(
    clean_answers=3, settle=datetime.timedelta(minutes=3), replays=True
)
_NAMED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class Ec2:
    """One connection to EC2."""

    provider = "aws"
    capabilities = _CAPABILITIES
    calls: Sequence[contract.ApiCall] = calls.ALL
    lookup = _LOOKUP

    def __init__(self, opening: providers.Opening, *, regions: Sequence[str]) -> None:
        installation = opening.settings.get("installation")
        through = link.Link(
            observer=opening.observer,
            clock=opening.clock,
            endpoints=opening.endpoints,
            limits=opening.limits,
        )
        who = identity.Identity(
            credential=opening.credential,
            assertion=opening.assertion,
            through=through,
            clock=opening.clock,
            region=regions[0],
            installation=installation,
            memory=opening.memory,
        )
        self._clock = opening.clock
        self._installation = installation
        self._regions = regions
        self._account = account_kit.Account(through=through, identity=who)
        self._machines = machines.Machines(account=self._account, clock=opening.clock)
        self._launches = launching.Launches(account=self._account, existing=self._machines)
        self._children = children.Children(
            account=self._account, existing=self._machines, region=regions[0]
        )

    async def validate(self) -> contract.Validation:
        """Proves the credential and finds what is missing; creates nothing."""
        return await validation.validate(
            self._account, region=self._regions[0], installation=self._installation
        )

    async def offer(self) -> contract.Offer:
        """What can be ordered now, with dated estimates of prices."""
        return await offering.read(self._account, regions=self._regions, clock=self._clock)

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether the order can work, made exact; EC2 itself rehearses it."""
        if request.region not in self._regions:
            return contract.Plan(refusals=(_unwatched(request.region, self._regions),))
        try:
            exact = await placing.settle(self._account, request)
            image = await placing.image_of(self._account, exact.image, region=exact.region)
        except placing.Unplaceable as refusal:
            return contract.Plan(refusals=(str(refusal),))
        refusals = await self._rehearsed(exact, image)
        return contract.Plan(
            refusals=refusals,
            warnings=() if request.public_ipv4 else (_NO_IPV4,),
            price=offering.price_of(exact, image),
            settled=exact,
        )

    async def _rehearsed(
        self, request: contract.Request, image: Mapping[str, Any]
    ) -> tuple[str, ...]:
        try:
            await self._launches.rehearse(request, image=image)
        except outcomes.Fault as fault:
            if fault.outcome is not outcomes.Outcome.NOT_DONE_PERMANENT:
                raise
            return (str(fault),)
        except placing.Unplaceable as refusal:
            return (str(refusal),)
        return ()

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order, once."""
        return await self._launches.create(request)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the launch is doing."""
        return await self._launches.poll(created)

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """Whatever carries this operation's id, and what has this very name."""
        return await self._machines.find(owner, name=name, region=region)

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The machine with its children; None where it is gone."""
        return await self._machines.describe(ref, region=region)

    async def delete(self, ref: str, *, region: str) -> None:
        """Has it terminated."""
        await self._machines.delete(ref, region=region)

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        await self._machines.reboot(ref, region=region)

    async def inventory(self, installation: str) -> contract.Inventory:
        """All of this installation's, in every region that is watched."""
        return await inventory.read(self._account, installation=installation, regions=self._regions)

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now; None where it is gone."""
        return await self._children.describe(child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted; a machine's own group is shut at once, whoever still has it."""
        await self._children.delete(child)

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
        """A volume, a snapshot or a stable address of our own."""
        return await self._children.create(
            kind, owner=owner, name=name, region=region, size_gigabytes=size_gigabytes, of=of
        )

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine."""
        await self._children.attach(child, to=to)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it."""
        await self._children.detach(child)

    async def console(self, ref: str, *, region: str) -> str | None:
        """The end of what its serial console showed."""
        return await self._machines.console(ref, region=region)

    async def close(self) -> None:
        """Gives connections back; may be repeated."""
        self._account.close()


_NO_IPV4: Final = (
    "Without a public IPv4 the machine reaches the Platform only over IPv6, or through a NAT "
    "gateway of yours."
)


def _unwatched(region: str, regions: Sequence[str]) -> str:
    return (
        f"{region} is not watched by this connection, so a machine there could be lost sight of. "
        f"It watches {', '.join(regions)}; add it to the connection's setting `regions`."
    )


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this connection; nothing is called yet.

    Raises:
        providers.Refused: a region or the role's ARN is not written as AWS writes it.
    """
    first = str(opening.settings.get("region", ""))
    told = opening.settings.get("regions") or [one.name for one in catalogue.tested("aws").regions]
    wished = told.split(",") if isinstance(told, str) else [str(one) for one in told]
    regions = list(dict.fromkeys([first, *(one.strip() for one in wished)]))
    for region in regions:
        if not region or not _NAMED.issuperset(region):
            raise providers.Refused(f"{region!r} is no region of AWS, like eu-west-1.")
    role = getattr(opening.credential, "role_arn", "")
    if role:
        try:
            trust.role_of(role)
        except trust.Unusable as refusal:
            raise providers.Refused(str(refusal)) from refusal
    return Ec2(opening, regions=regions)
