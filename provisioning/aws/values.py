"""From what EC2 says to values of the contract: instances, volumes, addresses, groups.

Pure: dictionaries as botocore gives them in, frozen values out.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import contract, naming

MARK: Final = "enlist-purpose"
SHARED: Final = "no-inbound"
UNTIL: Final = "enlist-ssh-until"

_KIND = contract.ChildKind
_POWERS: Final[Mapping[str, contract.Power]] = {
    "pending": contract.Power.STARTING,
    "running": contract.Power.RUNNING,
    "shutting-down": contract.Power.DELETING,
    "stopping": contract.Power.STOPPING,
    "stopped": contract.Power.OFF,
    "terminated": contract.Power.DELETING,
}
_AMAZONS: Final = "amazon"  # whose the address is that a machine gets by itself


def tags_of(thing: Mapping[str, Any]) -> Mapping[str, str]:
    """The tags of anything as a mapping."""
    return {one["Key"]: one["Value"] for one in thing.get("Tags") or []}


def tagging(kind: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """One tag specification, in an order that never changes: the request is compared by bytes."""
    return {
        "ResourceType": kind,
        "Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)],
    }


def filters(**wanted: str) -> list[dict[str, Any]]:
    """Filters of a reading call; `tag_X` stands for `tag:X`, every `_` after it for `-`."""
    return [
        {"Name": _filter_name(name), "Values": [value]} for name, value in sorted(wanted.items())
    ]


def of_installation(installation: str) -> list[dict[str, Any]]:
    """The filter for everything of one installation."""
    return [{"Name": f"tag:{naming.INSTALLATION}", "Values": [installation]}]


def of_operation(owner: contract.Owner) -> list[dict[str, Any]]:
    """The filter for everything that one operation made."""
    return [
        *of_installation(owner.installation),
        {"Name": f"tag:{naming.OPERATION}", "Values": [owner.operation]},
    ]


def state_of(instance: Mapping[str, Any]) -> str:
    """EC2's own word for what it is doing."""
    return str(instance.get("State", {}).get("Name", ""))


def is_there(instance: Mapping[str, Any]) -> bool:
    """Whether it exists; what is terminated is listed for an hour and costs nothing."""
    return state_of(instance) != "terminated"


def instance_of(found: Mapping[str, Any], *, region: str) -> contract.Instance:
    """A machine with all that hangs on it."""
    tags, raw = tags_of(found), state_of(found)
    interfaces = found.get("NetworkInterfaces") or []
    ref = str(found["InstanceId"])
    owner = naming.owner_of(tags)
    return contract.Instance(
        ref=ref,
        name=tags.get("Name", ""),
        region=region,
        power=_POWERS.get(raw, contract.Power.UNKNOWN),
        raw_state=raw,
        zone=found.get("Placement", {}).get("AvailabilityZone"),
        owner=owner,
        size=str(found.get("InstanceType", "")),
        image=str(found.get("ImageId", "")),
        addresses=_public(found, interfaces),
        private_addresses=tuple(_texts(one.get("PrivateIpAddress") for one in interfaces)),
        created_at=_moment(found.get("LaunchTime")),
        children=tuple(children_of(found, region=region, owner=owner)),
        instance_id=ref,
    )


def children_of(
    found: Mapping[str, Any], *, region: str, owner: contract.Owner | None
) -> Iterable[contract.Child]:
    """What hangs on an instance, as the instance tells it.

    What does not go with it is kept: somebody's data, or a stable address.
    """
    ref = str(found["InstanceId"])
    root = found.get("RootDeviceName")
    for mapping in found.get("BlockDeviceMappings") or []:
        disk = mapping.get("Ebs") or {}
        if disk.get("VolumeId"):
            goes = bool(disk.get("DeleteOnTermination"))
            is_root = mapping.get("DeviceName") == root
            yield contract.Child(
                kind=_KIND.DISK if goes or is_root else _KIND.VOLUME,
                ref=disk["VolumeId"],
                name=str(mapping.get("DeviceName", "")),
                region=region,
                keep=not goes and not is_root,
                attached_to=ref,
                owner=owner,
            )
    for one in found.get("NetworkInterfaces") or []:
        if one.get("NetworkInterfaceId"):
            yield contract.Child(
                kind=_KIND.INTERFACE,
                ref=one["NetworkInterfaceId"],
                region=region,
                keep=one.get("Attachment", {}).get("DeleteOnTermination") is False,
                attached_to=ref,
                owner=owner,
            )
    if owner is None:
        return
    own_group = naming.child_name(owner, _KIND.SECURITY_GROUP)
    for one in found.get("SecurityGroups") or []:
        if one.get("GroupName") == own_group:
            yield group_child(one, region=region, owner=owner, attached_to=ref)
    if found.get("KeyName") == naming.child_name(owner, _KIND.SSH_KEY):
        yield key_child(found["KeyName"], region=region, owner=owner)


