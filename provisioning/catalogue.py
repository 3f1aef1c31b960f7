"""What was tried at a provider and is offered by name: its `catalogue.toml`, read into values.

A tier is a word (`starter`, `growth`, `pro`) for one size of the provider's. Prices here are
estimates of the day named; where the provider tells prices, what it tells wins.

Known limit: a file says what was tested, not what is to be had now; the live offer says that.
"""

import dataclasses
import datetime
import decimal
import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from provisioning import contract, providers

_GIBIBYTE: Final = 2**30
_GIGABYTE: Final = 10**9
_HOURS: Final = 672  # of the shortest month: an estimate by the hour that no month is dearer than
_MICROS: Final = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One region (with the zone used there by default, where the provider has zones)."""

    name: str
    title: str
    zone: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier. `size.prices` hold the dated estimate for each region, or `""` for all."""

    name: str
    title: str
    size: contract.Size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """A provider's tested regions, tiers and image; the first of each is the default."""

    provider: str
    as_of: datetime.date
    regions: tuple[Region, ...]
    tiers: tuple[Tier, ...]
    images: tuple[str, ...]
    address_price: contract.Price | None = None  # of the public IPv4, where it is extra
    kept: Mapping[contract.ChildKind, decimal.Decimal] = dataclasses.field(default_factory=dict)
    currency: str = ""

    def kept_price(
        self, kind: contract.ChildKind, *, gigabytes: int | None
    ) -> contract.Price | None:
        """What a volume or snapshot of that size, or an address that is kept, costs: an estimate.

        None where the file does not say, or where the size counts and is not known.
        """
        monthly = self.kept.get(kind)
        units = 1 if kind is contract.ChildKind.ADDRESS else gigabytes
        if monthly is None or not units:
            return None
        hourly = (monthly * units * _MICROS / _HOURS).to_integral_value(decimal.ROUND_UP)
        return contract.Price(hourly_micros=int(hourly), currency=self.currency, as_of=self.as_of)

    def region(self, name: str) -> Region | None:
        """The region of this name; None where it was not tested."""
        return next((one for one in self.regions if one.name == name), None)

    def tier(self, name: str) -> Tier | None:
        """The tier of this name, or of this size; None where neither was tested."""
        return next((one for one in self.tiers if name in {one.name, one.size.name}), None)


class Malformed(Exception):
    """A catalogue file is not what this module reads. The message names file and field."""


@functools.cache
def tested(provider: str) -> Catalogue:
    """The catalogue that stands in the provider's folder.

    Raises:
        providers.Unknown: there is no such provider.
        Malformed: the file is not well formed.
    """
    row = providers.get(provider)
    package, _, module = row.module.rpartition(".")
    folder = importlib.resources.files(package)
    own = folder / f"{module}.catalogue.toml"  # where one folder holds several providers
    found = own if own.is_file() else folder / "catalogue.toml"
    return parse(found.read_text(encoding="utf-8"), provider=row.name)


def parse(text: str, *, provider: str) -> Catalogue:
    """The catalogue in this text.

    Raises:
        Malformed: it is not well formed.
    """
    try:
        return _catalogue(tomllib.loads(text), provider=provider)
    except (KeyError, TypeError, ValueError, decimal.InvalidOperation) as fault:
        raise Malformed(f"The catalogue of {provider} is not well formed: {fault!r}.") from fault


def _catalogue(told: dict[str, Any], *, provider: str) -> Catalogue:
    as_of: datetime.date = told["as_of"]
    regions = tuple(
        Region(name=one["name"], title=one.get("title", one["name"]), zone=one.get("zone"))
        for one in told["regions"]
    )
    names = tuple(one.name for one in regions)
    currency = str(told.get("currency", ""))
    address = told.get("address_hourly")
    if not regions or not told["tiers"] or not told["images"]:
        raise ValueError("a catalogue holds at least one region, one tier and one image")
    return Catalogue(
        provider=provider,
        as_of=as_of,
        regions=regions,
        tiers=tuple(
            _tier(one, currency=currency, as_of=as_of, regions=names) for one in told["tiers"]
        ),
        images=tuple(str(one) for one in told["images"]),
        address_price=None if address is None else _price(address, currency, as_of),
        kept={
            contract.ChildKind(kind): _amount(monthly)
            for kind, monthly in told.get("kept_monthly", {}).items()
        },
        currency=currency,
    )


def _tier(
    one: dict[str, Any], *, currency: str, as_of: datetime.date, regions: tuple[str, ...]
) -> Tier:
    hourly = one.get("hourly")  # "0.0060" for all regions, or a table by region; none: it is free
    by_region = hourly if isinstance(hourly, dict) else {"": hourly} if hourly is not None else {}
    return Tier(
        name=one["name"],
        title=one.get("title", one["name"].capitalize()),
        size=contract.Size(
            name=one["size"],
            cores=int(one["cores"]),
            memory_bytes=int(decimal.Decimal(str(one["memory_gibibytes"])) * _GIBIBYTE),
            disk_bytes=int(one["disk_gigabytes"]) * _GIGABYTE,
            architecture=one["architecture"],
            regions=tuple(one.get("regions", regions)),
            prices={
                region: _price(amount, currency, as_of) for region, amount in by_region.items()
            },
            nested_virt=bool(one.get("nested_virt", False)),
        ),
    )


def _price(amount: str, currency: str, as_of: datetime.date) -> contract.Price:
    micros = _amount(amount).scaleb(6).to_integral_value(decimal.ROUND_UP)
    return contract.Price(hourly_micros=int(micros), currency=currency, as_of=as_of)


def _amount(amount: str) -> decimal.Decimal:
    if not isinstance(amount, str):
        raise TypeError(f"a price is text, so that no digit is lost: {amount!r}")
    return decimal.Decimal(amount)
