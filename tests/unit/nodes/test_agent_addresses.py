"""Which addresses the Platform dials on a machine's word."""

import ipaddress

import pytest

from platform_server.nodes import addresses
from wire_protocol import agent_url

ALLOWED = {
    "a public IPv4 address": "https://203.0.113.9:8443",
    "a private IPv4 address": "https://10.1.2.3:8443",
    "a unique local IPv6 address": "https://[fd12:3456::1]:8443",
    "a global IPv6 address": "https://[2a01:4f8::1]:8443",
    "a host name": "https://worker-1.example.com:8443",
}
FORBIDDEN = {
    "loopback": "https://127.0.0.1:8443",
    "loopback in IPv6": "https://[::1]:8443",
    "loopback in an IPv6 coat": "https://[::ffff:127.0.0.1]:8443",
    "loopback by NAT64": "https://[64:ff9b::7f00:1]:8443",
    "loopback by 6to4": "https://[2002:7f00:1::]:8443",
    "loopback by name": "https://localhost:8443",
    "loopback by a longer name": "https://db.localhost:8443",
    "link-local": "https://169.254.10.1:8443",
    "link-local in IPv6": "https://[fe80::1]:8443",
    "the metadata service": "https://169.254.169.254:8443",
    "the metadata service in an IPv6 coat": "https://[::ffff:169.254.169.254]:8443",
    "the metadata service of EC2 in IPv6": "https://[fd00:ec2::254]:8443",
    "the metadata service of Alibaba": "https://100.100.100.200:8443",
    "the wire server of Azure": "https://168.63.129.16:8443",
    "the metadata service by name": "https://metadata.google.internal:8443",
    "multicast": "https://224.0.0.1:8443",
    "multicast in IPv6": "https://[ff02::1]:8443",
    "no address at all": "https://0.0.0.0:8443",
    "this network": "https://0.1.2.3:8443",
    "broadcast": "https://255.255.255.255:8443",
    "a reserved address": "https://240.0.0.1:8443",
}


@pytest.mark.parametrize("url", ALLOWED.values(), ids=ALLOWED.keys())
def test_a_machine_may_name(url: str) -> None:
    addresses.judge_url(agent_url.parse(url), caller_is_local=False, networks=())


@pytest.mark.parametrize("url", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_machine_may_not_name(url: str) -> None:
    with pytest.raises(addresses.Forbidden):
        addresses.judge_url(agent_url.parse(url), caller_is_local=False, networks=())


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:8443", "https://[::1]:8443", "https://localhost:8443"]
)
def test_a_caller_on_loopback_may_name_loopback(url: str) -> None:
    addresses.judge_url(agent_url.parse(url), caller_is_local=True, networks=())


@pytest.mark.parametrize(
    ("caller", "local"),
    [
        (None, True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("nonsense", False),
    ],
)
def test_a_caller_is_local_by_his_address_alone(caller: str | None, *, local: bool) -> None:
    assert addresses.is_loopback(caller) is local


def test_agent_networks_narrow_what_may_be_named() -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]
    for inside in ("https://10.9.9.9:8443", "https://[fd00::9]:8443"):
        addresses.judge_url(agent_url.parse(inside), caller_is_local=False, networks=networks)
    with pytest.raises(addresses.Forbidden, match="outside the networks"):
        addresses.judge_url(
            agent_url.parse("https://203.0.113.9:8443"), caller_is_local=False, networks=networks
        )
