"""The Google driver: the contract's questions, each handed to the part that knows the answer.

Known limits: no public IPv6; a group of machines is orders side by side; the project's own firewall
rules (the `default` network lets SSH in from everywhere) are the operator's.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from provisioning import contract, credentials, providers
from provisioning.gcp import api as api_kit
from provisioning.gcp import calls, checking, children, machines, ordering, places, planning, tokens

_CAPABILITIES: Final = frozenset(
    {
        contract.Capability.ADDRESSES,
        contract.Capability.CONSOLE,
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
_LOOKUP: Final = contract.LookupRules(clean_answers=2, settle=timedelta(minutes=2), replays=True)


class Gcp:
    """One connection to Google: a `contract.Driver`."""

    def __init__(self, opening: providers.Opening, *, proof: tokens.Proof) -> None:
        project = places.project_of(proof.project_id)
        principal = (
            proof.client_email
            if isinstance(proof, credentials.GcpKey)
            else proof.service_account or f"pool {proof.pool_id}, provider {proof.provider_id}"
        )
        details = {"credential": str(proof.kind)}
        if isinstance(proof, credentials.GcpKey):
            details["key_id"] = proof.private_key_id
        self._api = api_kit.Api(
            opening, tokens_of=tokens.Tokens(opening, proof=proof), project=project
        )
        self._ordering = ordering.Ordering(self._api)
        self._machines = machines.Machines(self._api)
        self._children = children.Children(self._api, opening.clock)
        self._planning = planning.Planning(self._api)
        self._checking = checking.Checking(
            self._api, opening.clock, principal=principal, details=details
        )

    @property
    def provider(self) -> str:
        """Its name."""
        return "gcp"

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
        """The order itself may be sent again; else two clear answers over two minutes."""
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
        """The end of what its serial port wrote."""
        del region
        return await self._machines.console(ref)

    async def close(self) -> None:
        """Gives connections back."""
        await self._api.close()


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this connection; raises `providers.Refused` for what cannot be used."""
    proof = opening.credential
    if not isinstance(proof, credentials.GcpKey | credentials.GcpFederated):
        raise providers.Refused(f"Google is not opened with {proof.kind}.")
    return Gcp(opening, proof=proof)
