"""Whether an order can work at Hetzner Cloud, found before anything is bought.

Known limit: whether something is sold out, and whether a limit of the project stands in the way,
only the order itself shows; there is no call that tells.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, naming
from provisioning.hetzner import api as api_kit
from provisioning.hetzner import calls, children, labels, reading, way_in

MOST_USER_DATA_BYTES: Final = 32 * 1024
_ARCHITECTURES: Final = {"x86_64": "x86", "aarch64": "arm"}


@dataclasses.dataclass(slots=True)
class _Findings:
    refusals: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


async def plan(
    api: api_kit.Api, request: contract.Request, *, offer: contract.Offer
) -> contract.Plan:
    """What stands against this request, and what it costs."""
    found = _Findings()
    _look_at_words(request, found)
    _look_at_addresses(request, found)
    size = _size(request, offer, found)
    if size is not None:
        await _look_at_image(api, request, size, found)
    network = await _network(api, request, found)
    await _look_at_places(api, request, found)
    return contract.Plan(
        refusals=tuple(found.refusals),
        warnings=tuple(found.warnings),
        price=None if size is None else _price(request, size, offer),
        settled=None if network is None else dataclasses.replace(request, network=network),
    )


def _look_at_words(request: contract.Request, found: _Findings) -> None:
    if len(request.name) > naming.LONGEST_NAME:
        found.refusals.append(
            f"The name {request.name} has {len(request.name)} characters, at most "
            f"{naming.LONGEST_NAME} are taken."
        )
    strange = labels.strange(request.owner)
    if strange:
        found.refusals.append(f"No label can carry: {', '.join(strange)}.")
    if len(request.first_boot.encode()) > MOST_USER_DATA_BYTES:
        found.refusals.append(f"First-boot data is longer than {MOST_USER_DATA_BYTES} bytes.")
    if request.disk_gigabytes is not None:
        found.refusals.append("A machine's disk comes with its size here; add a volume instead.")
    if request.subnet is not None:
        found.refusals.append("A network's subnet is not chosen here; name the network alone.")
    if request.ssh is not None:
        _look_at_ssh(request.ssh, found)


def _look_at_addresses(request: contract.Request, found: _Findings) -> None:
    if not (request.public_ipv4 or request.public_ipv6 or request.network):
        found.refusals.append("Without any address the machine reaches nobody.")
    if not request.public_ipv4:
        found.warnings.append(
            "Without IPv4 the machine reaches only what has IPv6; the Platform must have it too."
        )


def _look_at_ssh(ssh: contract.Ssh, found: _Findings) -> None:
    try:
        way_in.fingerprint(ssh.public_key)
    except ValueError as fault:
        found.refusals.append(str(fault))
    if len(ssh.sources) > way_in.MOST_SOURCES:
        found.refusals.append(f"At most {way_in.MOST_SOURCES} networks may reach port 22.")


def _size(
    request: contract.Request, offer: contract.Offer, found: _Findings
) -> contract.Size | None:
    if request.region not in offer.regions:
        found.refusals.append(
            f"There is no location {request.region}, but: {', '.join(offer.regions)}."
        )
    size = next((one for one in offer.sizes if one.name == request.size), None)
    if size is None:
        found.refusals.append(f"There is no server type {request.size} (any more).")
        return None
    if size.withdrawn:
        found.refusals.append(f"The server type {size.name} is withdrawn.")
    elif request.region not in size.regions:
        found.refusals.append(
            f"The server type {size.name} is not to be had in {request.region}, but in: "
            f"{', '.join(size.regions)}."
        )
    elif size.withdrawn_after is not None:
        found.warnings.append(f"{size.name} is withdrawn after {size.withdrawn_after}.")
    return size


async def _look_at_image(
    api: api_kit.Api, request: contract.Request, size: contract.Size, found: _Findings
) -> None:
    if request.image.isdecimal():
        told = await api.get_or_none(calls.IMAGE, f"/images/{request.image}")
        images: list[Mapping[str, Any]] = [] if told is None else [told["image"]]
    else:
        params = {
            "name": request.image,
            "architecture": _ARCHITECTURES.get(size.architecture, size.architecture),
        }
        images = list(await api.pages(calls.IMAGES, "/images", of="images", params=params))
    if not images:
        found.refusals.append(f"There is no image {request.image} for {size.architecture}.")
        return
    image = images[0]
    if image.get("deleted") or image["status"] != "available":
        found.refusals.append(f"The image {request.image} cannot be used ({image['status']}).")
    if _ARCHITECTURES.get(size.architecture) != image["architecture"]:
        found.refusals.append(
            f"The image {request.image} is for {image['architecture']}, {size.name} is "
            f"{size.architecture}."
        )
    if image["disk_size"] > size.disk_bytes // 10**9:
        found.refusals.append(
            f"The image {request.image} needs {image['disk_size']} GB of disk, {size.name} has "
            f"{size.disk_bytes // 10**9}."
        )
    if image.get("deprecated"):
        found.warnings.append(f"The image {request.image} is deprecated.")


async def _network(api: api_kit.Api, request: contract.Request, found: _Findings) -> str | None:
    """The id of the network, where the request has only its name."""
    if request.network is None or request.network.isdecimal():
        return None
    told = await api.pages(
        calls.NETWORKS, "/networks", of="networks", params={"name": request.network}
    )
    if not told:
        found.refusals.append(f"The project has no network named {request.network}.")
        return None
    return str(told[0]["id"])


async def _look_at_places(api: api_kit.Api, request: contract.Request, found: _Findings) -> None:
    """Volumes and addresses live in one location, and serve machines there alone."""
    kinds = contract.ChildKind
    wanted = [(kinds.VOLUME, ref) for ref in request.volumes]
    wanted += [(kinds.ADDRESS, ref) for ref in request.addresses]
    for kind, ref in wanted:
        child = await children.describe(api, contract.Child(kind=kind, ref=ref))
        if child is None:
            found.refusals.append(f"There is no {kind} {ref}.")
        elif child.region != request.region:
            found.refusals.append(
                f"The {kind} {child.name} is in {child.region}, the machine is asked for in "
                f"{request.region}."
            )
        elif child.attached_to is not None:
            found.refusals.append(f"The {kind} {child.name} is in use by {child.attached_to}.")


def _price(
    request: contract.Request, size: contract.Size, offer: contract.Offer
) -> contract.Price | None:
    machine = size.prices.get(request.region) or size.prices.get("")
    if machine is None:
        return None
    extra = offer.address_price if request.public_ipv4 and not request.addresses else None
    if extra is None:
        return machine
    caps = (machine.monthly_cap_micros, extra.monthly_cap_micros)
    return dataclasses.replace(
        machine,
        hourly_micros=machine.hourly_micros + extra.hourly_micros,
        monthly_cap_micros=None if None in caps else sum(cap for cap in caps if cap is not None),
    )


def location_names(told: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """Every location in which one of these server types is or was to be had."""
    return tuple(dict.fromkeys(str(place["name"]) for one in told for place in one["locations"]))


def address_price(pricing: Mapping[str, Any]) -> dict[str, contract.Price]:
    """What a primary IPv4 address costs, by location."""
    currency = str(pricing["currency"])
    return {
        str(one["location"]): reading.price(one, currency=currency)
        for kind in pricing["primary_ips"]
        if kind["type"] == "ipv4"
        for one in kind["prices"]
    }
