"""Where a machine goes: which image, which subnet and so which zone, before anything is written.

EC2 keeps client tokens per zone and a public image's newest build changes, so an order is made
exact first: with the image's id, one subnet, and the token of that subnet's zone. Attempts take
turns through the zones, so that one that is sold out is followed by another.

Known limit: a shared network (of another account) must be named by its subnet.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioning import contract, naming, outcomes
from provisioning.aws import account as account_kit
from provisioning.aws import calls, values

ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "x86_64", "arm64": "aarch64"}
_BUILDS: Final[Mapping[str, str]] = {"x86_64": "amd64", "arm64": "arm64"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Who publishes a public image, and how its builds are called."""

    publisher: str
    pattern: str


FAMILIES: Final[Mapping[str, Family]] = {
    "debian-12": Family(publisher="136693071363", pattern="debian-12-{build}-*"),
    "debian-13": Family(publisher="136693071363", pattern="debian-13-{build}-*"),
    "ubuntu-24.04": Family(
        publisher="099720109477",
        pattern="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{build}-server-*",
    ),
}


class Unplaceable(Exception):
    """The order cannot work here. The message is a sentence with what to name or make instead."""


def is_exact(request: contract.Request) -> bool:
    """Whether nothing is left open."""
    return request.image.startswith("ami-") and bool(request.subnet) and bool(request.zone)


async def settle(account: account_kit.Account, request: contract.Request) -> contract.Request:
    """The request with image, subnet, zone and the zone's token; the same one where it is exact.

    Raises:
        Unplaceable: image, size, network, volume or address do not fit.
        outcomes.Fault: EC2 could not be asked.
    """
    if is_exact(request):
        return request
    if request.image.startswith("ami-"):
        image = request.image
    else:
        build = await _build_of(account, request)
        image = str(
            (await newest(account, request.image, build=build, region=request.region))["ImageId"]
        )
    subnet = await _subnet(account, request)
    zone = str(subnet["AvailabilityZone"])
    return dataclasses.replace(
        request,
        image=image,
        subnet=str(subnet["SubnetId"]),
        network=str(subnet["VpcId"]),
        zone=zone,
        client_token=naming.client_token(request.owner, zone=zone),
    )


async def newest(
    account: account_kit.Account, name: str, *, build: str, region: str
) -> Mapping[str, Any]:
    """The newest image of a family; raises `Unplaceable`."""
    family = FAMILIES.get(name)
    if family is None:
        raise Unplaceable(
            f"{name!r} is no image here: name one of {', '.join(FAMILIES)}, or an id like ami-…"
            + (" (a volume's snapshot cannot be booted)." if name.startswith("snap-") else ".")
        )
    pattern = family.pattern.format(build=_BUILDS.get(build, build))
    found = await account.listed(
        calls.IMAGES,
        region=region,
        items="Images",
        Owners=[family.publisher],
        Filters=values.filters(name=pattern, state="available"),
    )
    if not found:
        raise Unplaceable(f"{region} has no image of the family {name} for {build}.")
    return max(found, key=lambda one: (str(one.get("CreationDate", "")), str(one["ImageId"])))


async def image_of(account: account_kit.Account, image: str, *, region: str) -> Mapping[str, Any]:
    """What EC2 says of this image; raises `Unplaceable` where it is not there for us."""
    found = await account.listed(calls.IMAGES, region=region, items="Images", ImageIds=[image])
    if not found:
        raise Unplaceable(f"{region} has no image {image} that this account may use.")
    return dict(found[0])


async def default_network(account: account_kit.Account, *, region: str) -> str:
    """The default VPC of the region; raises `Unplaceable` where it was deleted."""
    found = await account.listed(
        calls.VPCS, region=region, items="Vpcs", Filters=values.filters(is_default="true")
    )
    if not found:
        raise Unplaceable(
            f"{region} has no default VPC. Name one with --network (and --subnet), or make it: "
            f"aws ec2 create-default-vpc --region {region}"
        )
    return str(found[0]["VpcId"])


