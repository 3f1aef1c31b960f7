"""One interface of ours: made, brought to what it should be, looked at, removed.

Whatever a killed process left is taken up again: an interface is ours by the mark on it (its
alias), a fresh one without key and mark by its name. One of somebody else's is never touched; then
the next number is tried. Nothing is forwarded through it: a routing rule drops what comes in by it
and is for no address of this machine. Known limit: a peer reaches everything this machine itself
serves, on any of its addresses; keeping it from that is the firewall's part.
"""

import asyncio
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from runtime_kit.wireguard import backends, config, programs

_IPV6: Final = pathlib.Path("/proc/sys/net/ipv6/conf")
_NAME: Final = re.compile(r"(.*?)(\d*)")
_NAMES_TRIED: Final = 16
_LONGEST_NAME: Final = 15
_PEERS_AT_ONCE: Final = 100
_LARGE_DUMP: Final = 65_536  # some hundred peers; ten thousand would hold the event loop up
RULE_PRIORITY: Final = 5182


class SomebodyElses(programs.Fault):
    """Every name that was tried belongs to an interface that is not ours."""


class Device:
    """An interface that is there. Used by one task."""

    def __init__(self, wanted: config.Wanted, *, name: str, run: programs.Runner) -> None:
        self._wanted = wanted
        self._run = run
        self.name = name

    async def apply(self, peers: Iterable[config.Peer]) -> None:
        """Brings key, port, peers, address and rules to what they should be; may be repeated.

        Peers that stay keep their sessions and the addresses they were last heard at.
        """
        name, wanted = self.name, self._wanted
        await self._run(
            "wg", "syncconf", name, "/dev/stdin", stdin=config.render(wanted, peers=peers)
        )
        await self._forward_nothing()
        await self._give_address()
        await self._run("ip", "link", "set", "dev", name, "mtu", str(wanted.mtu), "up")

    async def set_peers(self, peers: Sequence[config.Peer]) -> None:
        """Adds these, or changes them; the others stay."""
        for start in range(0, len(peers), _PEERS_AT_ONCE):
            words = [
                word
                for peer in peers[start : start + _PEERS_AT_ONCE]
                for word in config.words_of(peer)
            ]
            await self._run("wg", "set", self.name, *words)

    async def remove_peers(self, public_keys: Sequence[str]) -> None:
        """Ends these at once; one that is not there is none of these."""
        for start in range(0, len(public_keys), _PEERS_AT_ONCE):
            words = [
                word
                for key in public_keys[start : start + _PEERS_AT_ONCE]
                for word in ("peer", key, "remove")
            ]
            await self._run("wg", "set", self.name, *words)

    async def route(self, network: config.Network) -> None:
        """Sends what is for that network into the interface."""
        await self._run(
            "ip", f"-{network.version}", "route", "replace", str(network), "dev", self.name
        )

    async def look(self) -> config.State:
        """How it stands; raises `Fault` once it is gone."""
        raw = await self._run("wg", "show", self.name, "dump")
        try:
            if len(raw) > _LARGE_DUMP:
                return await asyncio.to_thread(config.parse_dump, raw)
            return config.parse_dump(raw)
        except ValueError as fault:
            raise programs.Fault(str(fault)) from fault

    async def is_ours(self) -> bool:
        """Whether it is still there under our mark."""
        return any(
            link.get("ifname") == self.name and link.get("ifalias") == self._wanted.owner
            for link in await _links(self._run)
        )

    async def remove(self) -> None:
        """Removes it and its rules, if it is still ours; may be repeated."""
        if await self.is_ours():
            await self._run("ip", "link", "del", "dev", self.name)
            await remove_rules(self._run, name=self.name)

    async def _give_address(self) -> None:
        version = self._wanted.address.version
        words = [] if version == 4 else ["nodad"]  # nobody else can have it: it was given out
        if version == 6:
            _turn_ipv6_on(self.name)
        await self._run(
            "ip", "address", "replace", str(self._wanted.address), "dev", self.name, *words
        )
        for one in await _addresses(self._run, name=self.name):
            if one != str(self._wanted.address):
                await self._run("ip", "address", "del", one, "dev", self.name)

    async def _forward_nothing(self) -> None:
        for family in _families():
            rules = _read_list(await self._run("ip", family, "-j", "rule", "show"))
            if not any(_is_our_rule(rule, name=self.name) for rule in rules):
                await self._run("ip", family, "rule", "add", *_rule(self.name))


