"""What can be ordered now, and what one order would cost.

EC2 tells sizes and where they are offered; prices it does not tell here, so they are the dated
estimates of the catalogue, and a size without one has none.

Known limit: only sizes of the present generation for on-demand use, on 64 bits.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioning import catalogue, contract
from provisioning.aws import account as account_kit
from provisioning.aws import calls, orders, placing
from runtime_kit import clock as clock_kit

_MEBIBYTE: Final = 2**20
_GIGABYTE: Final = 10**9
_GIGABYTE_HOURLY_MICROS: Final = 110  # of gp3: 0.08 USD a month in most regions
_WANTED: Final = [
    {"Name": "current-generation", "Values": ["true"]},
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
]


async def read(
    account: account_kit.Account, *, regions: Sequence[str], clock: clock_kit.Clock
) -> contract.Offer:
    """Every size with the regions that have it, and the dated estimates. Raises `Fault`."""
    tested = catalogue.tested("aws")
    prices = {tier.size.name: tier.size.prices for tier in tested.tiers}
    offered: dict[str, set[str]] = {}
    for region in regions:
        told = account.pages(
            calls.TYPE_OFFERINGS,
            region=region,
            items="InstanceTypeOfferings",
            LocationType="region",
        )
        offered[region] = {str(one["InstanceType"]) async for one in told}
    found = await account.listed(
        calls.TYPES, region=regions[0], items="InstanceTypes", Filters=_WANTED
    )
    sizes = await asyncio.to_thread(_sizes, found, offered=offered, prices=prices)
    return contract.Offer(
        regions=tuple(regions),
        sizes=sizes,
        images=tuple(placing.FAMILIES),
        address_price=tested.address_price,
        told_at=clock.now(),
    )


def price_of(request: contract.Request, image: Mapping[str, Any]) -> contract.Price | None:
    """Machine, disk and address together; None where the size has no estimate for the region."""
    tested = catalogue.tested("aws")
    tier = tested.tier(request.size)
    prices = {} if tier is None else tier.size.prices
    price = prices.get(request.region) or prices.get("")
    if price is None:
        return None
    beyond = max(0, orders.disk_gigabytes(request, image) - orders.DISK_GIGABYTES)
    micros = price.hourly_micros + beyond * _GIGABYTE_HOURLY_MICROS
    if request.public_ipv4 and tested.address_price is not None:
        micros += tested.address_price.hourly_micros
    return dataclasses.replace(price, hourly_micros=micros)


def _sizes(
    found: Sequence[Mapping[str, Any]],
    *,
    offered: Mapping[str, set[str]],
    prices: Mapping[str, Mapping[str, contract.Price]],
) -> tuple[contract.Size, ...]:
    sizes = []
    for one in found:
        name = str(one["InstanceType"])
        told = one.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
        architecture = next((known for known in told if known in placing.ARCHITECTURES), None)
        regions = tuple(region for region, there in offered.items() if name in there)
        if architecture is None or not regions:
            continue
        sizes.append(
            contract.Size(
                name=name,
                cores=int(one["VCpuInfo"]["DefaultVCpus"]),
                memory_bytes=int(one["MemoryInfo"]["SizeInMiB"]) * _MEBIBYTE,
                disk_bytes=orders.DISK_GIGABYTES * _GIGABYTE,
                architecture=placing.ARCHITECTURES[architecture],
                regions=regions,
                prices=prices.get(name, {}),
                nested_virt=bool(one.get("BareMetal")),
            )
        )
    return tuple(sorted(sizes, key=lambda size: size.name))
