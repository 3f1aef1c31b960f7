"""Which command opens a port in which firewall, from what the firewalls answer."""

import json
from collections.abc import Mapping, Sequence

import pytest

from installer import firewall

UFW_ON = "Status: active\n\nTo                         Action      From\n"
UFW_ADDED = "Added user rules (see 'ufw status' for running firewall):\nufw allow 22/tcp\n"
QUERY = "firewall-cmd --permanent --query-port=8444/tcp"
UFW_OURS = UFW_ADDED + "ufw allow 8444/tcp comment 'Enlist'\n"
DROPPING = json.dumps(
    {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"chain": {"family": "inet", "table": "filter", "name": "forward", "handle": 2,
                       "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
            {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1,
                       "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
        ]
    }
)  # fmt: skip
ACCEPTING = DROPPING.replace('"policy": "drop"', '"policy": "accept"')


def answering(answers: Mapping[str, str]) -> firewall.Ask:
    def ask(command: Sequence[str]) -> str | None:
        return answers.get(" ".join(command))

    return ask


COMMANDS = {
    "ufw that runs": (
        {"ufw status": UFW_ON},
        ("ufw allow 8444/tcp comment Enlist", "ufw delete allow 8444/tcp"),
    ),
    "ufw that is off": ({"ufw status": "Status: inactive\n"}, None),
    "firewalld": (
        {"firewall-cmd --state": "running\n"},
        (
            "firewall-cmd --permanent --add-port=8444/tcp",
            "firewall-cmd --permanent --remove-port=8444/tcp",
        ),
    ),
    "firewalld that is off": ({"firewall-cmd --state": "not running\n"}, None),
    "rules of nft that drop": (
        {"nft -j list chains": DROPPING},
        (
            'nft insert rule inet filter input tcp dport 8444 accept comment "enlist-8444"',
            "nft delete rule inet filter input handle enlist-8444",
        ),
    ),
    "rules of nft that let through": ({"nft -j list chains": ACCEPTING}, None),
    "an answer of nft that is none": ({"nft -j list chains": "<html>"}, None),
    "no firewall at all": ({}, None),
    # ufw keeps its rules in the kernel's tables: the front end goes first, since it writes anew.
    "ufw over rules of nft": (
        {"ufw status": UFW_ON, "nft -j list chains": DROPPING},
        ("ufw allow 8444/tcp comment Enlist", "ufw delete allow 8444/tcp"),
    ),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_the_command_for(what: str) -> None:
    answers, expected = COMMANDS[what]
    found = firewall.openings([8444], ask=answering(answers))
    said = [(" ".join(one.done), " ".join(one.undo)) for one in found]
    assert said == ([] if expected is None else [expected])


OPEN = {
    "ufw has the rule": ("ufw status", UFW_ON, "ufw show added", UFW_OURS, True),
    "ufw has others": ("ufw status", UFW_ON, "ufw show added", UFW_ADDED, False),
    "firewalld has the port": (
        "firewall-cmd --state", "running", QUERY, "yes\n",
        True,
    ),
    "firewalld has it not": (
        "firewall-cmd --state", "running", QUERY, None,
        False,
    ),
    "nft has the rule": (
        "nft -j list chains", DROPPING, "nft -a list chain inet filter input",
        'tcp dport 8444 accept comment "enlist-8444" # handle 7\n', True,
    ),
    "nft has another of ours": (
        "nft -j list chains", DROPPING, "nft -a list chain inet filter input",
        'tcp dport 8445 accept comment "enlist-8445" # handle 8\n', False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OPEN)
def test_a_rule_that_is_there_is_seen(what: str) -> None:
    asked, answer, second, then, expected = OPEN[what]
    answers = {asked: answer}
    if then is not None:
        answers[second] = then
    (opening,) = firewall.openings([8444], ask=answering(answers))
    assert firewall.is_open(opening, ask=answering(answers)) is expected
