"""The contract spoken to DigitalOcean.

There is no idempotency key and names are not unique, so tags are all we have, and they are put on
a droplet only after it exists: a look-up by tag may lag, which is why absence is believed late, and
why it is joined by a look-up by name. GPU droplets stand in no list by tag at all; they are looked
for by name among their own kind.

An accepted order says nothing yet: its create action may fail afterwards, and then the droplet is
simply gone.

Known limit: names and tags cannot be asked for in one call, so a look-up is three.
"""

import dataclasses
import datetime
import re
from collections.abc import Sequence
from typing import Any, Final

from provisioning import (
    answers,
    beforehand,
    contract,
    credentials,
    naming,
    outcomes,
    packed_owner,
    providers,
    shaped,
)
from provisioning.digitalocean import calls, children, closing, planning, reading
from provisioning.digitalocean import client as client_kit
from provisioning.digitalocean import keys as keys_kit

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
_REF: Final = re.compile(r"[0-9]{1,20}")
_LOOKUP: Final = contract.LookupRules(clean_answers=3, settle=datetime.timedelta(minutes=3))


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver for this token; nothing is called yet."""
    if not isinstance(opening.credential, credentials.Token):
        raise providers.Refused("DigitalOcean is opened with a personal access token.")
    return Driver(
        client_kit.Client(
            opening.credential.token,
            observer=opening.observer,
            clock=opening.clock,
            limits=opening.limits,
            address=opening.endpoints.get("", client_kit.ADDRESS),
        )
    )


class Driver:
    """One token at DigitalOcean."""

    def __init__(self, client: client_kit.Client) -> None:
        self._client = client

    @property
    def provider(self) -> str:
        """`digitalocean`."""
        return "digitalocean"

    @property
    def capabilities(self) -> frozenset[contract.Capability]:
        """What can be done beyond the core."""
        return _CAPABILITIES

    @property
    def calls(self) -> Sequence[contract.ApiCall]:
        """Every call it can make."""
        return calls.ALL

    @property
    def lookup(self) -> contract.LookupRules:
        """Three clean answers over three minutes."""
        return _LOOKUP

    async def validate(self) -> contract.Validation:
        """Who the token is, what room the account has, and which reads it lacks."""
        with shaped.reading("What DigitalOcean tells of its offer"):
            return await planning.validate(self._client)

    async def offer(self) -> contract.Offer:
        """Sizes with their prices, and the images of distributions."""
        with shaped.reading("What DigitalOcean tells of its offer"):
            return await planning.offer(self._client)

    async def plan(self, request: contract.Request) -> contract.Plan:
        """Whether this order can work."""
        with shaped.reading("What DigitalOcean tells of its offer"):
            return await planning.plan(self._client, request)

    async def create(self, request: contract.Request) -> contract.Created:
        """Sends the order, once; key and firewall are put into the account before it."""
        made = await self._prepare(request)
        order: dict[str, Any] = {
            "name": request.name,
            "region": request.region,
            "size": request.size,
            "image": int(request.image) if request.image.isdecimal() else request.image,
            "tags": packed_owner.as_tags(request.owner),
            "ipv6": request.public_ipv6,
            "monitoring": False,
            "with_droplet_agent": False,
            "ssh_keys": [int(one.ref) for one in made if one.kind is contract.ChildKind.SSH_KEY],
        }
        if request.network is not None:
            order["vpc_uuid"] = request.network
        if request.volumes:
            order["volumes"] = list(request.volumes)
        kept = tuple(
            one
            for one in made
            if one.owner is not None and keys_kit.is_same_order(one.owner, request.owner)
        )
        try:
            body = await self._client.create(order, first_boot=request.first_boot)
        except outcomes.Fault as fault:
            raise await beforehand.taken_back(fault, made=kept, delete=self.delete_child) from None
        with shaped.reading(calls.CREATE.name):
            instance = reading.instance(body["droplet"], children=kept)
            actions = (body.get("links") or {}).get("actions") or []
            action = next((str(one["id"]) for one in actions if one.get("rel") == "create"), None)
        return contract.Created(
            ref=instance.ref, progress=action, children=instance.children, instance=instance
        )

    async def _prepare(self, request: contract.Request) -> list[contract.Child]:
        """Key and firewall; raises `outcomes.Fault`, never with `UNKNOWN`."""
        made: list[contract.Child] = []
        try:
            if request.ssh is not None:
                public = request.ssh.public_key
                return [await keys_kit.ensure(self._client, request.owner, public_key=public)]
            made.append(await closing.make_key(self._client, request.owner))
            firewall = await closing.make_firewall(self._client, request.owner)
        except outcomes.Fault as fault:
            refused = beforehand.not_ordered(fault)
            raise await beforehand.taken_back(
                refused, made=made, delete=self.delete_child
            ) from None
        return made if firewall is None else [*made, firewall]

    async def poll(self, created: contract.Created) -> contract.Progress:
        """How the create action is doing; that it cannot be read now ends nothing."""
        if created.progress is None or not created.progress.isdecimal():
            return await self._poll_droplet(created.ref)
        try:
            body = await children.found(
                self._client, calls.ACTION, f"/v2/actions/{created.progress}"
            )
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from None
        if body is None:
            return await self._poll_droplet(created.ref)
        with shaped.reading(calls.ACTION.name):
            status = body["action"]["status"]
        if status == "errored":
            raise outcomes.Fault(
                "DigitalOcean accepted the order and could not place the machine afterwards.",
                outcome=outcomes.Outcome.NOT_DONE_RETRYABLE,
                topic=outcomes.Topic.CAPACITY,
                code="errored",
                ref=created.ref,
            )
        done = status == "completed"
        return contract.Progress.DONE if done else contract.Progress.RUNNING

    async def find(self, owner: contract.Owner, *, name: str, region: str) -> contract.Sightings:
        """By tag of the operation, by name, and by name among GPU droplets; all pages."""
        del region  # droplets are looked up over all regions
        tag = packed_owner.tag(naming.OPERATION, owner.operation)
        rows = [
            *await self._list(tag_name=tag),
            *await self._list(name=name),
            *await self._list(name=name, type="gpus"),
        ]
        made = await closing.of_operation(self._client, owner)
        seen = {
            one.ref: dataclasses.replace(one, children=(*one.children, *made))
            if one.owner is not None and keys_kit.is_same_order(one.owner, owner)
            else one
            for one in _instances(rows)
        }
        is_untagged = any(one.name == name and one.owner is None for one in seen.values())
        return contract.Sightings(
            instances=tuple(seen.values()),
            is_complete=not is_untagged,  # its tags may still be on their way
        )

    async def describe(self, ref: str, *, region: str) -> contract.Instance | None:
        """The droplet, with what would outlive it and cost."""
        del region
        _require(ref)
        body = await children.found(self._client, calls.GET, f"/v2/droplets/{ref}")
        if body is None:
            return None
        companions = await children.companions(self._client, ref)
        with shaped.reading(calls.GET.name):
            return reading.instance(body["droplet"], children=companions)

    async def delete(self, ref: str, *, region: str) -> None:
        """By its id, never by tag: that would delete all that carry it."""
        del region
        _require(ref)
        try:
            await self._client.delete_droplet(ref)
        except outcomes.Fault as fault:
            if fault.code != "not_found":
                raise

    async def reboot(self, ref: str, *, region: str) -> None:
        """Restarts it."""
        del region
        _require(ref)
        await self._client.reboot(ref)

    async def inventory(self, installation: str) -> contract.Inventory:
        """All that carries this installation's tag, and the addresses that its machines have."""
        tag = packed_owner.tag(naming.INSTALLATION, installation)
        rows = [*await self._list(tag_name=tag), *await self._list(type="gpus")]
        machines = {
            one.ref: one
            for one in _instances(rows)
            if one.owner is not None and one.owner.installation == installation
        }
        ours = tuple(
            child
            for child in await children.every(self._client)
            if (child.owner is not None and child.owner.installation == installation)
            or (child.owner is None and child.attached_to in machines)
        )
        budget = self._client.budget
        return contract.Inventory(
            machines=tuple(machines.values()),
            children=ours,
            calls_left=None if budget is None else budget.left,
            calls_most=None if budget is None else budget.most,
        )

    async def describe_child(self, child: contract.Child) -> contract.Child | None:
        """The child as it is now; None where it is gone."""
        return await children.describe(self._client, child)

    async def delete_child(self, child: contract.Child) -> None:
        """Has it deleted; in use yet: try later."""
        await children.delete(self._client, child)

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
        """A volume, a snapshot of a machine or volume, or a reserved address."""
        return await children.create(
            self._client,
            kind,
            owner=owner,
            name=name,
            region=region,
            size_gigabytes=size_gigabytes,
            of=of,
        )

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine."""
        await children.attach(self._client, child, to=to)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it."""
        await children.detach(self._client, child)

    async def console(self, ref: str, *, region: str) -> str | None:
        """DigitalOcean shows none by API."""
        del ref, region
        return None

    async def close(self) -> None:
        """Gives its thread back."""
        await self._client.close()

    async def _list(self, **params: str) -> list[dict[str, Any]]:
        return await self._client.every(calls.LIST, "/v2/droplets", "droplets", **params)

    async def _poll_droplet(self, ref: str) -> contract.Progress:
        try:
            _require(ref)
            body = await children.found(self._client, calls.GET, f"/v2/droplets/{ref}")
        except outcomes.Fault as fault:
            raise answers.of_asking(fault) from None
        if body is None:
            return contract.Progress.RUNNING  # told of by no action: its 404 alone proves nothing
        with shaped.reading(calls.GET.name):
            is_new = body["droplet"]["status"] == "new"
        return contract.Progress.RUNNING if is_new else contract.Progress.DONE


def _instances(rows: list[dict[str, Any]]) -> list[contract.Instance]:
    with shaped.reading(calls.LIST.name):
        return [reading.instance(row) for row in rows]


def _require(ref: str) -> None:
    outcomes.require_ref(_REF, ref, provider="DigitalOcean")
