"""DigitalOcean's JSON as our values: droplets, sizes, volumes, snapshots, reserved addresses.

Ownership stands in tags (droplets, volumes, their snapshots) or, where nothing can be tagged at
creation (SSH keys, snapshots of droplets), in the name. A reserved address can carry nothing.

Known limit: what volumes, snapshots and idle addresses cost is an estimate of the day below; the
API tells prices of sizes alone.
"""

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from provisioning import contract, packed_owner

CURRENCY: Final = "USD"
PRICES_AS_OF: Final = datetime.date(2026, 11, 1)
_HOURS_A_MONTH: Final = 672
"""DigitalOcean bills by the hour up to a month of 28 days."""
_VOLUME_MONTHLY_PER_GIGABYTE: Final = Decimal("0.10")
_SNAPSHOT_MONTHLY_PER_GIGABYTE: Final = Decimal("0.06")
_IDLE_ADDRESS_MONTHLY: Final = Decimal("5.00")

_POWER: Final = {
    "new": contract.Power.STARTING,
    "active": contract.Power.RUNNING,
    "off": contract.Power.OFF,
    "archive": contract.Power.OFF,
}


def instance(
    droplet: Mapping[str, Any], *, children: tuple[contract.Child, ...] = ()
) -> contract.Instance:
    """A droplet; its volumes are among the children without being asked for."""
    region = slug(droplet.get("region"))
    networks = droplet.get("networks") or {}
    nets = [*(networks.get("v4") or []), *(networks.get("v6") or [])]
    volumes = tuple(
        contract.Child(
            kind=contract.ChildKind.VOLUME,
            ref=str(ref),
            region=region,
            keep=True,
            attached_to=str(droplet["id"]),
        )
        for ref in droplet.get("volume_ids") or []
        if not any(child.ref == str(ref) for child in children)
    )
    image = droplet.get("image") or {}
    state = str(droplet.get("status", ""))
    return contract.Instance(
        ref=str(droplet["id"]),
        name=str(droplet.get("name", "")),
        region=region,
        power=_POWER.get(state, contract.Power.UNKNOWN),
        raw_state=state,
        instance_id=str(droplet["id"]),
        owner=packed_owner.owner_of_tags(droplet.get("tags") or []),
        size=str(droplet.get("size_slug", "")),
        image=str(image.get("slug") or image.get("id") or ""),
        addresses=tuple(net["ip_address"] for net in nets if net.get("type") == "public"),
        private_addresses=tuple(net["ip_address"] for net in nets if net.get("type") == "private"),
        created_at=moment(droplet.get("created_at")),
        children=(*children, *volumes),
    )


def size(row: Mapping[str, Any]) -> contract.Size:
    """One size with its price; one that cannot be ordered any more is `withdrawn`."""
    price = contract.Price(
        hourly_micros=round(Decimal(str(row["price_hourly"])) * 1_000_000),
        currency=CURRENCY,
        monthly_cap_micros=round(Decimal(str(row["price_monthly"])) * 1_000_000),
    )
    return contract.Size(
        name=str(row["slug"]),
        cores=int(row["vcpus"]),
        memory_bytes=int(row["memory"]) * 2**20,
        disk_bytes=int(row["disk"]) * 10**9,
        architecture="x86_64",
        regions=tuple(str(region) for region in row["regions"]),
        prices={"": price},
        withdrawn=not row["available"],
    )


def volume(row: Mapping[str, Any]) -> contract.Child:
    """A volume: data, so it stays when a machine goes."""
    droplets = row.get("droplet_ids") or []
    gigabytes = int(row.get("size_gigabytes") or 0)
    return contract.Child(
        kind=contract.ChildKind.VOLUME,
        ref=str(row["id"]),
        name=str(row.get("name", "")),
        region=slug(row.get("region")),
        keep=True,
        attached_to=str(droplets[0]) if droplets else None,
        owner=packed_owner.owner_of_tags(row.get("tags") or []),
        size_gigabytes=gigabytes,
        created_at=moment(row.get("created_at")),
        hourly=_estimate(_VOLUME_MONTHLY_PER_GIGABYTE * gigabytes),
    )


