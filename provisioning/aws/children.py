"""What hangs on machines or is kept beside them: disks, volumes, snapshots, addresses, ways in.

No client token exists for addresses, snapshots and groups, so each is tagged as it is made and
looked up before it is made again: the same order twice gives the same thing. A machine's snapshot
is an image of our own, from which the next can be ordered; a volume's is a snapshot.

Known limit: a volume lives in one zone. It is made in that of the machine named by `of`, else in
the first zone of the default network.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from provisioning import contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, groups, machines, placing, values

_KIND = contract.ChildKind
_NAME: Final = "Amazon EC2"
_GONE: Final = frozenset(
    {
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidAddress.NotFound",
        "InvalidAllocationID.NotFound",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidSnapshot.NotFound",
        "InvalidVolume.NotFound",
    }
)
_REFS: Final[Mapping[contract.ChildKind, re.Pattern[str]]] = {
    _KIND.DISK: re.compile(r"vol-[0-9a-f]{8,32}"),
    _KIND.VOLUME: re.compile(r"vol-[0-9a-f]{8,32}"),
    _KIND.SNAPSHOT: re.compile(r"(?:snap|ami)-[0-9a-f]{8,32}"),
    _KIND.ADDRESS: re.compile(r"eipalloc-[0-9a-f]{8,32}"),
    _KIND.INTERFACE: re.compile(r"eni-[0-9a-f]{8,32}"),
    _KIND.SECURITY_GROUP: re.compile(r"sg-[0-9a-f]{8,32}"),
    _KIND.SSH_KEY: re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}"),
}
"""A filter's value knows `*` and `?`, so nothing else than an id is ever one."""
_SOURCE: Final = re.compile(r"(?:i|vol)-[0-9a-f]{8,32}")
_VOLUME_STATES: Final = frozenset({"creating", "available", "in-use", "error"})
_GIGABYTES: Final = 20


