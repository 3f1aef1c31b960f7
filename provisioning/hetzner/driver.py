"""Hetzner Cloud as the Platform's driver: one server a machine, its name unique in the project.

A name that is taken is looked up at once, and counts as ours by its labels alone. Data volumes and
addresses that were there before outlive the machine; the addresses made with it go with it.

Known limits: no console; a token shows neither its project nor the project's limits; the order of
checks behind the write probe is known from documents and waits for a live account to confirm it.
"""

import datetime
import hashlib
from collections.abc import Sequence
from typing import Final

from provisioning import answers, contract, credentials, outcomes, providers
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import (
    calls,
    children,
    labels,
    offers,
    planning,
    servers,
    shapes,
    swaps,
    way_in,
)

_CAPABILITIES: Final = frozenset(
    {
        contract.Capability.ADDRESSES,
        contract.Capability.CUSTOM_IMAGE,
        contract.Capability.NETWORKS,
        contract.Capability.PRICE,
        contract.Capability.REBOOT,
        contract.Capability.SNAPSHOTS,
        contract.Capability.SSH_KEY,
        contract.Capability.VOLUMES,
    }
)
_LOOKUP: Final = contract.LookupRules(clean_answers=1, settle=datetime.timedelta(seconds=30))
_SKEW_SECONDS: Final = 120
_LOW_BUDGET: Final = 5  # a fifth
_SMALLEST_VOLUME: Final = 10  # gigabytes, and the default


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver on this connection; nothing is called yet."""
    if not isinstance(opening.credential, credentials.Token):
        raise providers.Refused("Hetzner Cloud is opened with a token.")
    return Driver(opening, opening.credential)


class Driver:
    """One connection. See `contract.Driver` for what each method promises."""

    provider = "hetzner"
    capabilities = _CAPABILITIES
    calls: Sequence[contract.ApiCall] = calls.ALL
    lookup = _LOOKUP

    def __init__(self, opening: providers.Opening, token: credentials.Token) -> None:
        self._clock = opening.clock
        self._principal = hashlib.sha256(token.token.reveal().encode()).hexdigest()[:12]
        self._api = api_kit.Api(opening, token)
        self._servers = servers.Servers(self._api, memory=opening.memory)
        self._swaps = swaps.Swaps(self._api, clock=opening.clock, memory=opening.memory)
        self._offers = offers.Offers(self._api, clock=opening.clock, memory=opening.memory)

    async def validate(self) -> contract.Validation:
        """Reads one server, then sends a write that can only be refused."""
        told = await self._api.get(calls.FIRST_SERVER, "/servers", params={"per_page": 1})
        warnings = self._doubts()
        missing: tuple[str, ...] = ()
        try:
            await self._api.send(calls.PROBE_WRITE, "/placement_groups", body={})
        except outcomes.Fault as fault:
            if fault.topic is outcomes.Topic.RIGHTS:
                missing = ("read & write",)
            elif fault.topic is not outcomes.Topic.INPUT:
                raise
        count = shapes.shaped(
            calls.FIRST_SERVER, lambda: told["meta"]["pagination"]["total_entries"]
        )
        return contract.Validation(
            account="the project that the token was made in",
            principal=f"token {self._principal}…",
            missing=missing,
            unproved=("the project's limits (an order alone shows them)",),
            warnings=tuple(warnings),
            details={"servers": count, "calls_left": self._budget_left()},
        )

    async def offer(self) -> contract.Offer:
        """Server types with their places and prices."""
        return await self._offers.now()

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Names, size, image, network, places, price."""
        return await planning.plan(self._api, request, offer=await self.offer())

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the one call that buys; a name that is taken is looked up before saying so."""
        return await self._servers.create(request)

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the actions of an order are doing."""
        return await self._servers.poll(created)

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By name, which is unique in the project, and by the labels of the operation."""
        del region
        return await self._servers.find(owner, name=name)

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The server with its addresses and volumes."""
        del region
        return await self._servers.describe(ref)

    async def delete(self, ref: str, *, region: str) -> None:
        """Has the server deleted, with whatever was made along with it."""
        del region
        await self._servers.delete(ref)

    async def reboot(self, ref: str, *, region: str) -> None:
        """Asks the machine's system to restart."""
        del region
        await self._servers.reboot(ref)

    async def inventory(self, installation: str) -> contract.Inventory:
        """One list a kind, by this installation's label."""
        selector = labels.of_installation(installation)
        machines = await self._servers.listed(params={"label_selector": selector})
        return contract.Inventory(
            machines=tuple(machines),
            children=await self._offers.children_of(installation),
            calls_left=self._budget_left(),
            calls_most=None if self._api.budget is None else self._api.budget.most,
        )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now."""
        return await children.describe(self._api, child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted; a firewall in use is shut for port 22, since that way in is to end."""
        try:
            await children.delete(self._api, child)
        except outcomes.Fault as fault:
            is_firewall = child.kind is contract.ChildKind.SECURITY_GROUP
            if is_firewall and fault.code == "resource_in_use":
                await way_in.shut(self._api, child)
            raise

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
        """A volume, a snapshot of a machine, or a stable IPv4 address."""
        if kind is contract.ChildKind.VOLUME:
            return await children.create_volume(
                self._api,
                owner=owner,
                name=name,
                region=region,
                gigabytes=size_gigabytes or _SMALLEST_VOLUME,
            )
        if kind is contract.ChildKind.ADDRESS:
            return await children.create_address(self._api, owner=owner, name=name, region=region)
        if kind is contract.ChildKind.SNAPSHOT and of is not None:
            server = children.require(of, what="machine")
            return await children.create_snapshot(self._api, owner=owner, name=name, server=server)
        raise outcomes.Fault(
            f"Hetzner Cloud makes no {kind} here; a snapshot is made of a machine.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine, which is turned off and on for the latter."""
        if child.kind is contract.ChildKind.ADDRESS:
            await self._swaps.attach(child, to=to)
        else:
            await children.attach(self._api, child, to=to)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it."""
        await children.detach(self._api, child)

    async def console(self, ref: str, *, region: str) -> str | None:
        """Nothing: the console is a screen there, no text."""
        del ref, region
        return None

    async def close(self) -> None:
        """Gives connections and threads back."""
        self._servers.close()
        self._api.close()

    def _doubts(self) -> list[str]:
        told = self._api.told
        date = answers.server_date(told.headers) if told is not None else None
        found = []
        if date is not None:
            skew = (self._clock.now() - date).total_seconds()
            if abs(skew) > _SKEW_SECONDS:
                found.append(str(outcomes.clock_fault(date, clock=self._clock)))
        budget = self._api.budget
        if budget is not None and budget.left * _LOW_BUDGET < budget.most:
            found.append(
                f"Of this hour's {budget.most} calls of the project {budget.left} are left."
            )
        return found

    def _budget_left(self) -> int | None:
        return None if self._api.budget is None else self._api.budget.left
