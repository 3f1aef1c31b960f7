"""Hetzner Cloud's JSON as the contract's values. Pure: nothing is called here.

Amounts there are euros by the hour and by the month, as decimal text; `net` is taken, since the
tax is no price of the provider's.
"""

import datetime
import decimal
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import contract, naming

_POWER: Final[Mapping[str, contract.Power]] = {
    "initializing": contract.Power.STARTING,
    "starting": contract.Power.STARTING,
    "running": contract.Power.RUNNING,
    "stopping": contract.Power.STOPPING,
    "off": contract.Power.OFF,
    "deleting": contract.Power.DELETING,
    "migrating": contract.Power.RUNNING,
    "rebuilding": contract.Power.STARTING,
}
_ARCHITECTURES: Final = {"x86": "x86_64", "arm": "aarch64"}
_GIBIBYTE: Final = 2**30
_GIGABYTE: Final = 10**9
_HOURS_A_MONTH: Final = 730  # a year's hours by twelve, for what is priced by the month alone

Json = Mapping[str, Any]


def instance(told: Json, *, children: Iterable[contract.Child] = ()) -> contract.Instance:
    """A server."""
    public: Json = told.get("public_net") or {}
    addresses = [public[kind]["ip"] for kind in ("ipv4", "ipv6") if public.get(kind)]
    status = str(told["status"])
    return contract.Instance(
        ref=str(told["id"]),
        instance_id=str(told["id"]),
        name=str(told["name"]),
        region=location_of(told),
        power=_POWER.get(status, contract.Power.UNKNOWN),
        raw_state=status,
        owner=naming.owner_of(told.get("labels") or {}),
        size=str(told["server_type"]["name"]),
        image=image_name(told["image"]) if told.get("image") else "",
        addresses=tuple(str(one).partition("/")[0] for one in addresses),
        private_addresses=tuple(
            str(one["ip"]) for one in told.get("private_net") or () if one.get("ip")
        ),
        created_at=moment(told.get("created")),
        children=tuple(children),
    )


def primary_address_ids(told: Json) -> list[int]:
    """The ids of the primary addresses that a server has."""
    public: Json = told.get("public_net") or {}
    return [
        int(public[kind]["id"])
        for kind in ("ipv4", "ipv6")
        if public.get(kind) and public[kind].get("id")
    ]


def volumes_of(told: Json) -> list[contract.Child]:
    """The volumes that hang on a server: data, which goes with no machine."""
    return [
        contract.Child(
            kind=contract.ChildKind.VOLUME,
            ref=str(one),
            region=location_of(told),
            keep=True,
            attached_to=str(told["id"]),
        )
        for one in told.get("volumes") or ()
    ]


def volume(told: Json, *, monthly_a_gigabyte: contract.Price | None = None) -> contract.Child:
    """A volume."""
    gigabytes = int(told["size"])
    return contract.Child(
        kind=contract.ChildKind.VOLUME,
        ref=str(told["id"]),
        name=str(told["name"]),
        region=location_of(told),
        keep=True,
        attached_to=_attached(told.get("server")),
        owner=naming.owner_of(told.get("labels") or {}),
        size_gigabytes=gigabytes,
        created_at=moment(told.get("created")),
        hourly=_times(monthly_a_gigabyte, gigabytes),
    )


def snapshot(told: Json, *, monthly_a_gigabyte: contract.Price | None = None) -> contract.Child:
    """A snapshot; its size is known once it is finished."""
    size = told.get("image_size")
    gigabytes = None if size is None else decimal.Decimal(str(size))
    return contract.Child(
        kind=contract.ChildKind.SNAPSHOT,
        ref=str(told["id"]),
        name=str(told.get("description") or told.get("name") or ""),
        keep=True,
        owner=naming.owner_of(told.get("labels") or {}),
        size_gigabytes=None
        if gigabytes is None
        else int(gigabytes.to_integral_value(decimal.ROUND_UP)),
        created_at=moment(told.get("created")),
        hourly=None if gigabytes is None else _times(monthly_a_gigabyte, gigabytes),
    )


def address(told: Json, *, prices: Mapping[str, contract.Price] | None = None) -> contract.Child:
    """A primary address: it goes with its server if it was made with it, else it stays."""
    return contract.Child(
        kind=contract.ChildKind.ADDRESS,
        ref=str(told["id"]),
        name=str(told["name"]),
        region=location_of(told),
        keep=not told["auto_delete"],
        attached_to=_attached(told.get("assignee_id")),
        owner=naming.owner_of(told.get("labels") or {}),
        address=str(told["ip"]),
        created_at=moment(told.get("created")),
        hourly=(prices or {}).get(location_of(told)) if told["type"] == "ipv4" else None,
    )