class Children:
    """The children of one connection."""

    def __init__(
        self, *, account: account_kit.Account, existing: machines.Machines, region: str
    ) -> None:
        self._account = account
        self._machines = existing
        self._region = region

    # --- as they are now ------------------------------------------------------------------------

    async def describe(self, child: contract.Child) -> contract.Child | None:
        """As it is now; None where it is gone."""
        _require(child)
        region = child.region or self._region
        if child.kind in {_KIND.DISK, _KIND.VOLUME}:
            return await self._find_volume(child.ref, region=region)
        if child.kind is _KIND.INTERFACE:
            return await self._first(
                calls.INTERFACES,
                "NetworkInterfaces",
                values.filters(network_interface_id=child.ref),
                values.interface_child,
                region=region,
            )
        if child.kind is _KIND.ADDRESS:
            return await self._first(
                calls.ADDRESSES,
                "Addresses",
                values.filters(allocation_id=child.ref),
                values.address_child,
                region=region,
            )
        if child.kind is _KIND.SNAPSHOT:
            return await self._find_snapshot(child.ref, region=region)
        if child.kind is _KIND.SECURITY_GROUP:
            group = await groups.find_group(self._account, child.ref, region=region)
            return None if group is None else _group(group, region=region)
        key = await groups.find_key(self._account, child.ref, region=region)
        return None if key is None else _key(key, region=region)

    # --- their end ------------------------------------------------------------------------------

    async def delete(self, child: contract.Child) -> None:
        """Has it deleted; gone already is as good. In use: `NOT_DONE_RETRYABLE`, topic `STATE`."""
        _require(child)
        region = child.region or self._region
        if child.kind is _KIND.SECURITY_GROUP:
            await groups.close_group(self._account, child.ref, region=region)
        elif child.kind is _KIND.SSH_KEY:
            await groups.delete_key(self._account, child.ref, region=region)
        elif child.kind is _KIND.SNAPSHOT and child.ref.startswith("ami-"):
            await self._delete_image(child.ref, region=region)
        else:
            row, parameter = _ENDINGS[child.kind]
            named: dict[str, Any] = {parameter: child.ref}
            await self._gone_is_done(self._account.call(row, region=region, **named))

    async def _delete_image(self, ref: str, *, region: str) -> None:
        found = await self._account.listed(
            calls.IMAGES, region=region, items="Images", Owners=["self"], ImageIds=[ref]
        )
        if not found:
            return
        await self._gone_is_done(self._account.call(calls.DEREGISTER, region=region, ImageId=ref))
        for snapshot in snapshots_of(found[0]):
            await self._gone_is_done(
                self._account.call(calls.DELETE_SNAPSHOT, region=region, SnapshotId=snapshot)
            )

    async def _gone_is_done(self, ending: Awaitable[Any]) -> None:
        try:
            await ending
        except outcomes.Fault as fault:
            if fault.code not in _GONE:
                raise

    # --- new ones -------------------------------------------------------------------------------

    async def create(
        self,
        kind: contract.ChildKind,
        *,
        owner: contract.Owner,
        name: str,
        region: str,
        size_gigabytes: int | None,
        of: str | None,
    ) -> contract.Child:
        """A volume, snapshot or address; the one that this operation has made already, if so."""
        if of is not None:
            outcomes.require_ref(_SOURCE, of, provider=_NAME, what="machine or volume")
        tags = {**naming.tags_of(owner), "Name": name, values.MARK: kind.value}
        if kind is _KIND.VOLUME:
            return await self._create_volume(
                owner, tags, region=region, size_gigabytes=size_gigabytes, of=of
            )
        if kind is _KIND.ADDRESS:
            return await self._allocate(owner, tags, region=region)
        if kind is _KIND.SNAPSHOT and of:
            if of.startswith("i-"):
                return await self._create_image(owner, tags, name=name, of=of, region=region)
            return await self._create_snapshot(owner, tags, of=of, region=region)
        raise outcomes.Fault(
            f"EC2 makes no {kind.value} by itself"
            + (": name the machine or volume." if kind is _KIND.SNAPSHOT else "."),
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )

    async def _create_volume(
        self,
        owner: contract.Owner,
        tags: Mapping[str, str],
        *,
        region: str,
        size_gigabytes: int | None,
        of: str | None,
    ) -> contract.Child:
        zone = await self._zone(of, region=region)
        made = await self._account.call(
            calls.CREATE_VOLUME,
            region=region,
            AvailabilityZone=zone,
            Size=size_gigabytes or _GIGABYTES,
            VolumeType="gp3",
            Encrypted=True,
            ClientToken=naming.client_token(owner, zone=f"volume/{zone}"),
            TagSpecifications=[values.tagging("volume", tags)],
        )
        return values.volume_child(made, region=region)

    async def _allocate(
        self, owner: contract.Owner, tags: Mapping[str, str], *, region: str
    ) -> contract.Child:
        wanted = values.of_operation(owner)
        held = await self._first(
            calls.ADDRESSES, "Addresses", wanted, values.address_child, region=region
        )
        if held is not None:
            return held
        made = await self._account.call(
            calls.ALLOCATE,
            region=region,
            Domain="vpc",
            TagSpecifications=[values.tagging("elastic-ip", tags)],
        )
        return values.address_child({**made, "Tags": _tag_list(tags)}, region=region)

    async def _create_snapshot(
        self, owner: contract.Owner, tags: Mapping[str, str], *, of: str, region: str
    ) -> contract.Child:
        found = await self._account.listed(
            calls.SNAPSHOTS,
            region=region,
            items="Snapshots",
            OwnerIds=["self"],
            Filters=values.of_operation(owner),
        )
        if found:
            return values.snapshot_child(found[0], region=region)
        made = await self._account.call(
            calls.CREATE_SNAPSHOT,
            region=region,
            VolumeId=of,
            TagSpecifications=[values.tagging("snapshot", tags)],
        )
        return values.snapshot_child({**made, "Tags": _tag_list(tags)}, region=region)

    async def _create_image(
        self,
        owner: contract.Owner,
        tags: Mapping[str, str],
        *,
        name: str,
        of: str,
        region: str,
    ) -> contract.Child:
        found = await self._account.listed(
            calls.IMAGES,
            region=region,
            items="Images",
            Owners=["self"],
            Filters=values.of_operation(owner),
        )
        if found:
            return values.image_child(found[0], region=region)
        made = await self._account.call(
            calls.CREATE_IMAGE,
            region=region,
            InstanceId=of,
            Name=name,
            NoReboot=True,
            TagSpecifications=[values.tagging(one, tags) for one in ("image", "snapshot")],
        )
        return values.image_child({**made, "Tags": _tag_list(tags)}, region=region)

    # --- who has them ---------------------------------------------------------------------------

    async def attach(self, child: contract.Child, *, to: str) -> None:
        """Gives the volume or address to the machine; what it has already it keeps."""
        _require(child)
        machines.require(to)
        region = child.region or self._region
        if child.kind is _KIND.ADDRESS:
            await machines.associate(self._account, child.ref, to=to, region=region)
            return
        now = await self._find_volume(child.ref, region=region)
        if now is None or now.attached_to != to:
            found = await self._machines.describe_once(to, region=region)
            await machines.attach_volume(self._account, child.ref, to=found, region=region)

    async def detach(self, child: contract.Child) -> None:
        """Takes it away from whatever has it; nothing has it: done."""
        _require(child)
        region = child.region or self._region
        if child.kind is _KIND.ADDRESS:
            told = await self._account.call(
                calls.ADDRESSES, region=region, Filters=values.filters(allocation_id=child.ref)
            )
            for one in told["Addresses"]:
                if one.get("AssociationId"):
                    await self._account.call(
                        calls.DISASSOCIATE, region=region, AssociationId=one["AssociationId"]
                    )
            return
        now = await self._find_volume(child.ref, region=region)
        if now is not None and now.attached_to is not None:
            await self._account.call(
                calls.DETACH_VOLUME,
                region=region,
                VolumeId=child.ref,
                InstanceId=now.attached_to,
            )

    # --- looking --------------------------------------------------------------------------------

    async def _zone(self, of: str | None, *, region: str) -> str:
        if of:
            found = await self._machines.describe_once(of, region=region)
            return str(found["Placement"]["AvailabilityZone"])
        try:
            network = await placing.default_network(self._account, region=region)
        except placing.Unplaceable as refusal:
            raise outcomes.Fault(
                str(refusal),
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.INPUT,
            ) from refusal
        subnets = await self._account.listed(
            calls.SUBNETS, region=region, items="Subnets", Filters=values.filters(vpc_id=network)
        )
        return min((str(one["AvailabilityZone"]) for one in subnets), default=f"{region}a")

    async def _find_volume(self, ref: str, *, region: str) -> contract.Child | None:
        found = await self._account.listed(
            calls.VOLUMES,
            region=region,
            items="Volumes",
            Filters=values.filters(volume_id=ref),
        )
        there = [one for one in found if one.get("State", "available") in _VOLUME_STATES]
        return values.volume_child(there[0], region=region) if there else None

    async def _find_snapshot(self, ref: str, *, region: str) -> contract.Child | None:
        if not ref.startswith("ami-"):
            return await self._first(
                calls.SNAPSHOTS,
                "Snapshots",
                values.filters(snapshot_id=ref),
                values.snapshot_child,
                region=region,
                OwnerIds=["self"],
            )
        return await self._first(
            calls.IMAGES,
            "Images",
            values.filters(image_id=ref),
            values.image_child,
            region=region,
            Owners=["self"],
        )

    async def _first(
        self,
        row: contract.ApiCall,
        items: str,
        wanted: list[dict[str, Any]],
        made: Callable[..., contract.Child],
        *,
        region: str,
        **further: Any,
    ) -> contract.Child | None:
        found = await self._account.listed(
            row, region=region, items=items, Filters=wanted, **further
        )
        return made(found[0], region=region) if found else None


