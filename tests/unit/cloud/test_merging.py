"""What may be ordered, from what was tested, what is allowed and what is offered."""

import dataclasses
import datetime
from typing import Any

from platform_server.cloud import merging, policy
from provisioning import catalogue, contract

DAY = datetime.date(2026, 11, 30)
GIB = 2**30


def _price(micros: int, *, as_of: datetime.date | None = None) -> contract.Price:
    return contract.Price(hourly_micros=micros, currency="EUR", as_of=as_of)


def _size(name: str, *, micros: int = 5000, **more: Any) -> contract.Size:
    values: dict[str, Any] = {
        "name": name,
        "cores": 2,
        "memory_bytes": 4 * GIB,
        "disk_bytes": 40 * GIB,
        "architecture": "x86_64",
        "regions": ("fsn1", "hel1"),
        "prices": {"": _price(micros)},
    }
    return contract.Size(**{**values, **more})


def _tier(name: str, size: str, *, micros: int) -> catalogue.Tier:
    estimate = {"": _price(micros, as_of=DAY)}
    return catalogue.Tier(name=name, title=name, size=_size(size, prices=estimate))


TESTED = catalogue.Catalogue(
    provider="hetzner",
    as_of=DAY,
    regions=(
        catalogue.Region(name="fsn1", title="Falkenstein"),
        catalogue.Region(name="hel1", title="Helsinki"),
    ),
    tiers=(_tier("starter", "cx23", micros=5600), _tier("growth", "cx33", micros=8800)),
    images=("debian-12",),
    address_price=_price(800, as_of=DAY),
)
OFFER = contract.Offer(
    regions=("fsn1", "hel1", "nbg1"),
    sizes=(_size("cx23", micros=6000), _size("cx33", micros=9000), _size("cpx99", micros=99_000)),
    address_price=_price(900),
)
RULES = policy.Rules.model_validate(
    {
        "regions": ["fsn1"],
        "image": "debian-12",
        "classes": [{"name": "small", "size": "cx23"}, {"name": "odd", "size": "cpx99"}],
        "most_machines": 5,
        "most_hourly": "1",
        "currency": "EUR",
    }
)


def _sides(**more: Any) -> merging.Sides:
    values: dict[str, Any] = {"tested": TESTED, "rules": None, "offer": OFFER}
    return merging.Sides(**{**values, **more})


def _available(sides: merging.Sides, **more: Any) -> list[tuple[str, str]]:
    return [
        (one.region, one.size.name) for one in merging.list_all(sides, **more) if one.is_available
    ]


def test_without_a_policy_what_was_tested_is_offered() -> None:
    assert _available(_sides()) == [
        ("fsn1", "cx23"),
        ("fsn1", "cx33"),
        ("hel1", "cx23"),
        ("hel1", "cx33"),
    ]


def test_a_policy_narrows_and_adds() -> None:
    assert _available(_sides(rules=RULES)) == [("fsn1", "cx23"), ("fsn1", "cpx99")]
    assert merging.tier_of(_sides(rules=RULES), "cpx99") == "odd"
    assert merging.size_of(_sides(rules=RULES), "small") == "cx23"
    assert merging.default_size(_sides(rules=RULES)) == "cx23"
    assert merging.default_region(_sides(rules=RULES)) == "fsn1"


def test_nothing_untested_lifts_the_policys_regions() -> None:
    judged = merging.judge(_sides(rules=RULES), region="hel1", size="cx23", untested=True)
    assert judged.reason == "The policy file does not allow the region hel1."


def test_what_was_never_tried_takes_untested() -> None:
    judged = merging.judge(_sides(), region="fsn1", size="cpx99")
    assert judged.reason is not None
    assert "--untested" in judged.reason
    asked = merging.judge(_sides(), region="fsn1", size="cpx99", untested=True)
    assert (asked.reason, asked.is_tested, asked.tier) == (None, False, None)
    assert ("nbg1", "cpx99") not in _available(_sides(), untested=True)  # it is not sold there


def test_b46_a_withdrawn_size_hurts_only_itself() -> None:
    left = dataclasses.replace(OFFER, sizes=OFFER.sizes[1:])
    sides = _sides(offer=left)
    assert merging.judge(sides, region="fsn1", size="cx23").reason == (
        "The provider has withdrawn the size cx23."
    )
    assert _available(sides) == [("fsn1", "cx33"), ("hel1", "cx33")]
    flagged = dataclasses.replace(OFFER, sizes=(_size("cx23", withdrawn=True), *OFFER.sizes[1:]))
    assert _available(_sides(offer=flagged)) == [("fsn1", "cx33"), ("hel1", "cx33")]


def test_b46_the_day_after_which_it_is_not_sold_is_told_before() -> None:
    day = datetime.date(2027, 2, 1)
    offer = dataclasses.replace(OFFER, sizes=(_size("cx23", withdrawn_after=day), *OFFER.sizes[1:]))
    assert merging.withdrawn_after(_sides(offer=offer), "cx23") == day
    assert ("fsn1", "cx23") in _available(_sides(offer=offer))


def test_a_region_that_lacks_it_names_those_that_have_it() -> None:
    offer = dataclasses.replace(OFFER, sizes=(_size("cx23", regions=("hel1",)), *OFFER.sizes[1:]))
    judged = merging.judge(_sides(offer=offer), region="fsn1", size="cx23")
    assert judged.reason == "cx23 is not to be had in fsn1 now, but in: hel1."


def test_the_providers_own_price_wins_and_an_estimate_keeps_its_date() -> None:
    live = merging.judge(_sides(), region="fsn1", size="cx23").price
    assert live == contract.Price(hourly_micros=6900, currency="EUR")
    silent = dataclasses.replace(
        OFFER, sizes=(_size("cx23", prices={}), *OFFER.sizes[1:]), address_price=None
    )
    estimated = merging.judge(_sides(offer=silent), region="fsn1", size="cx23").price
    assert estimated == contract.Price(hourly_micros=6400, currency="EUR", as_of=DAY)
    unheard = merging.judge(_sides(offer=None), region="fsn1", size="cx23").price
    assert unheard == estimated


def test_a_price_by_region_comes_before_one_for_all() -> None:
    size = _size("cx23", prices={"": _price(5000), "hel1": _price(4000)})
    offer = dataclasses.replace(OFFER, sizes=(size, *OFFER.sizes[1:]), address_price=None)
    sides = _sides(offer=offer, tested=dataclasses.replace(TESTED, address_price=None))
    prices = [merging.price_of(sides, size=size, region=region) for region in ("fsn1", "hel1")]
    assert [one.hourly_micros for one in prices if one is not None] == [5000, 4000]


def test_builds_are_advised_a_larger_tier() -> None:
    small, large = (
        merging.judge(_sides(offer=offer), region="fsn1", size="cx23", role="build").advice
        for offer in (
            OFFER,
            dataclasses.replace(OFFER, sizes=(_size("cx23", cores=8, memory_bytes=16 * GIB),)),
        )
    )
    assert small is not None
    assert "larger tier" in small
    assert large is None
    assert merging.judge(_sides(), region="fsn1", size="cx23").advice is None
