"""When this host's address on the local machines' bridge is one of the Platform's."""

from typing import Any

import pytest

from platform_server.app import local_machines
from platform_server.settings import groups

SERVING: dict[str, Any] = {"enrollment": {"port": 8444}, "bundles": {"port": 8446}}


def settings(**changes: Any) -> groups.Settings:
    """Settings of a Platform that takes machines and serves bundles."""
    return groups.Settings.model_validate({**SERVING, **changes})


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machines, "can_make", lambda: True)


def test_the_first_address_of_the_network_is_this_hosts() -> None:
    assert local_machines.address(settings()) == "10.99.0.1"
    given = settings(local={"network": "192.168.77.0/25"})
    assert local_machines.address(given) == "192.168.77.1"


@pytest.mark.parametrize(
    "changes",
    [
        {"local": {"network": "off"}},
        {"bundles": {}},
        {"enrollment": {}},
    ],
    ids=["off", "nothing to install from", "no nodes are taken"],
)
def test_without_local_machines_there_is_none(changes: dict[str, Any]) -> None:
    assert local_machines.address(settings(**changes)) is None


def test_without_root_and_its_helper_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machines, "can_make", lambda: False)
    assert local_machines.address(settings()) is None


def test_drivers_of_both_kinds_are_opened_with_these_settings() -> None:
    given = local_machines.shared(settings(local={"bridge": "br7"}))
    assert set(given) == {"local-nspawn", "local-qemu"}
    assert given["local-nspawn"] == {
        "network": "10.99.0.0/24",
        "directory": "/var/lib/enlist/machines",
        "images": "/var/cache/enlist/images",
        "bridge": "br7",
    }


def test_local_machines_are_told_the_bridges_address_and_others_are_not() -> None:
    url = "https://127.0.0.1:8444"
    assert (
        local_machines.seen_from("local-nspawn", url, bridge="10.99.0.1")
        == "https://10.99.0.1:8444"
    )
    assert local_machines.seen_from("hetzner", url, bridge="10.99.0.1") == url
    assert local_machines.seen_from("local-nspawn", url, bridge=None) == url
