"""DigitalOcean's documents, as its own description has them."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

REGIONS: Final = {"nyc3": "New York 3", "ams3": "Amsterdam 3", "fra1": "Frankfurt 1"}
SIZES: Final[Mapping[str, tuple[int, int, int, str, str]]] = {  # cores, MB, GB, hourly, monthly
    "s-1vcpu-2gb": (1, 2048, 50, "0.01786", "12.0"),
    "s-2vcpu-4gb": (2, 4096, 80, "0.03571", "24.0"),
    "s-4vcpu-8gb": (4, 8192, 160, "0.07143", "48.0"),
    "gpu-h100x1-80gb": (20, 245760, 720, "3.39", "2522.16"),
}
IMAGES: Final = {
    "debian-12-x64": (101, "12 x64", "Debian"),
    "debian-13-x64": (102, "13 x64", "Debian"),
    "ubuntu-24-04-x64": (103, "24.04 (LTS) x64", "Ubuntu"),
}


def is_gpu(size: str) -> bool:
    """Whether droplets of this size stand in a list of their own."""
    return size.startswith("gpu-")


def hourly_micros(size: str) -> int:
    """What it costs."""
    return round(float(SIZES[size][3]) * 1_000_000)


def region(slug: str) -> dict[str, Any]:
    """A region."""
    return {
        "name": REGIONS[slug],
        "slug": slug,
        "features": ["metadata"],
        "available": True,
        "sizes": list(SIZES),
    }


def size(slug: str, *, regions: Sequence[str], available: bool = True) -> dict[str, Any]:
    """A size with its price."""
    cores, megabytes, gigabytes, hourly, monthly = SIZES[slug]
    return {
        "slug": slug,
        "memory": megabytes,
        "vcpus": cores,
        "disk": gigabytes,
        "transfer": 2.0,
        "price_monthly": float(monthly),
        "price_hourly": float(hourly),
        "regions": list(regions),
        "available": available,
        "description": "Basic",
    }


def image(slug: str) -> dict[str, Any]:
    """A distribution's image."""
    ref, name, distribution = IMAGES[slug]
    return {
        "id": ref,
        "name": name,
        "type": "base",
        "distribution": distribution,
        "slug": slug,
        "public": True,
        "regions": list(REGIONS),
        "created_at": "2026-01-01T00:00:00Z",
        "min_disk_size": 10,
        "size_gigabytes": 1.5,
        "description": "",
        "tags": [],
        "status": "available",
    }


def image_of(wanted: str | int) -> dict[str, Any] | None:
    """The image of this slug or id."""
    for slug, (ref, _, _) in IMAGES.items():
        if wanted in {slug, ref} or str(wanted) == str(ref):
            return image(slug)
    return None


def droplet(
    *,
    ref: int,
    name: str,
    status: str,
    of: str,
    at: str,
    picture: Mapping[str, Any],
    tags: Sequence[str],
    born: datetime.datetime,
    locked: bool,
    volumes: Sequence[str],
) -> dict[str, Any]:
    """A droplet; it has addresses once it is there."""
    cores, megabytes, gigabytes, _, _ = SIZES[of]
    low = ref % 250 + 1
    networks = [
        {
            "ip_address": f"203.0.113.{low}",
            "netmask": "255.255.255.0",
            "gateway": "203.0.113.1",
            "type": "public",
        },
        {
            "ip_address": f"10.110.0.{low}",
            "netmask": "255.255.0.0",
            "gateway": "10.110.0.1",
            "type": "private",
        },
    ]
    return {
        "id": ref,
        "name": name,
        "memory": megabytes,
        "vcpus": cores,
        "disk": gigabytes,
        "locked": locked,
        "status": status,
        "created_at": moment(born),
        "features": [],
        "backup_ids": [],
        "next_backup_window": {},
        "snapshot_ids": [],
        "image": dict(picture),
        "volume_ids": list(volumes),
        "size": size(of, regions=list(REGIONS)),
        "size_slug": of,
        "networks": {"v4": [] if status == "new" else networks, "v6": []},
        "region": region(at),
        "tags": list(tags),
        "vpc_uuid": "760e09ef-dc84-11e8-981e-3cfdfeaae000",
    }


def action(
    *,
    ref: int,
    status: str,
    kind: str,
    resource: int | None,
    resource_type: str,
    at: str,
    started: datetime.datetime,
) -> dict[str, Any]:
    """Something under way, or over."""
    return {
        "id": ref,
        "status": status,
        "type": kind,
        "started_at": moment(started),
        "completed_at": None if status == "in-progress" else moment(started),
        "resource_id": resource,
        "resource_type": resource_type,
        "region": region(at),
        "region_slug": at,
    }


def moment(at: datetime.datetime) -> str:
    """A time as the API writes it."""
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
