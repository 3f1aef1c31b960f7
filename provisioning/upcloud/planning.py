"""What can be known before an order is sent: the account, the offer, and whether a request fits.

Known limit: a sub-account may see only a part of the account, and nothing in a list says so; the
check names the permissions it could try, and those it could not.
"""

import dataclasses
import re
from typing import Any, Final

from provisioning import contract, outcomes, wide_open
from provisioning.upcloud import calls, children, errors, reading
from provisioning.upcloud import client as client_kit

LOW_CREDIT_HUNDREDTHS: Final = 1000
"""Ten of the currency's units: less is gone within a day of a middling server."""

_PROBES: Final = (
    (calls.LIST, "/1.3/server"),
    (calls.STORAGES, "/1.3/storage/private"),
    (calls.ADDRESSES, "/1.3/ip_address"),
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DISTRIBUTION: Final = re.compile(r"(debian|ubuntu)-([0-9.]+)")


async def validate(client: client_kit.Client) -> contract.Validation:
    """The account, its credit, the permissions it lacks, and the room that is left."""
    account = client_kit.within(
        calls.ACCOUNT, await client.send(calls.ACCOUNT, "/1.3/account"), "account"
    )
    missing: list[str] = []
    cores: int | None = None
    for call, path in _PROBES:
        try:
            body = await client.send(call, path, params={"limit": client_kit.PAGE, "offset": 0})
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.RIGHTS or call.right is None:
                raise
            missing.append(call.right)
            continue
        if call is calls.LIST:
            cores = sum(int(one.get("core_number") or 0) for one in body["servers"]["server"])
    limits: dict[str, Any] = account.get("resource_limits") or {}
    credit = float(account.get("credits") or 0)
    warnings = []
    if credit < LOW_CREDIT_HUNDREDTHS:
        warnings.append(
            f"The account has {credit / 100:.2f} left; without credit UpCloud turns all its "
            f"machines off: {errors.ADD_CREDIT}"
        )
    room = None
    if cores is not None and "cores" in limits:
        room = max(0, int(limits["cores"]) - cores)
    return contract.Validation(
        account=str(account["username"]),
        principal=str(account["username"]),
        missing=tuple(missing),
        unproved=tuple(
            sorted({call.right for call in calls.ALL if call.changes and call.right is not None})
        ),
        room=room,
        warnings=tuple(warnings),
        details={"credits": credit, "limits": limits, "cores_in_use": cores},
    )


async def offer(client: client_kit.Client, *, currency: str) -> contract.Offer:
    """Plans with prices, zones open to all, and templates that carry cloud-init."""
    zones, sizes, prices = await _plans(client, currency=currency)
    names = sorted(str(row["title"]) for row in await _templates(client))
    address = next((one["ipv4_address"] for one in prices if "ipv4_address" in one), None)
    return contract.Offer(
        regions=zones,
        sizes=sizes,
        images=tuple(names),
        address_price=(None if address is None else reading.price_of(address, currency=currency)),
    )


async def plan(
    client: client_kit.Client, request: contract.Request, *, currency: str
) -> contract.Plan:
    """Every reason against this request that can be seen from here.

    Settled are the image, by its id, and the disk, which the plan's price includes.
    """
    refusals = _of_the_wish(request)
    zones, sizes, _ = await _plans(client, currency=currency)
    if request.region not in zones:
        refusals.append(f"UpCloud has no zone {request.region}, only: {', '.join(zones)}.")
    size = next((one for one in sizes if one.name == request.size), None)
    if size is None or size.withdrawn:
        refusals.append(f"UpCloud does not sell the plan {request.size} any more.")
    image = await find_image(client, request.image)
    if image is None:
        refusals.append(f"UpCloud has no template {request.image} that carries cloud-init.")
    for ref in request.volumes:
        volume = await children.describe(
            client, contract.Child(kind=contract.ChildKind.VOLUME, ref=ref)
        )
        if volume is None:
            refusals.append(f"There is no volume {ref}.")
        elif volume.region != request.region:
            refusals.append(
                f"The volume {ref} is in {volume.region}, the machine would be in {request.region}."
            )
    if image is None or size is None:
        return contract.Plan(refusals=tuple(refusals))
    settled = dataclasses.replace(
        request,
        image=image,
        disk_gigabytes=request.disk_gigabytes or size.disk_bytes // 10**9,
    )
    return contract.Plan(
        refusals=tuple(refusals),
        warnings=(
            *(() if request.public_ipv4 else (_NO_IPV4,)),
            *wide_open.warnings(request, provider="UpCloud"),
        ),
        price=size.prices.get(request.region),
        settled=settled,
    )


async def find_image(client: client_kit.Client, wanted: str) -> str | None:
    """The id of a template: given as it is, by its title, or as `debian-12`."""
    if _UUID.fullmatch(wanted):
        return wanted
    match = _DISTRIBUTION.fullmatch(wanted)
    beginnings = {"debian": "Debian GNU/Linux", "ubuntu": "Ubuntu Server"}
    start = f"{beginnings[match[1]]} {match[2]} " if match else None
    for row in await _templates(client):
        title = str(row["title"])
        if title == wanted or (start is not None and f"{title} ".startswith(start)):
            return str(row["uuid"])
    return None


_NO_IPV4: Final = (
    "Without IPv4 the machine reaches only what has IPv6; the Platform must have it too."
)


def is_address(first_boot: str) -> bool:
    """Whether UpCloud would take this for the address of the data and fetch it."""
    return first_boot.lstrip("\ufeff \t\r\n").lower().startswith(("http:", "https:"))


async def _plans(
    client: client_kit.Client, *, currency: str
) -> tuple[tuple[str, ...], tuple[contract.Size, ...], list[dict[str, Any]]]:
    told_zones = await client.send(calls.ZONES, "/1.3/zone")
    told_plans = await client.send(calls.PLANS, "/1.3/plan")
    told_prices = await client.send(calls.PRICES, "/1.3/price")
    rows = client_kit.within(calls.ZONES, told_zones, "zones")["zone"]
    zones = tuple(sorted(str(one["id"]) for one in rows if one.get("public") == "yes"))
    plans = client_kit.within(calls.PLANS, told_plans, "plans")["plan"]
    prices = client_kit.within(calls.PRICES, told_prices, "prices")["zone"]
    return zones, reading.sizes(plans, prices, zones=zones, currency=currency), prices


async def _templates(client: client_kit.Client) -> list[dict[str, Any]]:
    rows = await client.every(calls.TEMPLATES, "/1.3/storage/template", ("storages", "storage"))
    return [row for row in rows if row.get("template_type", "cloud-init") == "cloud-init"]


def _of_the_wish(request: contract.Request) -> list[str]:
    refusals = wide_open.refusals(request, provider="UpCloud")
    if is_address(request.first_boot):
        refusals.append("First-boot data that begins with an address would be fetched by UpCloud.")
    if request.network is not None or request.subnet is not None:
        refusals.append("Private networks of UpCloud are not offered here; leave --network out.")
    if request.addresses:
        refusals.append(
            "UpCloud gives a floating address only to a machine that is there already; "
            "order without it, then: enlist cloud addresses attach."
        )
    if not request.public_ipv4 and not request.public_ipv6:
        refusals.append("A machine without any public address could not reach the Platform.")
    return refusals