async def _build_of(account: account_kit.Account, request: contract.Request) -> str:
    try:
        told = await account.call(calls.TYPES, region=request.region, InstanceTypes=[request.size])
    except outcomes.Fault as fault:
        if fault.topic is not outcomes.Topic.CATALOGUE:
            raise
        raise Unplaceable(f"{request.region} has no size {request.size}.") from fault
    for one in told.get("InstanceTypes", []):
        for architecture in one.get("ProcessorInfo", {}).get("SupportedArchitectures", []):
            if architecture in _BUILDS:
                return str(architecture)
    raise Unplaceable(f"{request.region} has no size {request.size} that runs Linux on 64 bits.")


async def _subnet(account: account_kit.Account, request: contract.Request) -> Mapping[str, Any]:
    region = request.region
    if request.subnet:
        found = await account.listed(
            calls.SUBNETS,
            region=region,
            items="Subnets",
            Filters=values.filters(subnet_id=request.subnet),
        )
        where = f"the subnet {request.subnet}"
    else:
        network = request.network or await default_network(account, region=region)
        wanted = values.filters(vpc_id=network, state="available")
        found = await account.listed(calls.SUBNETS, region=region, items="Subnets", Filters=wanted)
        where = f"a subnet of {network}"
    if request.network and any(one["VpcId"] != request.network for one in found):
        raise Unplaceable(f"The subnet {request.subnet} is not in the network {request.network}.")
    if not found:
        raise Unplaceable(f"{region} has no {where}: name another with --network and --subnet.")
    return await _choose(account, request, found)


async def _choose(
    account: account_kit.Account,
    request: contract.Request,
    subnets: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    """The attempt's turn among those that can take the machine and all that is to hang on it."""
    told = await account.listed(
        calls.TYPE_OFFERINGS,
        region=request.region,
        items="InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [request.size]}],
    )
    offered = {one["Location"] for one in told}
    needed = await _zones_of_volumes(account, request)
    await _check_addresses(account, request)
    fitting = [
        one
        for one in subnets
        if one["AvailabilityZone"] in offered
        and one.get("AvailableIpAddressCount", 1) > 0
        and request.zone in (None, one["AvailabilityZone"])
        and all(zone == one["AvailabilityZone"] for zone in needed.values())
    ]
    if fitting:
        ordered = sorted(fitting, key=lambda one: (one["AvailabilityZone"], one["SubnetId"]))
        return ordered[(request.owner.attempt - 1) % len(ordered)]
    zones = ", ".join(sorted({str(one["AvailabilityZone"]) for one in subnets}))
    reasons = [f"the subnets are in {zones}"]
    if not offered & {one["AvailabilityZone"] for one in subnets}:
        reasons.append(f"{request.size} is offered in {', '.join(sorted(offered)) or 'no zone'}")
    reasons += [f"the volume {ref} is in {zone}" for ref, zone in needed.items()]
    if request.zone:
        reasons.append(f"the zone asked for is {request.zone}")
    raise Unplaceable(f"No subnet fits: {'; '.join(reasons)}.")


async def _zones_of_volumes(
    account: account_kit.Account, request: contract.Request
) -> Mapping[str, str]:
    zones: dict[str, str] = {}
    for ref in request.volumes:
        found = await account.listed(
            calls.VOLUMES,
            region=request.region,
            items="Volumes",
            Filters=values.filters(volume_id=ref),
        )
        if not found:
            raise Unplaceable(
                f"The volume {ref} is not in {request.region}, where the machine is to be."
            )
        zones[ref] = str(found[0]["AvailabilityZone"])
    return zones


async def _check_addresses(account: account_kit.Account, request: contract.Request) -> None:
    for ref in request.addresses:
        told = await account.call(
            calls.ADDRESSES,
            region=request.region,
            Filters=values.filters(allocation_id=ref),
        )
        if not told.get("Addresses"):
            raise Unplaceable(
                f"The address {ref} is not in {request.region}, where the machine is to be."
            )
