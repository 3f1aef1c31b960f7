"""The bridge that local machines are on: one private network, whose first address is this host's.

Machines reach this host and one another. Nothing is forwarded and nothing translated: the host's
firewall and routes are the operator's, and docs/providers/local.md has the line for a way out.

Known limit: IPv4, one network a bridge; a bridge of that name that somebody else made is used only
if it has that very address.
"""

import ipaddress
import json
from typing import Any, Final, Protocol

from provisioning.local import machines, programs

NAME: Final = "enlist-br0"


class InTheWay(machines.Unusable):
    """Another network of this host has these addresses, or the bridge has others."""


class Network(Protocol):
    """What machines are plugged into."""

    def ensure(self, network: ipaddress.IPv4Network) -> None:
        """It is up, with its address; may be repeated. Raises `InTheWay`."""
        ...

    def remove_if_unused(self) -> None:
        """It goes where nothing is on it any more."""
        ...


def address_of(network: ipaddress.IPv4Network) -> str:
    """This host's address on the bridge."""
    return str(next(network.hosts()))


class Bridge:
    """A bridge of the kernel's."""

    def __init__(self, name: str = NAME) -> None:
        self._name = name

    def ensure(self, network: ipaddress.IPv4Network) -> None:
        """Makes it where it is missing."""
        name = self._name
        shown = _shown("address", "show")
        mine = next((link for link in shown if link["ifname"] == name), None)
        wanted = f"{address_of(network)}/{network.prefixlen}"
        has = [] if mine is None else _addresses(mine)
        if has and wanted not in has:
            raise InTheWay(
                f"The bridge {name} has {', '.join(has)}, not {wanted}. Delete its machines and it "
                f"(ip link del {name}), or set [local] network to what it has."
            )
        _require_free(network, shown=[link for link in shown if link["ifname"] != name])
        if mine is None:
            programs.run("ip", "link", "add", name, "type", "bridge", "forward_delay", "0")
        if wanted not in has:
            programs.run("ip", "address", "add", wanted, "dev", name)
        programs.run("ip", "link", "set", name, "up")

    def remove_if_unused(self) -> None:
        """Removes it where no cable is in it."""
        shown = _shown("link", "show")
        is_used = any(link.get("master") == self._name for link in shown)
        if not is_used and any(link["ifname"] == self._name for link in shown):
            programs.run("ip", "link", "del", self._name)


def _require_free(network: ipaddress.IPv4Network, *, shown: list[dict[str, Any]]) -> None:
    for link in shown:
        for address in _addresses(link):
            if ipaddress.IPv4Interface(address).network.overlaps(network):
                raise InTheWay(
                    f"{link['ifname']} of this host has {address}, which {network} overlaps: "
                    "set [local] network to another private one."
                )


def _addresses(link: dict[str, Any]) -> list[str]:
    return [
        f"{one['local']}/{one['prefixlen']}"
        for one in link.get("addr_info", ())
        if one.get("family") == "inet"
    ]


def _shown(*words: str) -> list[dict[str, Any]]:
    return [link for link in json.loads(programs.run("ip", "-json", *words) or "[]") if link]
