"""Whether this machine's own firewall lets machines through to the ports that Enlist uses.

Read only: ufw's own files, what firewalld says, the kernel's rules by `nft -j list ruleset`. The
front end that manages the rules is asked and named, since a rule put beside it would be lost. What
stands between machines (a provider's security group, a router) is not seen from here.
Known limit: rules of the old iptables kind that no front end manages are not read.
"""

import json
import pathlib
import re
from collections.abc import Sequence

from installer.checkup import around as around_kit
from installer.checkup import joining, packet_filter
from installer.checkup import seen as seen_kit
from wire_protocol import findings

_UFW_ALLOWS = ("allow", "limit")
_UFW_DENIES = ("deny", "reject")
_ANYWHERE = ("0.0.0.0/0", "::/0", "any")

Found = tuple[findings.Finding, ...]
Verdict = packet_filter.Verdict


def look(seen: seen_kit.Seen) -> Found:
    """One finding a port that the role uses."""
    try:
        return judge(seen.around, ports=joining.ports(seen))
    except around_kit.CannotLook as error:
        return (findings.skipped("firewall", f"{error}"),)


def judge(around: around_kit.Around, *, ports: Sequence[tuple[int, str]]) -> Found:
    """One finding a port, each with what it is for; raises `CannotLook`."""
    if not ports:
        return (findings.skipped("firewall", "No port of this role is used from outside."),)
    try:
        if _ufw_is_on(around):
            return tuple(_by_ufw(around, port=port, use=use) for port, use in ports)
        if _firewalld_is_on(around):
            return tuple(_by_firewalld(around, port=port, use=use) for port, use in ports)
        return _by_nft(around, ports=ports)
    except PermissionError as error:
        raise around_kit.CannotLook(f"{error.filename} is for root to read.") from error


def _told(
    port: int, use: str, verdict: Verdict, *, by: str, command: str, look_at: str
) -> findings.Finding:
    name = f"firewall.{port}"
    facts = {"port": port, "use": use, "firewall": by, "verdict": verdict.value}
    if verdict is Verdict.BLOCKED:
        return findings.needs_operator(
            name, f"{by} drops what comes to port {port} ({use}).", command=command, facts=facts
        )
    if verdict is Verdict.DEPENDS:
        return findings.warning(
            name,
            f"{by} lets only some through to port {port} ({use}).",
            command=look_at,
            facts=facts,
        )
    return findings.ok(name, f"{by} lets port {port} ({use}) through.", facts=facts)


def _ufw_is_on(around: around_kit.Around) -> bool:
    try:
        content = _text(around.under("/etc/ufw/ufw.conf"))
    except FileNotFoundError:
        return False
    return bool(re.search(r"^ENABLED\s*=\s*[\"']?yes\b", content, re.MULTILINE | re.IGNORECASE))


def _by_ufw(around: around_kit.Around, *, port: int, use: str) -> findings.Finding:
    rules = _text(around.under("/etc/ufw/user.rules"))
    try:
        defaults = _text(around.under("/etc/default/ufw"))
    except FileNotFoundError:
        defaults = ""
    policy = re.search(r"^DEFAULT_INPUT_POLICY\s*=\s*[\"']?(\w+)", defaults, re.MULTILINE)
    is_open = policy is not None and policy[1].upper() == "ACCEPT"
    return _told(
        port,
        use,
        ufw_verdict(rules, port=port, is_open=is_open),
        by="ufw",
        command=f"sudo ufw allow {port}/tcp",
        look_at="sudo ufw status verbose",
    )


def ufw_verdict(rules: str, *, port: int, is_open: bool) -> Verdict:
    """The first rule that matches decides, else the default; `rules` is ufw's own file."""
    depends = False
    for line in rules.splitlines():
        words = line.split()
        if words[:3] != ["###", "tuple", "###"] or len(words) < 10:
            continue
        action, protocol, wanted, source = words[3].partition("_")[0], *words[4:6], words[8]
        if protocol not in ("tcp", "any") or not _ufw_names(wanted, port):
            continue
        if action not in (*_UFW_ALLOWS, *_UFW_DENIES):
            continue  # of routed packets
        if source not in _ANYWHERE or "in" not in words[9:]:  # or on one interface: in_eth1
            depends = depends or (action in _UFW_ALLOWS) != is_open
            continue
        if action in _UFW_ALLOWS:
            return Verdict.DEPENDS if depends and is_open else Verdict.OPEN
        return Verdict.DEPENDS if depends else Verdict.BLOCKED
    if depends:
        return Verdict.DEPENDS
    return Verdict.OPEN if is_open else Verdict.BLOCKED


def _ufw_names(wanted: str, port: int) -> bool:
    if wanted == "any":
        return True
    for part in wanted.split(","):
        low, _, high = part.partition(":")
        if low.isdigit() and int(low) <= port <= int(high if high.isdigit() else low):
            return True
    return False


def _firewalld_is_on(around: around_kit.Around) -> bool:
    if around.find_program("firewall-cmd") is None:
        return False
    return around.run("firewall-cmd", "--state").code == 0


def _by_firewalld(around: around_kit.Around, *, port: int, use: str) -> findings.Finding:
    said = around.run("firewall-cmd", "--list-all")
    if said.code != 0:
        raise around_kit.CannotLook(f"firewall-cmd --list-all: {said.err.strip()[:200]}.")
    return _told(
        port,
        use,
        firewalld_verdict(said.out, port=port),
        by="firewalld",
        command=f"sudo firewall-cmd --permanent --add-port={port}/tcp && "
        "sudo firewall-cmd --reload",
        look_at="sudo firewall-cmd --list-all",
    )


def firewalld_verdict(zone: str, *, port: int) -> Verdict:
    """What the default zone says, as `firewall-cmd --list-all` prints it."""
    fields = dict(re.findall(r"^\s+([a-z -]+): ?(.*)$", zone, re.MULTILINE))
    if fields.get("target", "").strip() == "ACCEPT":
        return Verdict.OPEN
    for entry in fields.get("ports", "").split():
        numbers, _, protocol = entry.partition("/")
        low, _, high = numbers.partition("-")
        if protocol == "tcp" and low.isdigit() and int(low) <= port <= int(high or low):
            return Verdict.OPEN
    return Verdict.DEPENDS if f'port="{port}"' in zone else Verdict.BLOCKED


def _by_nft(around: around_kit.Around, *, ports: Sequence[tuple[int, str]]) -> Found:
    if around.find_program("nft") is None:
        return (findings.skipped("firewall", "Neither ufw, firewalld nor nft is installed here."),)
    said = around.run("nft", "-j", "list", "ruleset")
    if said.code != 0:
        why = said.err.strip().partition("\n")[0][:200] or f"it ended with {said.code}"
        return (findings.skipped("firewall", f"nft list ruleset: {why}."),)
    try:
        ruleset = json.loads(said.out)
    except ValueError:
        return (findings.skipped("firewall", "What nft printed cannot be read."),)
    found = []
    for port, use in ports:
        one = packet_filter.judge(ruleset, port=port)
        chain = f"{one.family} {one.table} {one.chain}"
        found.append(
            _told(
                port,
                use,
                one.verdict,
                by="nftables" if one.verdict is Verdict.OPEN else f"nftables (chain {chain})",
                command=f"sudo nft insert rule {chain} tcp dport {port} accept"
                "   (and the same line in /etc/nftables.conf)",
                look_at=f"sudo nft list chain {chain}",
            )
        )
    return tuple(found)


def _text(path: pathlib.Path) -> str:
    return around_kit.read(path).decode(errors="replace")