async def ensure(
    wanted: config.Wanted,
    *,
    backend: backends.Backend,
    owners: str | None = None,
    run: programs.Runner = programs.run,
) -> Device:
    """The interface, taken up again or made anew; `apply` brings it to what it should be.

    `owners` is how the marks begin under which an interface counts as ours to take up; without it,
    the very mark alone. Raises `SomebodyElses`, and the faults of `programs`.
    """
    links = {str(link.get("ifname")): link for link in await _links(run)}
    for name, link in links.items():
        mark = str(link.get("ifalias", ""))
        if mark == wanted.owner or (owners is not None and mark.startswith(owners)):
            await _mark(run, name=name, owner=wanted.owner)
            return Device(wanted, name=name, run=run)
    for name in _names(wanted.name):
        if name in links:
            if not await _is_fresh(run, link=links[name]):
                continue
        else:
            try:
                await backend.create(name)
            except programs.NameTaken:
                continue
        await _mark(run, name=name, owner=wanted.owner)
        return Device(wanted, name=name, run=run)
    raise SomebodyElses(
        f"The interface {wanted.name} belongs to something else, and so do the next "
        f"{_NAMES_TRIED - 1} names."
    )


async def remove_leftovers(*, owner: str, run: programs.Runner = programs.run) -> Sequence[str]:
    """Removes every interface with this mark; gives their names."""
    gone = []
    for link in await _links(run):
        if link.get("ifalias") == owner:
            await run("ip", "link", "del", "dev", link["ifname"])
            await remove_rules(run, name=link["ifname"])
            gone.append(str(link["ifname"]))
    return gone


async def remove_rules(run: programs.Runner, *, name: str) -> None:
    """Removes the rules that named the interface; they outlive it."""
    for family in _families():
        rules = _read_list(await run("ip", family, "-j", "rule", "show"))
        for rule in rules:
            if _is_our_rule(rule, name=name):
                await run("ip", family, "rule", "del", *_rule(name))


def _turn_ipv6_on(name: str) -> None:
    """On this interface alone: where a machine has IPv6 off, a new interface has it off too."""
    switch = _IPV6 / name / "disable_ipv6"
    try:
        if switch.read_text().strip() != "0":
            switch.write_text("0")
    except FileNotFoundError:
        if not _IPV6.exists():
            raise programs.Fault(
                "The address is an IPv6 one, and this kernel has no IPv6: use an IPv4 network."
            ) from None
    except OSError as fault:
        raise programs.NotPermitted(f"{switch} cannot be written: {fault.strerror}") from fault


def _families() -> tuple[str, ...]:
    return ("-4", "-6") if _IPV6.exists() else ("-4",)


def _rule(name: str) -> tuple[str, ...]:
    return ("pref", str(RULE_PRIORITY), "iif", name, "blackhole")


def _is_our_rule(rule: dict[str, Any], *, name: str) -> bool:
    return rule.get("priority") == RULE_PRIORITY and rule.get("iif") == name


def _names(first: str) -> list[str]:
    """The name itself, then it with the next numbers."""
    found = _NAME.fullmatch(first)
    stem, number = (found[1], found[2]) if found else (first, "")
    start = int(number or 0)
    others = [f"{stem}{start + more}" for more in range(1, _NAMES_TRIED)]
    return [name for name in (first, *others) if len(name) <= _LONGEST_NAME]


async def _is_fresh(run: programs.Runner, *, link: dict[str, Any]) -> bool:
    """Whether it is a WireGuard interface that has neither mark nor key: one that we just made."""
    if link.get("ifalias"):
        return False
    try:
        state = config.parse_dump(await run("wg", "show", str(link["ifname"]), "dump"))
    except (programs.Fault, ValueError):
        return False
    return state.public_key is None and not state.peers


async def _mark(run: programs.Runner, *, name: str, owner: str) -> None:
    await run("ip", "link", "set", "dev", name, "alias", owner)


async def _links(run: programs.Runner) -> list[dict[str, Any]]:
    return _read_list(await run("ip", "-j", "link", "show"))


async def _addresses(run: programs.Runner, *, name: str) -> list[str]:
    """Those of the whole machine's scope; a link-local one comes and goes by itself."""
    found = _read_list(await run("ip", "-j", "address", "show", "dev", name))
    return [
        f"{one['local']}/{one['prefixlen']}"
        for link in found
        for one in link.get("addr_info", [])
        if one.get("scope") != "link" and "local" in one
    ]


def _read_list(raw: bytes) -> list[dict[str, Any]]:
    try:
        content = json.loads(raw or b"[]")
    except ValueError as fault:
        raise programs.Fault("ip: its JSON cannot be read.") from fault
    if not isinstance(content, list):
        raise programs.Fault("ip: its JSON is no list.")
    return [one for one in content if isinstance(one, dict)]
