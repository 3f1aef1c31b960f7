"""What may be ordered, from three sides: what was tested, what the policy allows, what is offered.

Pure. Each pair of region and size is judged by itself, so that a size which the provider has
withdrawn, or a region that lacks it, takes nothing else away. Details and prices are the provider's
own where it tells them, else the tested catalogue's, dated.
"""

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from platform_server.cloud import policy
from provisioning import catalogue as tested_kit
from provisioning import contract

BUILD: Final = "build"
_BUILD_CORES: Final = 4
_BUILD_MEMORY: Final = 8 * 2**30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The three sides. `offer` is None where the provider was not heard yet."""

    tested: tested_kit.Catalogue
    rules: policy.Rules | None
    offer: contract.Offer | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One size in one region. `reason` says why it cannot be ordered, where it cannot.

    `tier` is the word for it, of the tested catalogue or of a class of the policy; None for what is
    only known by the provider's name. `price` holds the public address as well.
    """

    region: str
    tier: str | None
    size: contract.Size
    price: contract.Price | None
    is_tested: bool
    reason: str | None
    advice: str | None = None

    @property
    def is_available(self) -> bool:
        """Whether it can be ordered."""
        return self.reason is None


def list_all(sides: Sides, *, untested: bool = False, role: str = "general") -> list[Offered]:
    """Every pair that is tested or in the policy; with `untested` whatever the provider offers."""
    return [
        judge(sides, region=region, size=size, untested=untested, role=role)
        for region in _regions(sides, untested=untested)
        for size in _sizes(sides, untested=untested)
    ]


def judge(
    sides: Sides, *, region: str, size: str, untested: bool = False, role: str = "general"
) -> Offered:
    """One pair, whether it can be ordered and why not."""
    tier = sides.tested.tier(size)
    known = find_size(sides, size)
    details = known or _unknown(size)
    return Offered(
        region=region,
        tier=tier_of(sides, size),
        size=details,
        price=price_of(sides, size=details, region=region),
        is_tested=tier is not None and sides.tested.region(region) is not None,
        reason=_reason(sides, region=region, size=size, untested=untested),
        advice=_advice(details, role=role) if known else None,
    )


def tier_of(sides: Sides, size: str) -> str | None:
    """The word for a size of the provider's: the policy's before the catalogue's."""
    if sides.rules is not None:
        for one in sides.rules.classes:
            if one.size == size:
                return one.name
    tier = sides.tested.tier(size)
    return None if tier is None else tier.name


def size_of(sides: Sides, tier: str) -> str | None:
    """The provider's size that a word stands for, None where it stands for none."""
    if sides.rules is not None:
        found = sides.rules.find_class(tier)
        if found is not None:
            return found.size
    known = sides.tested.tier(tier)
    return None if known is None else known.size.name


def default_size(sides: Sides) -> str:
    """What is ordered where nothing is said: the policy's first class, else the first tier."""
    if sides.rules is not None:
        return sides.rules.classes[0].size
    return sides.tested.tiers[0].size.name


def default_region(sides: Sides) -> str:
    """The policy's first region, else the first one tested."""
    return sides.rules.regions[0] if sides.rules is not None else sides.tested.regions[0].name


def find_size(sides: Sides, name: str) -> contract.Size | None:
    """What is known of a size: the provider's word, else the tested catalogue's."""
    if sides.offer is not None:
        for size in sides.offer.sizes:
            if size.name == name:
                return size
    tier = sides.tested.tier(name)
    return None if tier is None else tier.size


def price_of(sides: Sides, *, size: contract.Size, region: str) -> contract.Price | None:
    """Machine and public address by the hour; dated where any part of it is an estimate."""
    tier = sides.tested.tier(size.name)
    own = _in_region(size, region)
    if own is None and tier is not None:
        own = _in_region(tier.size, region)
    offered = None if sides.offer is None else sides.offer.address_price
    address = offered or sides.tested.address_price
    if own is None or address is None or address.currency != own.currency:
        return own
    return contract.Price(
        hourly_micros=own.hourly_micros + address.hourly_micros,
        currency=own.currency,
        as_of=own.as_of or address.as_of,
        monthly_cap_micros=own.monthly_cap_micros,
    )


def withdrawn_after(sides: Sides, size: str) -> datetime.date | None:
    """The day after which the provider does not offer it any more, where it says."""
    found = find_size(sides, size)
    return None if found is None else found.withdrawn_after


def _in_region(size: contract.Size, region: str) -> contract.Price | None:
    return size.prices.get(region) or size.prices.get("")


def _regions(sides: Sides, *, untested: bool) -> Sequence[str]:
    if sides.rules is not None:
        return sides.rules.regions
    found = [one.name for one in sides.tested.regions]
    if untested and sides.offer is not None:
        found.extend(sides.offer.regions)
    return list(dict.fromkeys(found))


def _sizes(sides: Sides, *, untested: bool) -> Sequence[str]:
    def all_of() -> Iterator[str]:
        if sides.rules is not None:
            yield from (one.size for one in sides.rules.classes)
        else:
            yield from (one.size.name for one in sides.tested.tiers)
        if untested and sides.offer is not None:
            yield from (one.name for one in sides.offer.sizes)

    return list(dict.fromkeys(all_of()))


def _reason(sides: Sides, *, region: str, size: str, untested: bool) -> str | None:
    rules = sides.rules
    if rules is not None and region not in rules.regions:
        return f"The policy file does not allow the region {region}."
    may = rules.sizes if rules is not None else {one.size.name for one in sides.tested.tiers}
    if size not in may and not untested:
        if rules is not None:
            return f"No class of the policy file is of the size {size} (--untested takes it)."
        return f"The size {size} was never tried here (--untested takes it)."
    return _not_offered(sides, region=region, size=size)


def _not_offered(sides: Sides, *, region: str, size: str) -> str | None:
    """What the provider's own word has against it."""
    if sides.offer is None:
        tier = sides.tested.tier(size)
        if tier is None:
            return f"Nothing is known of the size {size} before the provider was asked."
        return None if region in tier.size.regions else f"{size} is not to be had in {region}."
    found = next((one for one in sides.offer.sizes if one.name == size), None)
    if found is None or found.withdrawn:
        return f"The provider has withdrawn the size {size}."
    if region not in sides.offer.regions:
        return f"The provider has no region {region}."
    if region not in found.regions:
        there = ", ".join(found.regions[:8]) or "none"
        return f"{size} is not to be had in {region} now, but in: {there}."
    return None


def _advice(size: contract.Size, *, role: str) -> str | None:
    if role == BUILD and (size.cores < _BUILD_CORES or size.memory_bytes < _BUILD_MEMORY):
        return (
            f"Builds want {_BUILD_CORES} cores and {_BUILD_MEMORY // 2**30} GiB or more: take a "
            "larger tier."
        )
    return None


def _unknown(name: str) -> contract.Size:
    return contract.Size(
        name=name, cores=0, memory_bytes=0, disk_bytes=0, architecture="", regions=()
    )
