"""Names, addresses and proxies on the ways to the Platform: what they are, and which answer."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from runtime_kit import dial, failures
from wire_protocol import findings
from worker_agent.doctor import legs

CONNECT_SECONDS = 2.0  # for one address; a round trip around the world takes 0.3 s


async def names(leg: legs.Leg, *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """Which addresses the name has in each family, and which of them can be connected to."""
    name = f"dns.{leg.name}"
    try:
        origin = leg.origin
        proxy = dial.find_proxy(origin.host, port=origin.port, environment=around.environment)
    except failures.NetworkFailure:
        return (findings.skipped(name, "The address or the proxy cannot be used; see proxy."),)
    if proxy is not None:
        return (findings.skipped(name, f"The proxy {proxy.host}:{proxy.port} looks names up."),)
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            origin.host, origin.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        return (
            findings.transient(
                name,
                f"The name {origin.host} could not be resolved: "
                f"{getattr(error, 'strerror', None) or error}.",
                command=f"getent ahosts {origin.host}; cat /etc/resolv.conf",
            ),
        )
    found = list(dict.fromkeys(str(info[4][0]) for info in infos))[: legs.MOST_ADDRESSES]
    reached = await asyncio.gather(
        *(_connect(one, port=origin.port, around=around) for one in found)
    )
    facts = {"addresses": dict(zip(found, reached, strict=True))}
    dead = [one for one, took in zip(found, reached, strict=True) if took is None]
    port = origin.port
    if len(dead) == len(found):
        return (
            findings.transient(
                name,
                f"Nothing answers at {', '.join(found)} on port {port}: the Platform is down, or a "
                "firewall is in between.",
                command=f"ping -c 3 {found[0]}; nc -vz {found[0]} {port}",
                facts=facts,
            ),
        )
    if dead:
        families = sorted({_family(one) for one in dead})
        return (
            findings.warning(
                name,
                f"{origin.host} also has {', '.join(dead)}, which does not answer on port {port} "
                f"({' and '.join(families)}): each connection loses a moment there.",
                command=f"nc -vz {dead[0]} {port}",
                facts=facts,
            ),
        )
    quickest = min(took for took in reached if took is not None)
    shown = ", ".join(found) if found != [origin.host] else "an address"
    return (
        findings.ok(name, f"{origin.host} is {shown}; connected in {quickest} ms.", facts=facts),
    )


async def _connect(address: str, *, port: int, around: legs.Around) -> int | None:
    started = around.clock.monotonic()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return None
    took = around.clock.monotonic() - started
    writer.transport.abort()
    return round(took * 1000)


def _family(address: str) -> str:
    return f"IPv{ipaddress.ip_address(address.partition('%')[0]).version}"


async def proxies(legs: Sequence[legs.Leg], *, around: legs.Around) -> tuple[findings.Finding, ...]:
    """What the environment says of proxies, and whether that proxy answers."""
    used: dict[str, dial.Proxy] = {}
    for leg in legs:
        try:
            origin = leg.origin
            proxy = dial.find_proxy(origin.host, port=origin.port, environment=around.environment)
        except dial.ProxyMisconfigured as error:
            return (
                findings.needs_operator(
                    "proxy", f"{error}.", command="env | grep -i _proxy", facts={"leg": leg.name}
                ),
            )
        except failures.NetworkFailure as error:
            return (
                findings.needs_operator(
                    "proxy", f"{error}.", command="enlist worker status", facts={"leg": leg.name}
                ),
            )
        if proxy is not None:
            used[leg.name] = proxy
    if not used:
        return (findings.ok("proxy", "None is used on the way to the Platform."),)
    proxy = next(iter(used.values()))
    shown = f"{proxy.host}:{proxy.port}"
    facts = {"proxy": shown, "with_credentials": proxy.authorization is not None}
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            proxy.host, proxy.port, type=socket.SOCK_STREAM
        )
        reached = await asyncio.gather(
            *(_connect(str(info[4][0]), port=proxy.port, around=around) for info in infos[:4])
        )
    except (OSError, UnicodeError) as error:
        reached = []
        facts["reason"] = str(getattr(error, "strerror", None) or error)
    if all(took is None for took in reached):
        return (
            findings.transient(
                "proxy",
                f"The proxy {shown} does not answer.",
                command="env | grep -i _proxy",
                facts=facts,
            ),
        )
    return (findings.ok("proxy", f"{shown} is used for {', '.join(used)}.", facts=facts),)
