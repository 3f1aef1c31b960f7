"""Catalogue files: read whole and exactly, or refused with the field named."""

import datetime

import pytest

from provisioning import catalogue, contract

GOOD = """
as_of = 2026-11-30
currency = "EUR"
images = ["debian-12"]
address_hourly = "0.0008"
[[regions]]
name = "here"
[[tiers]]
name = "starter"
size = "s-1"
cores = 2
memory_gibibytes = 4
disk_gigabytes = 40
architecture = "x86_64"
hourly = "0.00561"
"""


def test_s14_hetzner_is_offered_in_three_places_and_three_tiers() -> None:
    found = catalogue.tested("hetzner")
    assert [one.name for one in found.regions] == ["fsn1", "nbg1", "hel1"]
    assert [(one.name, one.size.name) for one in found.tiers] == [
        ("starter", "cx23"),
        ("growth", "cx33"),
        ("pro", "cx43"),
    ]


def test_a_price_keeps_every_digit_and_its_day() -> None:
    (tier,) = catalogue.parse(GOOD, provider="p").tiers
    price = tier.size.prices[""]
    assert (price.hourly_micros, price.currency) == (5610, "EUR")
    assert price.as_of == datetime.date(2026, 11, 30)


def test_what_is_kept_is_priced_by_the_gigabyte_and_rounded_up() -> None:
    text = GOOD.replace("[[regions]]", '[kept_monthly]\nvolume = "0.0440"\n[[regions]]')
    found = catalogue.parse(text, provider="p")
    price = found.kept_price(contract.ChildKind.VOLUME, gigabytes=100)
    assert price is not None
    assert (price.hourly_micros, price.currency, price.as_of) == (6548, "EUR", found.as_of)
    assert found.kept_price(contract.ChildKind.VOLUME, gigabytes=None) is None
    assert found.kept_price(contract.ChildKind.ADDRESS, gigabytes=None) is None


def test_a_tier_is_found_by_its_name_and_by_its_size() -> None:
    found = catalogue.parse(GOOD, provider="p")
    assert found.tier("starter") is found.tier("s-1")
    assert found.tier("s-2") is None
    assert found.region("there") is None


def test_a_tier_is_to_be_had_everywhere_unless_it_says_where() -> None:
    (tier,) = catalogue.parse(GOOD, provider="p").tiers
    assert tier.size.regions == ("here",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('hourly = "0.00561"', "hourly = 0.00561", id="a price that is no text"),
        pytest.param('hourly = "0.00561"', 'hourly = "cheap"', id="a price that is no number"),
        pytest.param("cores = 2", 'cores = "two"', id="cores that are no number"),
        pytest.param("cores = 2\n", "", id="no cores"),
        pytest.param('images = ["debian-12"]', "images = []", id="no image"),
        pytest.param('name = "here"', "", id="a region without a name"),
        pytest.param("as_of", "asof", id="no day"),
        pytest.param("[[tiers]]", "[[tiers", id="no TOML"),
    ],
)
def test_a_file_out_of_shape_is_refused(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(catalogue.Malformed, match="catalogue of p"):
        catalogue.parse(GOOD.replace(old, new), provider="p")
