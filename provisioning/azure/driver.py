"""The Azure driver: the contract's questions, each handed to the part that knows the answer.

Everything of ours is in one resource group, which must be there already. References are the ids
that Azure itself gives to things.

Known limits: no public IPv6; the serial console is kept in a storage account, and we ask for none;
a snapshot of Azure is no image, so no machine starts from one.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from provisioning import contract, credentials, providers
from provisioning.azure import arm as arm_kit
from provisioning.azure import (
    calls,
    checking,
    children,
    machines,
    ordering,
    places,
    planning,
    tokens,
)

SETTINGS: Final = ("resource_group",)
_CAPABILITIES: Final = frozenset(
    {
        contract.Capability.ADDRESSES,
        contract.Capability.CUSTOM_IMAGE,
        contract.Capability.FEDERATION,
        contract.Capability.NESTED_VIRT,
        contract.Capability.NETWORKS,
        contract.Capability.REBOOT,
        contract.Capability.SNAPSHOTS,
        contract.Capability.SSH_KEY,
        contract.Capability.VOLUMES,
    }
)
_LOOKUP: Final = contract.LookupRules(
    clean_answers=1,
    settle=timedelta(seconds=1),  # a name is never behind, but a call may be under way yet
    replays=True,
)


class Azure:
    """One connection to Azure: a `contract.Driver`."""

    def __init__(self, opening: providers.Opening, *, proof: tokens.Proof) -> None:
        place = places.Place.checked(
            subscription=proof.subscription_id, group=str(opening.settings["resource_group"])
        )
        self._arm = arm_kit.Arm(opening, tokens_of=tokens.Tokens(opening, proof=proof))
        self._ordering = ordering.Ordering(self._arm, place, opening.clock)
        self._machines = machines.Machines(self._arm, place)
        self._children = children.Children(self._arm, place)
        self._planning = planning.Planning(self._arm, place)
        self._checking = checking.Checking(
            self._arm,
            place,
            opening.clock,
            principal=proof.client_id,
            details={"tenant_id": proof.tenant_id, "credential": proof.kind},
        )

    @property
    def provider(self) -> str:
        """Its name."""
        return "azure"

    @property
    def capabilities(self) -> frozenset[contract.Capability]:
        """What it can do beyond the core."""
        return _CAPABILITIES

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        return calls.CALLS

    @property
    def lookup(self) -> contract.LookupRules:
        """One clear answer by name is enough; the order itself may be sent again."""
        return _LOOKUP

    async def validate(self) -> contract.Validation:
        """Proves the credential and finds what is missing."""
        return await self._checking.validate()

    async def offer(self) -> contract.Offer:
        """What can be ordered now."""
        return await self._checking.offer()

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether this request can work."""
        return await self._planning.plan(request)

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order."""
        return await self._ordering.create(request)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How what was accepted is doing."""
        return await self._ordering.poll(created)

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """Whatever carries this operation's id, and what has this very name."""
        return await self._ordering.find(owner, name=name, region=region)

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The machine with its children."""
        del region
        return await self._machines.describe(ref)

    async def delete(self, ref: str, *, region: str) -> None:
        """Has it deleted."""
        del region
        await self._machines.delete(ref)

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        del region
        await self._machines.reboot(ref)

    async def inventory(self, installation: str) -> contract.Inventory:
        """All of this installation's."""
        return await self._machines.inventory(installation)

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now."""
        return await self._children.describe(child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted."""
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
        """None: there is none to be read without a storage account."""
        del ref, region
        return None

    async def close(self) -> None:
        """Gives connections back."""
        await self._arm.close()


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this connection; raises `providers.Refused` for what cannot be used."""
    proof = opening.credential
    if not isinstance(
        proof,
        credentials.AzureSecret | credentials.AzureFederated | credentials.AzureTokenFile,
    ):
        raise providers.Refused(f"Azure is not opened with {proof.kind}.")
    return Azure(opening, proof=proof)