def snapshots_of(image: Mapping[str, Any]) -> list[str]:
    """The snapshots behind an image; they are billed apart and stay when it goes."""
    mappings = image.get("BlockDeviceMappings") or []
    return [one["Ebs"]["SnapshotId"] for one in mappings if one.get("Ebs", {}).get("SnapshotId")]


_ENDINGS: Final[Mapping[contract.ChildKind, tuple[contract.ApiCall, str]]] = {
    _KIND.DISK: (calls.DELETE_VOLUME, "VolumeId"),
    _KIND.VOLUME: (calls.DELETE_VOLUME, "VolumeId"),
    _KIND.SNAPSHOT: (calls.DELETE_SNAPSHOT, "SnapshotId"),
    _KIND.ADDRESS: (calls.RELEASE, "AllocationId"),
    _KIND.INTERFACE: (calls.DELETE_INTERFACE, "NetworkInterfaceId"),
}


def _require(child: contract.Child) -> None:
    outcomes.require_ref(_REFS[child.kind], child.ref, provider=_NAME, what=child.kind)


def _group(group: Mapping[str, Any], *, region: str) -> contract.Child:
    owner = naming.owner_of(values.tags_of(group))
    return values.group_child(group, region=region, owner=owner)


def _key(key: Mapping[str, Any], *, region: str) -> contract.Child:
    owner = naming.owner_of(values.tags_of(key))
    return values.key_child(str(key["KeyName"]), region=region, owner=owner)


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