def snapshot(row: Mapping[str, Any]) -> contract.Child:
    """A snapshot of a droplet or a volume."""
    gigabytes = Decimal(str(row.get("size_gigabytes") or 0))
    name = str(row.get("name", ""))
    regions = row.get("regions") or [""]
    return contract.Child(
        kind=contract.ChildKind.SNAPSHOT,
        ref=str(row["id"]),
        name=name.partition(" ")[0],
        region=str(regions[0]),
        keep=True,
        owner=packed_owner.owner_of_tags(row.get("tags") or []) or packed_owner.owner_of_line(name),
        size_gigabytes=int(gigabytes.to_integral_value(rounding="ROUND_CEILING")),
        created_at=moment(row.get("created_at")),
        hourly=_estimate(_SNAPSHOT_MONTHLY_PER_GIGABYTE * gigabytes),
    )


def address(row: Mapping[str, Any]) -> contract.Child:
    """A reserved address: costs only while no droplet has it."""
    droplet = row.get("droplet")
    holder = str(droplet["id"]) if isinstance(droplet, dict) and "id" in droplet else None
    return contract.Child(
        kind=contract.ChildKind.ADDRESS,
        ref=str(row["ip"]),
        name=str(row["ip"]),
        region=slug(row.get("region")),
        keep=True,
        attached_to=holder,
        address=str(row["ip"]),
        hourly=_estimate(Decimal(0) if holder else _IDLE_ADDRESS_MONTHLY),
    )


def ssh_key(row: Mapping[str, Any]) -> contract.Child:
    """A person's key as the account keeps it; ours only where we put it there."""
    owner = packed_owner.owner_of_line(str(row.get("name", "")))
    return contract.Child(
        kind=contract.ChildKind.SSH_KEY,
        ref=str(row["id"]),
        name=str(row.get("name", "")),
        keep=owner is None,
        owner=owner,
    )


def firewall(row: Mapping[str, Any]) -> contract.Child:
    """A firewall; ours by its name alone."""
    owner = packed_owner.owner_of_dotted(str(row.get("name", "")))
    return contract.Child(
        kind=contract.ChildKind.SECURITY_GROUP,
        ref=str(row["id"]),
        name=str(row.get("name", "")),
        keep=owner is None,
        owner=owner,
    )


def companions(body: Mapping[str, Any], *, ref: str) -> tuple[contract.Child, ...]:
    """What `destroy_with_associated_resources` lists: it stays and costs when the droplet goes."""
    kinds = (
        ("reserved_ips", contract.ChildKind.ADDRESS, ref),
        ("volumes", contract.ChildKind.VOLUME, ref),
        ("snapshots", contract.ChildKind.SNAPSHOT, None),
        ("volume_snapshots", contract.ChildKind.SNAPSHOT, None),
    )
    return tuple(
        contract.Child(
            kind=kind,
            ref=str(row["id"]),
            name=str(row.get("name", "")),
            keep=True,
            attached_to=holder,
        )
        for key, kind, holder in kinds
        for row in body.get(key) or []
    )


def slug(region: Any) -> str:
    """The short name of a region, which is told whole."""
    return str(region.get("slug", "")) if isinstance(region, dict) else ""


def moment(text: Any) -> datetime.datetime | None:
    """A time as the API writes it; None where it is none."""
    if not isinstance(text, str):
        return None
    try:
        read = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return read if read.tzinfo is not None else read.replace(tzinfo=datetime.UTC)


def _estimate(monthly: Decimal) -> contract.Price:
    return contract.Price(
        hourly_micros=round(monthly * 1_000_000 / _HOURS_A_MONTH),
        currency=CURRENCY,
        as_of=PRICES_AS_OF,
    )
