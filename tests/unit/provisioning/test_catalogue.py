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


_TESTED = {  # as S-14 to S-17 of the requirements name them; the same for Google and UpCloud
    "hetzner": (["fsn1", "nbg1", "hel1"], ["cx23", "cx33", "cx43"]),
    "digitalocean": (["nyc3", "ams3", "fra1"], ["s-1vcpu-2gb", "s-2vcpu-4gb", "s-4vcpu-8gb"]),
    "aws": (["us-east-1", "us-west-2", "eu-west-1"], ["t3.small", "t3.medium", "t3.xlarge"]),
    "azure": (
        ["eastus", "westeurope", "southafricanorth"],
        ["Standard_B2s", "Standard_B2ms", "Standard_A4_v2"],
    ),
    "gcp": (
        ["us-central1", "europe-west1", "europe-west3"],
        ["e2-small", "e2-medium", "e2-standard-4"],
    ),
    "upcloud": (["fi-hel1", "de-fra1", "nl-ams1"], ["1xCPU-2GB", "2xCPU-4GB", "4xCPU-8GB"]),
}
_NAMED: list[tuple[str, list[tuple[int, int]]]] = [  # cores and gibibytes, as the size is sold
    ("hetzner", [(2, 4), (4, 8), (8, 16)]),
    ("digitalocean", [(1, 2), (2, 4), (4, 8)]),
    ("aws", [(2, 2), (2, 4), (4, 16)]),
    ("azure", [(2, 4), (2, 8), (4, 8)]),
    ("gcp", [(2, 2), (2, 4), (4, 16)]),
    ("upcloud", [(1, 2), (2, 4), (4, 8)]),
]


@pytest.mark.parametrize("name", sorted(_TESTED))
def test_s14_to_s17_each_provider_is_offered_in_its_places_and_three_tiers(name: str) -> None:
    found = catalogue.tested(name)
    regions, sizes = _TESTED[name]
    assert [one.name for one in found.regions] == regions
    assert [(one.name, one.size.name) for one in found.tiers[:3]] == list(
        zip(("starter", "growth", "pro"), sizes, strict=True)
    )


@pytest.mark.parametrize(("name", "sold"), _NAMED)
def test_s14_to_s17_a_tier_has_the_cores_and_memory_that_are_sold_under_its_name(
    name: str, sold: list[tuple[int, int]]
) -> None:
    tiers = catalogue.tested(name).tiers[:3]
    assert [(one.size.cores, one.size.memory_bytes // 2**30) for one in tiers] == sold


@pytest.mark.parametrize("name", sorted(_TESTED))
def test_every_tier_has_an_estimate_with_its_day_wherever_it_is_offered(name: str) -> None:
    found = catalogue.tested(name)
    for tier in found.tiers:
        for region in tier.size.regions or [one.name for one in found.regions]:
            price = tier.size.prices.get(region) or tier.size.prices[""]
            assert price.hourly_micros > 0
            assert price.as_of == found.as_of


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
