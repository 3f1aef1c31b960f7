"""What ufw's files and firewalld's answers say of a port."""

import pytest

from installer.checkup import firewalls, packet_filter

PORT = 8443
OPEN, DEPENDS, BLOCKED = packet_filter.Verdict

ALLOW_SSH = "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in"
ALLOW = "### tuple ### allow tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in comment=656e6c697374"

UFW: dict[str, tuple[list[str], bool, packet_filter.Verdict]] = {
    "no rule, and incoming denied": ([], False, BLOCKED),
    "no rule, and incoming allowed": ([], True, OPEN),
    "another port": ([ALLOW_SSH], False, BLOCKED),
    "the port": ([ALLOW_SSH, ALLOW], False, OPEN),
    "a list of ports": (
        ["### tuple ### allow tcp 80,8443 0.0.0.0/0 any 0.0.0.0/0 in"],
        False,
        OPEN,
    ),
    "a range of ports": (
        ["### tuple ### allow tcp 8440:8450 0.0.0.0/0 any 0.0.0.0/0 in"],
        False,
        OPEN,
    ),
    "any protocol": (["### tuple ### allow any 8443 0.0.0.0/0 any 0.0.0.0/0 in"], False, OPEN),
    "UDP alone": (["### tuple ### allow udp 8443 0.0.0.0/0 any 0.0.0.0/0 in"], False, BLOCKED),
    "denied first": (
        ["### tuple ### deny tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in", ALLOW],
        False,
        BLOCKED,
    ),
    "denied, where incoming is allowed": (
        ["### tuple ### reject tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in"],
        True,
        BLOCKED,
    ),
    "from one network": (
        ["### tuple ### allow tcp 8443 0.0.0.0/0 any 10.0.0.0/8 in"],
        False,
        DEPENDS,
    ),
    "on one interface": (
        ["### tuple ### allow tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in_eth1"],
        False,
        DEPENDS,
    ),
    "of routed packets": (
        ["### tuple ### route:allow tcp 8443 0.0.0.0/0 any 0.0.0.0/0 in"],
        False,
        BLOCKED,
    ),
}


@pytest.mark.parametrize("case", UFW)
def test_ufws_first_rule_that_matches_decides(case: str) -> None:
    lines, is_open, verdict = UFW[case]
    rules = "*filter\n" + "\n".join(lines) + "\nCOMMIT\n"
    assert firewalls.ufw_verdict(rules, port=PORT, is_open=is_open) is verdict


ZONE = """public (active)
  target: {target}
  icmp-block-inversion: no
  interfaces: eth0
  sources:
  services: dhcpv6-client ssh
  ports: {ports}
  protocols:
  forward: yes
  rich rules:
{rich}
"""

ZONES: dict[str, tuple[dict[str, str], packet_filter.Verdict]] = {
    "no ports": ({}, BLOCKED),
    "the port": ({"ports": "22/tcp 8443/tcp"}, OPEN),
    "a range": ({"ports": "8440-8450/tcp"}, OPEN),
    "UDP alone": ({"ports": "8443/udp"}, BLOCKED),
    "a zone that accepts": ({"target": "ACCEPT"}, OPEN),
    "a rich rule that names the port": (
        {"rich": '\trule family="ipv4" port port="8443" protocol="tcp" accept'},
        DEPENDS,
    ),
}


@pytest.mark.parametrize("case", ZONES)
def test_a_zone_of_firewalld_is_read_as_it_prints_it(case: str) -> None:
    given, verdict = ZONES[case]
    zone = ZONE.format(**{"target": "default", "ports": "", "rich": "", **given})
    assert firewalls.firewalld_verdict(zone, port=PORT) is verdict
