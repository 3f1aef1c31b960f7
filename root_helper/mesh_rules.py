"""Which addresses root lends its hand to: none that this machine uses already.

Nobody's signature says which address a node has in the mesh, so both ends are judged by what the
machine itself says: for private use, and neither a name server of it, nor a router, nor in any
network that it is part of or has a route of its own to. Known limit: an address for private use
that is reached by the default route alone is free to be claimed (docs/threats.md).
"""

import ipaddress
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from root_helper import refusals
from runtime_kit import private_files
from runtime_kit.wireguard import config, programs

RESOLVER_FILES: Final = tuple(
    pathlib.Path(name)
    for name in (
        "/etc/resolv.conf",
        "/run/systemd/resolve/resolv.conf",  # behind resolved's own 127.0.0.53: the real ones
        "/run/NetworkManager/no-stub-resolv.conf",
    )
)
_MOST_RESOLVER_BYTES: Final = 65_536
_RANGES: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_LEADS_NOWHERE: Final = ("blackhole", "unreachable", "prohibit", "throw")
_HALF: Final = 1  # 0.0.0.0/1 and 128.0.0.0/1 are how some networks say "default"


async def require_harmless(
    addresses: Sequence[config.Address],
    *,
    own: str,
    run: programs.Runner,
    resolver_files: Iterable[pathlib.Path] = RESOLVER_FILES,
) -> None:
    """That both may be the mesh's; `own` is the mark of our interface. Raises `Refused`."""
    try:
        marked = read_list(await run("ip", "-j", "link", "show"))  # the only one that tells alias
        links = read_list(await run("ip", "-j", "address", "show"))
        routes = read_list(await run("ip", "-j", "route", "show", "table", "all"))
        names = {str(link.get("ifname")) for link in marked if link.get("ifalias") == own}
        taken = [*_of_links(links, but=names), *_of_routes(routes, but=names)]
        for path in resolver_files:
            taken += [(config.alone(one), "name server") for one in _resolvers(path)]
    except (programs.Fault, OSError, ValueError, KeyError, private_files.FileTooLarge) as error:
        raise refusals.Refused(
            refusals.Code.FAILED, f"The machine's networks cannot be told: {error}"
        ) from error
    for address in addresses:
        if not any(address in one for one in _RANGES):
            raise refusals.Refused(
                refusals.Code.REFUSED,
                f"{address} is no address for private use, and the mesh takes no other.",
            )
        for network, what in taken:
            if address in network:
                raise refusals.Refused(
                    refusals.Code.REFUSED, f"{address} is of the {what} of this machine: {network}."
                )
    if len(set(addresses)) != len(addresses):
        raise refusals.Refused(refusals.Code.REFUSED, "Both ends cannot have one address.")


def read_list(raw: bytes) -> list[dict[str, Any]]:
    """What `ip -j` says; raises `Fault`, and `ValueError` for what is no JSON."""
    content = json.loads(raw or b"[]")
    if not isinstance(content, list):
        raise programs.Fault("ip: its JSON is no list.")
    return [one for one in content if isinstance(one, dict)]


def _of_links(
    links: Iterable[dict[str, Any]], *, but: set[str]
) -> Iterator[tuple[config.Network, str]]:
    for link in links:
        if str(link.get("ifname")) in but:
            continue
        for one in link.get("addr_info", []):
            network = ipaddress.ip_network(f"{one['local']}/{one['prefixlen']}", strict=False)
            yield network, f"network of {link.get('ifname')}"
            if "address" in one:  # the other end of a line between two
                yield config.alone(ipaddress.ip_address(one["address"])), "neighbours"


def _of_routes(
    routes: Iterable[dict[str, Any]], *, but: set[str]
) -> Iterator[tuple[config.Network, str]]:
    for route in routes:
        if str(route.get("dev")) in but or route.get("type") in _LEADS_NOWHERE:
            continue
        for hop in (route, *route.get("nexthops", [])):
            for text in (hop.get("gateway"), (hop.get("via") or {}).get("host")):
                if text is not None:
                    yield config.alone(ipaddress.ip_address(text)), "routers"
        if route["dst"] != "default":
            network = ipaddress.ip_network(route["dst"], strict=False)
            if network.prefixlen > _HALF:
                yield network, "routes"


def _resolvers(path: pathlib.Path) -> Iterator[config.Address]:
    try:
        content = private_files.read_bounded(path, max_bytes=_MOST_RESOLVER_BYTES)
    except FileNotFoundError:
        return
    for line in content.decode(errors="replace").splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            try:
                yield ipaddress.ip_address(words[1].partition("%")[0])
            except ValueError:
                continue  # the C library takes no other form either