def ssh_key(told: Json) -> contract.Child:
    """A person's public key, as the project holds it."""
    owner = naming.owner_of(told.get("labels") or {})
    return contract.Child(
        kind=contract.ChildKind.SSH_KEY,
        ref=str(told["id"]),
        name=str(told["name"]),
        keep=owner is None,
        owner=owner,
        created_at=moment(told.get("created")),
    )


def firewall(told: Json) -> contract.Child:
    """A firewall."""
    owner = naming.owner_of(told.get("labels") or {})
    servers = [
        one["server"]["id"]
        for one in told.get("applied_to") or ()
        if one.get("type") == "server" and one.get("server")
    ]
    return contract.Child(
        kind=contract.ChildKind.SECURITY_GROUP,
        ref=str(told["id"]),
        name=str(told["name"]),
        keep=owner is None,
        attached_to=_attached(servers[0]) if servers else None,
        owner=owner,
        created_at=moment(told.get("created")),
    )


def size(told: Json, *, currency: str, now: datetime.datetime) -> contract.Size:
    """A server type, where it can be had now, and what it costs there."""
    ends = {str(one["name"]): _end(one.get("deprecation")) for one in told["locations"]}
    here = [name for name, end in ends.items() if end is None or end > now]
    coming = [end for name in here if (end := ends[name]) is not None]
    return contract.Size(
        name=str(told["name"]),
        cores=int(told["cores"]),
        memory_bytes=int(decimal.Decimal(str(told["memory"])) * _GIBIBYTE),
        disk_bytes=int(told["disk"]) * _GIGABYTE,
        architecture=_ARCHITECTURES.get(told["architecture"], str(told["architecture"])),
        regions=tuple(here),
        prices={str(one["location"]): price(one, currency=currency) for one in told["prices"]},
        nested_virt=False,  # not offered, on dedicated cores neither
        withdrawn=not here,
        withdrawn_after=min(coming).date() if coming else None,
    )


def price(told: Json, *, currency: str) -> contract.Price:
    """An hourly price with the month's cap."""
    monthly = told.get("price_monthly")
    hourly = told.get("price_hourly")
    cap = None if monthly is None else micros(monthly["net"])
    return contract.Price(
        hourly_micros=micros(hourly["net"])
        if hourly is not None
        else -(-(cap or 0) // _HOURS_A_MONTH),
        currency=currency,
        monthly_cap_micros=cap,
    )


def monthly_price(told: Json, *, currency: str) -> contract.Price:
    """What is priced by gigabyte and month, as `hourly_micros` of one gigabyte and month."""
    return contract.Price(hourly_micros=micros(told["net"]), currency=currency)


def micros(amount: str) -> int:
    """Millionths of a currency's unit, rounded up."""
    value = decimal.Decimal(amount).scaleb(6)
    return int(value.to_integral_value(decimal.ROUND_CEILING))


def location_of(told: Json) -> str:
    """The location's name; a server older than the field has it in its datacenter."""
    place = told.get("location") or (told.get("datacenter") or {}).get("location") or {}
    return str(place.get("name", ""))


def image_name(told: Json) -> str:
    """A system image's name, or a snapshot's id."""
    return str(told.get("name") or told["id"])


def moment(text: Any) -> datetime.datetime | None:
    """A time of theirs in UTC."""
    if not text:
        return None
    return datetime.datetime.fromisoformat(str(text)).astimezone(datetime.UTC)


def _attached(server: Any) -> str | None:
    return None if server is None else str(server)


def _times(
    monthly: contract.Price | None, gigabytes: decimal.Decimal | int
) -> contract.Price | None:
    if monthly is None:
        return None
    total = decimal.Decimal(monthly.hourly_micros) * gigabytes
    return contract.Price(
        hourly_micros=int((total / _HOURS_A_MONTH).to_integral_value(decimal.ROUND_CEILING)),
        currency=monthly.currency,
        monthly_cap_micros=int(total.to_integral_value(decimal.ROUND_CEILING)),
    )


def _end(deprecation: Json | None) -> datetime.datetime | None:
    return moment((deprecation or {}).get("unavailable_after"))
