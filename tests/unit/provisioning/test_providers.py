"""The register of providers: every row can be opened, and nothing else can."""

import dataclasses
import datetime
import importlib

import pytest

from provisioning import catalogue, contract, credentials, providers
from runtime_kit import clock as clock_kit

NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


async def _observe(_: contract.ApiCall) -> None:
    """Nothing is called here."""


def opening(**changed: object) -> providers.Opening:
    plain = providers.Opening(
        settings={},
        credential=credentials.parse(credentials.Kind.TOKEN, {"token": "a-token"}),
        observer=_observe,
        clock=clock_kit.ManualClock(NOW),
    )
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


@pytest.mark.timeout(60, func_only=True)  # the first import of boto3 alone takes a second
@pytest.mark.parametrize("name", sorted(providers.PROVIDERS))
def test_every_row_has_its_module(name: str) -> None:
    assert callable(importlib.import_module(providers.get(name).module).open_driver)


@pytest.mark.parametrize(
    "name", sorted(name for name, row in providers.PROVIDERS.items() if row.costs_money)
)
def test_every_provider_that_costs_money_has_a_tested_catalogue(name: str) -> None:
    if name == "openstack":
        pytest.skip("each OpenStack cloud names its sizes itself")
    found = catalogue.tested(name)
    assert found.regions
    assert [tier.size.cores for tier in found.tiers] == sorted(
        tier.size.cores for tier in found.tiers
    )
    for tier in found.tiers:
        assert set(tier.size.regions) <= {region.name for region in found.regions}
        assert all(price.as_of == found.as_of for price in tier.size.prices.values())


def test_local_is_the_container_machine() -> None:
    assert providers.get("local").name == "local-nspawn"
    assert not providers.get("local").costs_money


def test_an_unknown_provider_names_those_there_are() -> None:
    with pytest.raises(providers.Unknown, match="hetzner"):
        providers.get("hertzner")


def test_an_unknown_setting_and_a_missing_one_are_named() -> None:
    with pytest.raises(providers.Refused, match="'regoin'"):
        providers.check_settings(providers.get("hetzner"), {"regoin": "fsn1"})
    with pytest.raises(providers.Refused, match="resource_group"):
        providers.check_settings(providers.get("azure"), {})


def test_a_credential_of_another_kind_is_refused_with_those_that_fit() -> None:
    nothing = credentials.parse(credentials.Kind.NONE, {})
    with pytest.raises(providers.Refused, match="with: token"):
        providers.open_driver("hetzner", opening(credential=nothing))


@pytest.mark.parametrize(
    "address",
    [
        "http://api.hetzner.cloud/v1",
        "http://127.0.0.1.evil.example/",
        "http://localhost:8080",
        "http://10.0.0.1/",
        "ftp://127.0.0.1/",
        "https://user:secret@api.example/",
        "https://api.example/?a=b",
        "https:///v1",
        "file:///etc/passwd",
        "",
    ],
)
def test_an_address_that_is_neither_https_nor_this_host_is_refused(address: str) -> None:
    with pytest.raises(providers.Refused):
        providers.open_driver("hetzner", opening(endpoints={"": address}))


@pytest.mark.parametrize(
    "address", ["https://api.example/v1", "http://127.0.0.1:8080/v1", "http://[::1]:8080"]
)
def test_https_and_this_host_are_taken(address: str) -> None:
    providers.check_endpoints({"": address})
