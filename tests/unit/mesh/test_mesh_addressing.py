"""Which addresses the mesh gives out, and when a node counts as connected."""

import datetime
import ipaddress
import random

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_server.app import meshing, orders
from platform_server.mesh import addressing, readiness
from platform_server.settings import groups

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_a_fresh_network_is_a_unique_local_one_of_this_installations_own() -> None:
    networks = [addressing.new_network(random.Random(seed)) for seed in range(100)]
    assert all(one.subnet_of(ipaddress.IPv6Network("fd00::/8")) for one in networks)
    assert {one.prefixlen for one in networks} == {64}
    assert len(set(networks)) == 100


@given(
    prefix=st.integers(min_value=8, max_value=29),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_no_draw_is_the_platforms_the_networks_or_the_broadcast_address(
    prefix: int, seed: int
) -> None:
    network = ipaddress.IPv4Network((int(ipaddress.IPv4Address("10.0.0.0")), prefix))
    others = {network.network_address, network.broadcast_address}
    others.add(ipaddress.IPv4Address(int(addressing.platform_address(network))))
    drawn = list(addressing.draw(network, chance=random.Random(seed)))
    assert len(drawn) == addressing.DRAWS
    assert all(one in network and one not in others for one in drawn)


def test_what_is_free_is_found_until_nothing_is() -> None:
    network = ipaddress.ip_network("10.0.0.0/29")
    taken: set[str] = set()
    while (free := addressing.find_free(network, taken=taken)) is not None:
        taken.add(str(free))
    assert taken == {f"10.0.0.{number}" for number in range(2, 7)}


@pytest.mark.parametrize(
    ("age", "lack"),
    [
        (None, "mesh-waiting"),
        (0, None),
        (180, None),
        (181, "mesh-silent"),
        (-3600, None),  # the clock was set back: the next handshake comes within two minutes
    ],
)
def test_a_node_is_connected_while_its_handshake_is_young(
    age: int | None, lack: str | None
) -> None:
    shaken = None if age is None else NOW - datetime.timedelta(seconds=age)
    assert readiness.lack_of(shaken, now=NOW) == lack


ENDPOINTS = {
    "the first name that others can use": (None, ["localhost", "p.test"], "p.test:51820"),
    "an address of IPv6 in brackets": (None, ["2001:db8::1"], "[2001:db8::1]:51820"),
    "what is set, with the mesh's port": ("m.test", ["p.test"], "m.test:51820"),
    "what is set, with its own port": ("m.test:4000", ["p.test"], "m.test:4000"),
    "an address that is set": ("2001:db8::5", ["p.test"], "[2001:db8::5]:51820"),
    "an address that is set with its port": ("[2001:db8::5]:4000", [], "[2001:db8::5]:4000"),
}


@pytest.mark.parametrize("case", ENDPOINTS)
def test_nodes_are_sent_to(case: str) -> None:
    told, names, expected = ENDPOINTS[case]
    given_orders = orders.Orders.__new__(orders.Orders)
    object.__setattr__(given_orders, "gateway_names", ())
    object.__setattr__(given_orders, "enrollment_names", names)
    assert str(meshing.endpoint(given_orders, group=groups.MeshGroup(endpoint=told))) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "https://p.test"},
        {"endpoint": "p.test:0"},
        {"endpoint": "[p.test]:1"},
        {"network": "10.0.0.0/30"},
        {"network": "10.0.0.1/24"},
        {"interface": "a-name"},
        {"interface": "enlist"},
        {"interface": "x0; reboot0"},
        {"port": 53},
        {"mtu": 900},
        {"keepalive_seconds": 0},
    ],
    ids=str,
)
def test_a_setting_out_of_shape_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError):
        groups.MeshGroup.model_validate(wrong)
