"""Hetzner Cloud's JSON, as its description has it; what the fake answers is made here."""

import datetime
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

PLACES = {"fsn1": 1, "nbg1": 2, "hel1": 3, "ash": 4}
TYPES: Mapping[str, tuple[int, int, int, int, str, str]] = {
    # id, cores, memory, disk, hourly, monthly
    "cx23": (114, 2, 4, 40, "0.0056", "3.4900"),
    "cx33": (115, 4, 8, 80, "0.0088", "5.4900"),
    "cx43": (116, 8, 16, 160, "0.0152", "9.4900"),
    "cax11": (45, 2, 4, 40, "0.0064", "3.9900"),
}
IMAGES = {
    161547269: ("ubuntu-24.04", "x86", 10),
    114690387: ("debian-12", "x86", 5),
    114690389: ("debian-12", "arm", 5),
    310557660: ("debian-13", "x86", 5),
}


def stamp(moment: datetime.datetime) -> str:
    """A time as they write it."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="seconds")


def location(name: str) -> Json:
    """One location."""
    return {
        "id": PLACES[name],
        "name": name,
        "description": f"{name} park 1",
        "country": "DE",
        "city": name,
        "latitude": 50.5,
        "longitude": 12.3,
        "network_zone": "eu-central" if name != "ash" else "us-east",
    }


def datacenter(name: str) -> Json:
    """The deprecated field beside it."""
    return {
        "id": PLACES[name] + 10,
        "name": f"{name}-dc1",
        "description": f"{name} 1",
        "location": location(name),
        "server_types": {"available": [], "available_for_migration": [], "supported": []},
    }


def price(hourly: str, monthly: str, place: str) -> Json:
    """One price at one place."""
    return {
        "location": place,
        "price_hourly": {"net": hourly, "gross": hourly},
        "price_monthly": {"net": monthly, "gross": monthly},
    }


def server_type(
    name: str,
    *,
    ends: datetime.datetime | None = None,
    sold_out: Collection[tuple[str, str]] = (),
) -> Json:
    """One server type; `ends`: it is withdrawn from then on; `sold_out` by type and place."""
    number, cores, memory, disk, hourly, monthly = TYPES[name]
    places = [one for one in PLACES if one != "ash" or name != "cx23"]
    deprecation = (
        None
        if ends is None
        else {
            "announced": stamp(ends - datetime.timedelta(days=90)),
            "unavailable_after": stamp(ends),
        }
    )
    traffic = {"net": "1.0000", "gross": "1.0000"}
    return {
        "id": number,
        "name": name,
        "description": name.upper(),
        "category": "Shared vCPU",
        "cores": cores,
        "memory": float(memory),
        "disk": disk,
        "deprecated": ends is not None,
        "deprecation": deprecation,
        "cpu_type": "shared",
        "storage_type": "local",
        "architecture": "arm" if name.startswith("cax") else "x86",
        "locations": [
            {
                "id": PLACES[one],
                "name": one,
                "deprecation": deprecation,
                "available": (name, one) not in sold_out,  # younger than the description
                "recommended": False,
            }
            for one in places
        ],
        "prices": [
            {
                **price(hourly, monthly, one),
                "included_traffic": 20 * 10**12,
                "price_per_tb_traffic": traffic,
            }
            for one in places
        ],
    }


def image(
    number: int,
    *,
    name: str | None,
    architecture: str,
    disk: int,
    created: datetime.datetime,
    kind: str = "system",
    description: str = "",
    labels: Mapping[str, str] | None = None,
    of: tuple[int, str] | None = None,
) -> Json:
    """A system image or a snapshot."""
    return {
        "id": number,
        "type": kind,
        "status": "available",
        "name": name,
        "description": description or name or "",
        "image_size": None if kind == "system" else 2.3,
        "disk_size": disk,
        "created": stamp(created),
        "created_from": None if of is None else {"id": of[0], "name": of[1]},
        "bound_to": None,
        "os_flavor": (name or "debian-12").partition("-")[0],
        "os_version": "12",
        "rapid_deploy": kind == "system",
        "protection": {"delete": False},
        "deprecated": None,
        "deleted": None,
        "labels": dict(labels or {}),
        "architecture": architecture,
    }


def action(
    number: int,
    *,
    command: str,
    status: str,
    started: datetime.datetime,
    finished: datetime.datetime | None,
    resources: Sequence[tuple[str, int]],
    error: tuple[str, str] | None = None,
) -> Json:
    """One action."""
    return {
        "id": number,
        "command": command,
        "status": status,
        "progress": 100 if status == "success" else 50,
        "started": stamp(started),
        "finished": None if finished is None else stamp(finished),
        "resources": [{"type": kind, "id": ref} for kind, ref in resources],
        "error": None if error is None else {"code": error[0], "message": error[1]},
    }


def pricing() -> Json:
    """What everything costs."""
    month = {"net": "0.5000", "gross": "0.5000"}
    places = [one for one in PLACES if one != "ash"]
    return {
        "currency": "EUR",
        "vat_rate": "19.000000",
        "floating_ip": {"price_monthly": month},
        "floating_ips": [],
        "image": {"price_per_gb_month": {"net": "0.0110", "gross": "0.0110"}},
        "load_balancer_types": [],
        "primary_ips": [
            {"type": "ipv4", "prices": [price("0.0008", "0.5000", one) for one in places]},
            {"type": "ipv6", "prices": [price("0.0000", "0.0000", one) for one in places]},
        ],
        "server_backup": {"percentage": "20.0000"},
        "server_types": [
            {"id": TYPES[name][0], "name": name, "prices": server_type(name)["prices"]}
            for name in TYPES
        ],
        "volume": {"price_per_gb_month": {"net": "0.0440", "gross": "0.0440"}},
    }


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint of a public key's blob, as `ssh-keygen -l -E md5` prints it."""
    import base64  # noqa: PLC0415 - for this alone

    blob = base64.b64decode(public_key.split()[1])
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))


def page(found: Sequence[Json], *, number: int, per_page: int) -> tuple[list[Json], Json]:
    """One page of a list, and what is said of the rest."""
    last = max(1, -(-len(found) // per_page))
    meta = {
        "pagination": {
            "page": number,
            "per_page": per_page,
            "previous_page": number - 1 if number > 1 else None,
            "next_page": number + 1 if number < last else None,
            "last_page": last,
            "total_entries": len(found),
        }
    }
    return list(found[(number - 1) * per_page : number * per_page]), meta
