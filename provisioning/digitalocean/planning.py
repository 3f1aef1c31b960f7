"""What can be known before an order is sent: the account, the offer, and whether a request fits.

Known limit: which writes a token may do cannot be asked and cannot be tried without writing; those
scopes are named as unproved.
"""

import re
from typing import Any, Final

from provisioning import contract, naming, outcomes, wide_open
from provisioning.digitalocean import calls, children, errors, reading
from provisioning.digitalocean import client as client_kit

_PROBES: Final = (
    (calls.LIST, "/v2/droplets"),
    (calls.VOLUMES, "/v2/volumes"),
    (calls.SNAPSHOTS, "/v2/snapshots"),
    (calls.ADDRESSES, "/v2/reserved_ips"),
    (calls.KEYS, "/v2/account/keys"),
    (calls.SIZES, "/v2/sizes"),
    (calls.IMAGES, "/v2/images"),
)
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LONGEST_NAME: Final = naming.LONGEST_NAME


async def validate(client: client_kit.Client) -> contract.Validation:
    """The account behind the token, the reads that it lacks, and the room that is left."""
    account = (await client.send(calls.ACCOUNT, "/v2/account"))["account"]
    missing: list[str] = []
    in_use: int | None = None
    for call, path in _PROBES:
        try:
            body = await client.send(call, path, params={"per_page": 1})
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.RIGHTS or call.right is None:
                raise
            missing.append(call.right)
            continue
        if call is calls.LIST:
            in_use = int(body["meta"]["total"])
    warnings = []
    if account["status"] != "active":
        said = account.get("status_message") or "no reason given"
        warnings.append(f"The account is {account['status']}: {said}.")
    if not account["email_verified"]:
        warnings.append("The account's e-mail address is not verified; orders may be refused.")
    room = None if in_use is None else max(0, int(account["droplet_limit"]) - in_use)
    if room == 0:
        warnings.append(
            f"All {account['droplet_limit']} droplets of the account are in use; "
            f"raise the limit: {errors.RAISE_LIMIT}"
        )
    team = account.get("team") or {}
    return contract.Validation(
        account=str(team.get("uuid") or account["uuid"]),
        principal=str(account["email"]),
        missing=tuple(missing),
        unproved=tuple(
            sorted({call.right for call in calls.ALL if call.changes and call.right is not None})
        ),
        room=room,
        warnings=tuple(warnings),
        details={"droplet_limit": int(account["droplet_limit"]), "in_use": in_use},
    )


async def offer(client: client_kit.Client) -> contract.Offer:
    """Sizes and distributions as they are now."""
    sizes = tuple(map(reading.size, await client.every(calls.SIZES, "/v2/sizes", "sizes")))
    images = await client.every(calls.IMAGES, "/v2/images", "images", type="distribution")
    return contract.Offer(
        regions=tuple(sorted({region for size in sizes for region in size.regions})),
        sizes=sizes,
        images=tuple(sorted(str(row["slug"]) for row in images if row.get("slug"))),
    )


async def plan(client: client_kit.Client, request: contract.Request) -> contract.Plan:
    """Every reason against this request that can be seen from here."""
    refusals = _of_the_wish(request)
    sizes = tuple(map(reading.size, await client.every(calls.SIZES, "/v2/sizes", "sizes")))
    size = next((one for one in sizes if one.name == request.size), None)
    if size is None or size.withdrawn:
        refusals.append(f"DigitalOcean does not sell the size {request.size} any more.")
    elif request.region not in size.regions:
        has = ", ".join(size.regions) or "no region"
        refusals.append(
            f"The size {request.size} cannot be had in {request.region} now, only in: {has}."
        )
    refusals.extend(await _of_the_image(client, request))
    refusals.extend(await _of_the_children(client, request))
    account = (await client.send(calls.ACCOUNT, "/v2/account"))["account"]
    listed = await client.send(calls.LIST, "/v2/droplets", params={"per_page": 1})
    limit, in_use = int(account["droplet_limit"]), int(listed["meta"]["total"])
    warnings = wide_open.warnings(request, provider="DigitalOcean")
    if in_use >= limit:
        warnings.append(
            f"The account's {limit} droplets are all in use; "
            f"delete one or raise the limit: {errors.RAISE_LIMIT}"
        )
    return contract.Plan(
        refusals=tuple(refusals),
        warnings=tuple(warnings),
        price=None if size is None else size.prices[""],
    )


def _of_the_wish(request: contract.Request) -> list[str]:
    refusals = wide_open.refusals(request, provider="DigitalOcean")
    if len(request.name) > _LONGEST_NAME:
        refusals.append(f"The name {request.name} is longer than {_LONGEST_NAME} characters.")
    if not request.public_ipv4:
        refusals.append("DigitalOcean has no machines without an IPv4 address; leave it on.")
    if request.disk_gigabytes is not None:
        refusals.append("At DigitalOcean the size decides the disk; leave --disk out.")
    if request.subnet is not None:
        refusals.append("DigitalOcean has no subnets; name a VPC with --network.")
    if request.addresses:
        refusals.append(
            "DigitalOcean gives a reserved address only to a machine that is there already; "
            "order without it, then: enlist cloud addresses attach."
        )
    return refusals


async def _of_the_image(client: client_kit.Client, request: contract.Request) -> list[str]:
    if not _IMAGE.fullmatch(request.image):
        return [f"DigitalOcean has no image {request.image}."]
    try:
        body = await children.found(client, calls.IMAGE, f"/v2/images/{request.image}")
    except outcomes.Fault as fault:
        if fault.outcome is not outcomes.Outcome.NOT_DONE_PERMANENT:
            raise
        body = None
    if body is None:
        return [f"DigitalOcean has no image {request.image}."]
    regions: list[Any] = body["image"].get("regions") or []
    if request.region not in regions:
        return [f"The image {request.image} is not in {request.region}, only in: {regions}."]
    return []


async def _of_the_children(client: client_kit.Client, request: contract.Request) -> list[str]:
    refusals = []
    wanted = [
        *((contract.ChildKind.VOLUME, ref) for ref in request.volumes),
        *((contract.ChildKind.ADDRESS, ref) for ref in request.addresses),
    ]
    for kind, ref in wanted:
        child = await children.describe(client, contract.Child(kind=kind, ref=ref))
        if child is None:
            refusals.append(f"There is no {kind} {ref}.")
        elif child.region != request.region:
            refusals.append(
                f"The {kind} {ref} is in {child.region}, the machine would be in {request.region}."
            )
    return refusals