def group_child(
    group: Mapping[str, Any],
    *,
    region: str,
    owner: contract.Owner | None,
    attached_to: str | None = None,
) -> contract.Child:
    """A security group of one machine's own."""
    return contract.Child(
        kind=_KIND.SECURITY_GROUP,
        ref=str(group["GroupId"]),
        name=str(group.get("GroupName", "")),
        region=region,
        attached_to=attached_to,
        owner=owner,
    )


def key_child(name: str, *, region: str, owner: contract.Owner | None) -> contract.Child:
    """A person's key, known to EC2 by its name."""
    return contract.Child(kind=_KIND.SSH_KEY, ref=name, name=name, region=region, owner=owner)


def interface_child(found: Mapping[str, Any], *, region: str) -> contract.Child:
    """A network interface."""
    return contract.Child(
        kind=_KIND.INTERFACE,
        ref=str(found["NetworkInterfaceId"]),
        region=region,
        attached_to=(found.get("Attachment") or {}).get("InstanceId"),
        owner=naming.owner_of({**tags_of({"Tags": found.get("TagSet")})}),
        address=found.get("PrivateIpAddress"),
    )


def volume_child(found: Mapping[str, Any], *, region: str) -> contract.Child:
    """What we made as a volume is one, whatever its attachment's flags say; else a disk."""
    attached: Mapping[str, Any] = next(iter(found.get("Attachments") or []), {})
    tags = tags_of(found)
    return contract.Child(
        kind=_KIND.VOLUME if tags.get(MARK) == "volume" else _KIND.DISK,
        ref=str(found["VolumeId"]),
        name=tags.get("Name", ""),
        region=region,
        keep=tags.get(MARK) == "volume",
        attached_to=attached.get("InstanceId"),
        owner=naming.owner_of(tags),
        size_gigabytes=found.get("Size"),
        created_at=_moment(found.get("CreateTime")),
    )


def snapshot_child(found: Mapping[str, Any], *, region: str) -> contract.Child:
    """A volume's snapshot."""
    tags = tags_of(found)
    return contract.Child(
        kind=_KIND.SNAPSHOT,
        ref=str(found["SnapshotId"]),
        name=tags.get("Name", ""),
        region=region,
        keep=True,
        owner=naming.owner_of(tags),
        size_gigabytes=found.get("VolumeSize"),
        created_at=_moment(found.get("StartTime")),
    )


def image_child(found: Mapping[str, Any], *, region: str) -> contract.Child:
    """A machine's snapshot: an image of our own, from which another can be ordered."""
    tags = tags_of(found)
    sizes = [
        one["Ebs"].get("VolumeSize") or 0
        for one in found.get("BlockDeviceMappings") or []
        if one.get("Ebs")
    ]
    return contract.Child(
        kind=_KIND.SNAPSHOT,
        ref=str(found["ImageId"]),
        name=tags.get("Name", ""),
        region=region,
        keep=True,
        owner=naming.owner_of(tags),
        size_gigabytes=sum(sizes) or None,
    )


def address_child(found: Mapping[str, Any], *, region: str) -> contract.Child:
    """A stable address."""
    tags = tags_of(found)
    return contract.Child(
        kind=_KIND.ADDRESS,
        ref=str(found["AllocationId"]),
        name=tags.get("Name", ""),
        region=region,
        keep=True,
        attached_to=found.get("InstanceId") or None,
        owner=naming.owner_of(tags),
        address=found.get("PublicIp"),
    )


def has_stable_address(found: Mapping[str, Any]) -> bool:
    """Whether one of an instance's public addresses was reserved, rather than lent by Amazon."""
    return any(
        (one.get("Association") or {}).get("IpOwnerId") not in (None, "", _AMAZONS)
        for one in found.get("NetworkInterfaces") or []
    )


def _public(found: Mapping[str, Any], interfaces: list[Mapping[str, Any]]) -> tuple[str, ...]:
    told = [found.get("PublicIpAddress")]
    told += [(one.get("Association") or {}).get("PublicIp") for one in interfaces]
    told += [v6.get("Ipv6Address") for one in interfaces for v6 in one.get("Ipv6Addresses") or []]
    return tuple(dict.fromkeys(_texts(told)))


def _texts(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values if value]


def _moment(value: Any) -> datetime.datetime | None:
    return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) else None


def _filter_name(name: str) -> str:
    return f"tag:{name[4:]}" if name.startswith("tag_") else name.replace("_", "-")
