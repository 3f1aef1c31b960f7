"""UpCloud's JSON as our values: servers, storages, addresses, plans and prices.

Servers carry labels. Storages and addresses are given none that every account has had for long, so
a storage carries its owner in its title; an address can carry nothing.

Known limit: prices are told in hundredths of the account's currency, which the API does not name;
it is the connection's setting `currency`.
"""

import datetime
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from provisioning import contract, naming, packed_owner

_MICROS_A_HUNDREDTH: Final = 10_000
_POWER: Final = {
    "maintenance": contract.Power.STARTING,
    "started": contract.Power.RUNNING,
    "stopped": contract.Power.OFF,
    "error": contract.Power.FAILED,
}


def instance(server: Mapping[str, Any]) -> contract.Instance:
    """A server; with its children where it was asked for alone (lists tell none)."""
    state = str(server.get("state", ""))
    uuid = str(server["uuid"])
    zone = str(server.get("zone", ""))
    nested = server.get("ip_addresses") or {}
    nets = [net for net in nested.get("ip_address") or [] if isinstance(net, dict)]
    return contract.Instance(
        ref=uuid,
        name=str(server.get("title", "")),
        region=zone,
        power=_POWER.get(state, contract.Power.UNKNOWN),
        raw_state=state,
        instance_id=uuid,
        owner=naming.owner_of(labels(server)),
        size=str(server.get("plan", "")),
        addresses=tuple(str(net["address"]) for net in nets if net.get("access") == "public"),
        private_addresses=tuple(
            str(net["address"]) for net in nets if net.get("access") in {"utility", "private"}
        ),
        created_at=moment(server.get("created")),
        children=(*_disks(server), *_addresses(server)),
        failure="UpCloud shows the server in state error." if state == "error" else None,
    )


def labels(thing: Mapping[str, Any]) -> dict[str, str]:
    """The labels of a server."""
    nested = thing.get("labels") or {}
    pairs = nested.get("label") if isinstance(nested, dict) else nested
    return {str(one["key"]): str(one["value"]) for one in pairs or []}


def titled(name: str, owner: contract.Owner) -> str:
    """A storage's title: its name, and whose it is."""
    return f"{name} {packed_owner.as_line(owner)}"


def storage(row: Mapping[str, Any], *, hourly: contract.Price | None = None) -> contract.Child:
    """A storage: the machine's own disk, a volume, or a backup, which is our snapshot."""
    title = str(row.get("title", ""))
    name = title.partition(" ")[0]
    holders = (row.get("servers") or {}).get("server") or []
    kind = contract.ChildKind.VOLUME
    if row.get("type") == "backup":
        kind = contract.ChildKind.SNAPSHOT
    elif is_disk(title):
        kind = contract.ChildKind.DISK
    return contract.Child(
        kind=kind,
        ref=str(row["uuid"]),
        name=name,
        region=str(row.get("zone", "")),
        keep=kind is not contract.ChildKind.DISK,
        attached_to=str(holders[0]) if holders else None,
        owner=packed_owner.owner_of_line(title),
        size_gigabytes=int(row.get("size") or 0),
        created_at=moment(row.get("created")),
        hourly=hourly,
    )


def is_disk(title: str) -> bool:
    """Whether this title is that of a disk that we made with its machine."""
    owner = packed_owner.owner_of_line(title)
    own = contract.ChildKind.DISK
    return owner is not None and title.partition(" ")[0] == naming.child_name(owner, own)


def address(row: Mapping[str, Any]) -> contract.Child:
    """A floating address."""
    holder = row.get("server")
    return contract.Child(
        kind=contract.ChildKind.ADDRESS,
        ref=str(row["address"]),
        name=str(row["address"]),
        region=str(row.get("zone", "")),
        keep=True,
        attached_to=str(holder) if holder else None,
        address=str(row["address"]),
    )


def sizes(
    plans: Iterable[Mapping[str, Any]],
    prices: Iterable[Mapping[str, Any]],
    *,
    zones: tuple[str, ...],
    currency: str,
) -> tuple[contract.Size, ...]:
    """The plans with their prices by zone; a plan without a price anywhere is not for sale."""
    by_zone = {str(one["name"]): one for one in prices if str(one["name"]) in zones}
    found = []
    for plan in plans:
        name = str(plan["name"])
        hourly = {
            zone: price_of(told[f"server_plan_{name}"], currency=currency)
            for zone, told in by_zone.items()
            if f"server_plan_{name}" in told
        }
        found.append(
            contract.Size(
                name=name,
                cores=int(plan["core_number"]),
                memory_bytes=int(plan["memory_amount"]) * 2**20,
                disk_bytes=int(plan["storage_size"]) * 10**9,
                architecture="x86_64",
                regions=tuple(sorted(hourly)),
                prices=hourly,
                withdrawn=not hourly,
            )
        )
    return tuple(found)


def price_of(told: Mapping[str, Any], *, currency: str) -> contract.Price:
    """A price for `amount` of something, as the price of one."""
    hundredths = Decimal(str(told["price"])) / Decimal(str(told["amount"]))
    return contract.Price(hourly_micros=round(hundredths * _MICROS_A_HUNDREDTH), currency=currency)


def moment(told: Any) -> datetime.datetime | None:
    """A time: seconds since 1970 (servers) or as text (storages)."""
    if isinstance(told, int):
        return datetime.datetime.fromtimestamp(told, datetime.UTC)
    if not isinstance(told, str):
        return None
    try:
        read = datetime.datetime.fromisoformat(told)
    except ValueError:
        return None
    return read if read.tzinfo is not None else read.replace(tzinfo=datetime.UTC)


def devices(server: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is attached, as the server tells it."""
    nested = server.get("storage_devices") or {}
    return [one for one in nested.get("storage_device") or [] if isinstance(one, dict)]


def _disks(server: Mapping[str, Any]) -> tuple[contract.Child, ...]:
    return tuple(
        storage(
            {
                "uuid": device["storage"],
                "title": device.get("storage_title", ""),
                "size": device.get("storage_size"),
                "zone": server.get("zone"),
                "servers": {"server": [server["uuid"]]},
            }
        )
        for device in devices(server)
    )


def _addresses(server: Mapping[str, Any]) -> tuple[contract.Child, ...]:
    nested = (server.get("networking") or {}).get("interfaces") or {}
    return tuple(
        address({**told, "zone": server.get("zone"), "server": server["uuid"]})
        for interface in nested.get("interface") or []
        for told in (interface.get("ip_addresses") or {}).get("ip_address") or []
        if told.get("floating") == "yes"
    )
