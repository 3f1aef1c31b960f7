"""Which command opens Enlist's ports in the firewall that runs here; run only when asked to.

The exact command is always said. Run, it is written into the receipt together with the one that
takes it back, and only where it changed something: a rule of the administrator's own is left as it
is at removal. Known limits: a rule put in with nft lives until the rules are loaded anew, which the
text says; and a firewall outside the machine is not seen.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from installer import layout as layout_kit
from installer import programs
from installer import receipt as receipt_kit

PORTS = {
    layout_kit.Role.WORKER: (8443,),  # only for an Agent that listens
    layout_kit.Role.PLATFORM: (8444, 8445, 8446),
}
"""Enrollment listener, gateway and bundle port; the API stays on the loopback interface."""

_HANDLE = re.compile(r'comment "(enlist-\d+)".*# handle (\d+)')

Ask = Callable[[Sequence[str]], str | None]


def ask(command: Sequence[str]) -> str | None:
    """What a program prints; None where it is missing or refuses."""
    found = programs.find(command[0])
    if found is None:
        return None
    try:
        done = programs.ask([found, *command[1:]], seconds=20)
    except programs.ProgramFailed:
        return None
    return done.stdout if done.returncode == 0 else None


def openings(ports: Sequence[int], *, ask: Ask = ask) -> list[receipt_kit.Opened]:
    """What to run here for these ports; empty where no firewall runs."""
    status = ask(["ufw", "status"])
    if status is not None and "Status: active" in status:
        return [_ufw(port) for port in ports]
    if (ask(["firewall-cmd", "--state"]) or "").strip() == "running":
        return [_firewalld(port) for port in ports]
    chain = _input_chain(ask(["nft", "-j", "list", "chains"]))
    if chain is not None:
        return [_nft(port, chain=chain) for port in ports]
    return []


def open_port(opened: receipt_kit.Opened, *, ask: Ask = ask) -> bool:
    """Runs it; says whether it changed anything. Raises `ProgramFailed`."""
    if is_open(opened, ask=ask):
        return False
    programs.run(list(opened.done))
    if opened.tool == "firewalld":  # the rules of now, beside those of the next start
        programs.run([word for word in opened.done if word != "--permanent"])
    return True


def is_open(opened: receipt_kit.Opened, *, ask: Ask = ask) -> bool:
    """Whether such a rule is there already."""
    if opened.tool == "ufw":
        port = opened.undo[-1]
        added = ask(["ufw", "show", "added"]) or ""
        return any(line.startswith(f"ufw allow {port}") for line in added.splitlines())
    if opened.tool == "firewalld":
        port = opened.done[-1].replace("--add-port=", "--query-port=")
        return (ask(["firewall-cmd", "--permanent", port]) or "").strip() == "yes"
    return _handle(opened, ask=ask) is not None


def close(opened: receipt_kit.Opened, *, ask: Ask = ask) -> None:
    """Takes it back; a rule that is gone is passed over. Raises `ProgramFailed`."""
    if not is_open(opened, ask=ask):
        return
    if opened.tool == "nft":
        handle = _handle(opened, ask=ask)
        programs.run([*opened.undo[:-1], handle or ""])
        return
    programs.run(list(opened.undo))
    if opened.tool == "firewalld":
        programs.ask([word for word in opened.undo if word != "--permanent"])


def _ufw(port: int) -> receipt_kit.Opened:
    return receipt_kit.Opened(
        tool="ufw",
        done=("ufw", "allow", f"{port}/tcp", "comment", "Enlist"),
        undo=("ufw", "delete", "allow", f"{port}/tcp"),
    )


def _firewalld(port: int) -> receipt_kit.Opened:
    return receipt_kit.Opened(
        tool="firewalld",
        done=("firewall-cmd", "--permanent", f"--add-port={port}/tcp"),
        undo=("firewall-cmd", "--permanent", f"--remove-port={port}/tcp"),
    )


def _nft(port: int, *, chain: tuple[str, str, str]) -> receipt_kit.Opened:
    """The last word of `undo` is replaced by the rule's handle, which only the kernel knows."""
    rule = ("tcp", "dport", str(port), "accept", "comment", f'"enlist-{port}"')
    return receipt_kit.Opened(
        tool="nft",
        done=("nft", "insert", "rule", *chain, *rule),
        undo=("nft", "delete", "rule", *chain, "handle", f"enlist-{port}"),
    )


def _handle(opened: receipt_kit.Opened, *, ask: Ask) -> str | None:
    family, table, chain = opened.undo[3:6]
    listed = ask(["nft", "-a", "list", "chain", family, table, chain]) or ""
    for line in listed.splitlines():
        found = _HANDLE.search(line)
        if found and found[1] == opened.undo[-1]:
            return found[2]
    return None


def _input_chain(listed: str | None) -> tuple[str, str, str] | None:
    """The chain that what comes in must pass and that drops what no rule lets through."""
    try:
        entries: list[Any] = json.loads(listed or "{}").get("nftables", [])
    except (ValueError, AttributeError):
        return None
    for entry in entries:
        chain = entry.get("chain") if isinstance(entry, dict) else None
        if (
            isinstance(chain, dict)
            and chain.get("hook") == "input"
            and chain.get("policy") == "drop"
        ):
            return str(chain["family"]), str(chain["table"]), str(chain["name"])
    return None
