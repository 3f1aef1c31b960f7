"""A rule set of nftables is judged for one port as the kernel would judge a stranger's packet."""

from typing import Any

import pytest

from installer.checkup import packet_filter

PORT = 8443
OPEN, DEPENDS, BLOCKED = packet_filter.Verdict


def ruleset(*rules: list[dict[str, Any]], policy: str = "drop", **more: Any) -> dict[str, Any]:
    """A table with one chain at the input hook, and further chains by their name."""
    place = {"family": "inet", "table": "filter"}
    chains = {"input": list(rules), **more}
    hook = {"type": "filter", "hook": "input", "prio": 0, "policy": policy}
    return {
        "nftables": [
            {"metainfo": {"json_schema_version": 1}},
            {"table": {"family": "inet", "name": "filter"}},
            *(
                {"chain": {**place, "name": name, **(hook if name == "input" else {})}}
                for name in chains
            ),
            *(
                {"rule": {**place, "chain": name, "expr": expressions}}
                for name, several in chains.items()
                for expressions in several
            ),
        ]
    }


def dport(right: Any, *, protocol: str = "tcp", op: str = "==") -> dict[str, Any]:
    return {
        "match": {
            "op": op,
            "left": {"payload": {"protocol": protocol, "field": "dport"}},
            "right": right,
        }
    }


def meta(key: str, right: Any, *, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"meta": {"key": key}}, "right": right}}


def state(*right: str) -> dict[str, Any]:
    return {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": list(right)}}


def source(right: Any) -> dict[str, Any]:
    left = {"payload": {"protocol": "ip", "field": "saddr"}}
    return {"match": {"op": "==", "left": left, "right": right}}


ACCEPT: dict[str, Any] = {"accept": None}
DROP: dict[str, Any] = {"drop": None}
COUNT: dict[str, Any] = {"counter": {"packets": 0, "bytes": 0}}

CASES: dict[str, tuple[dict[str, Any], packet_filter.Verdict]] = {
    "no chain at the input hook": ({"nftables": []}, OPEN),
    "a policy that accepts, and no rule": (ruleset(policy="accept"), OPEN),
    "a policy that drops, and no rule": (ruleset(), BLOCKED),
    "the port is accepted": (ruleset([dport(PORT), COUNT, ACCEPT]), OPEN),
    "another port is accepted": (ruleset([dport(22), ACCEPT]), BLOCKED),
    "the port is in a set": (ruleset([dport({"set": [22, PORT]}), ACCEPT]), OPEN),
    "the port is in a range": (ruleset([dport({"range": [8000, 9000]}), ACCEPT]), OPEN),
    "the port is in a range of a set": (
        ruleset([dport({"set": [22, {"range": [8443, 8446]}]}), ACCEPT]),
        OPEN,
    ),
    "the port of another protocol is accepted": (
        ruleset([dport(PORT, protocol="udp"), ACCEPT]),
        BLOCKED,
    ),
    "every port of UDP but one is accepted": (
        ruleset([dport(53, protocol="udp", op="!="), ACCEPT]),
        BLOCKED,
    ),
    "every other port is dropped": (
        ruleset([dport(PORT, op="!="), DROP], policy="accept"),
        OPEN,
    ),
    "the port is dropped before it is accepted": (
        ruleset([dport(PORT), DROP], [dport(PORT), ACCEPT]),
        BLOCKED,
    ),
    "the port is refused": (
        ruleset([dport(PORT), {"reject": {"type": "tcp reset"}}], policy="accept"),
        BLOCKED,
    ),
    "answers alone are let in": (ruleset([state("established", "related"), ACCEPT]), BLOCKED),
    "new connections are let in": (ruleset([state("new", "established"), ACCEPT]), OPEN),
    "states by a map": (
        ruleset([
            {"vmap": {"key": {"ct": {"key": "state"}},
                      "data": {"set": [["established", ACCEPT], ["invalid", DROP]]}}},
        ]),
        BLOCKED,
    ),
    "ports by a map": (
        ruleset([
            {"vmap": {"key": {"payload": {"protocol": "tcp", "field": "dport"}},
                      "data": {"set": [[22, ACCEPT], [PORT, ACCEPT]]}}},
        ]),
        OPEN,
    ),
    "the machine itself alone is let in": (ruleset([meta("iifname", "lo"), ACCEPT]), BLOCKED),
    "whatever is not the machine itself is dropped": (
        ruleset([meta("iifname", "lo", op="!="), DROP], policy="accept"),
        BLOCKED,
    ),
    "one network is let in": (
        ruleset([source({"prefix": {"addr": "10.0.0.0", "len": 8}}), dport(PORT), ACCEPT]),
        DEPENDS,
    ),
    "one network is kept out": (
        ruleset([source("192.0.2.1"), DROP], policy="accept"),
        DEPENDS,
    ),
    "a rate is let in": (
        ruleset([dport(PORT), {"limit": {"rate": 10, "per": "second"}}, ACCEPT]),
        DEPENDS,
    ),
    "one network is let in, but then all of TCP": (
        ruleset([source("192.0.2.1"), ACCEPT], [meta("l4proto", "tcp"), ACCEPT]),
        OPEN,
    ),
    "a chain that is jumped to accepts the port": (
        ruleset([{"jump": {"target": "ours"}}], ours=[[dport(PORT), ACCEPT]]),
        OPEN,
    ),
    "a chain that is jumped to returns, and the next rule accepts": (
        ruleset(
            [{"jump": {"target": "ours"}}],
            [dport(PORT), ACCEPT],
            ours=[[dport(PORT), {"return": None}], [DROP]],
        ),
        OPEN,
    ),
    "a chain that is gone to does not come back": (
        ruleset([{"goto": {"target": "ours"}}], [dport(PORT), ACCEPT], ours=[[dport(22), ACCEPT]]),
        BLOCKED,
    ),
    "chains that jump in a circle": (
        ruleset([{"jump": {"target": "a"}}], a=[[{"jump": {"target": "a"}}]]),
        DEPENDS,
    ),
    "a rule of the iptables kind that may be anything": (
        ruleset([{"xt": {"type": "match", "name": "set"}}, ACCEPT]),
        DEPENDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_rule_set_is_judged_as_the_kernel_does(case: str) -> None:
    given, verdict = CASES[case]
    assert packet_filter.judge(given, port=PORT).verdict is verdict


def test_a_named_set_is_looked_up() -> None:
    given = ruleset([dport("@ours"), ACCEPT])
    given["nftables"].append(
        {"set": {"family": "inet", "table": "filter", "name": "ours", "elem": [22, PORT]}}
    )
    assert packet_filter.judge(given, port=PORT).verdict is OPEN


def test_every_chain_at_the_hook_must_let_it_through_and_the_one_that_does_not_is_named() -> None:
    given = ruleset([dport(PORT), ACCEPT])
    hook = {"type": "filter", "hook": "input", "prio": 10, "policy": "drop"}
    given["nftables"].append({"chain": {"family": "ip", "table": "mine", "name": "in", **hook}})
    found = packet_filter.judge(given, port=PORT)
    assert (found.verdict, found.family, found.table, found.chain) == (BLOCKED, "ip", "mine", "in")


def test_what_is_dropped_by_ipv6_alone_depends() -> None:
    hook = {"type": "filter", "hook": "input", "prio": 0, "policy": "drop"}
    given = {"nftables": [{"chain": {"family": "ip6", "table": "t", "name": "in", **hook}}]}
    assert packet_filter.judge(given, port=PORT).verdict is DEPENDS
