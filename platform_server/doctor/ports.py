"""The Platform's ports, seen from its own machine, and the names by which machines come to them.

Every port is really connected to, and the key that is shown there is compared with the one the
Platform says it serves with.
"""

import asyncio
import dataclasses
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography import x509

from runtime_kit import clock as clock_kit
from runtime_kit import dial, failures, pinned_handshake
from wire_protocol import findings, times

_CONNECT_SECONDS: Final = 4.0
_SHOWN: Final = 5

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of the Platform as it says: its address and the pins to be seen there."""

    name: str
    url: str
    pins: Sequence[str]


def ports_of(platform: Mapping[str, Any]) -> list[Port]:
    """The ports that `/platform` tells of."""
    wanted = (
        ("enrollment", platform.get("enrollment_url"), platform.get("pins") or ()),
        ("gateway", platform.get("gateway_url"), platform.get("gateway_pins") or ()),
        # It serves with the enrollment port's key, also where machines go by public roots.
        ("bundles", platform.get("bundle_url"), platform.get("pins") or ()),
    )
    return [Port(name=name, url=url, pins=tuple(pins)) for name, url, pins in wanted if url]


async def port(one: Port, *, clock: clock_kit.Clock) -> Found:
    """Connects, shakes hands, and compares key, names and dates."""
    name = f"port.{one.name}"
    try:
        origin = dial.parse_https_origin(one.url)
    except dial.InvalidUrl as fault:
        return (findings.needs_operator(name, f"{fault}.", command="enlist platform show"),)
    started = clock.monotonic()
    try:
        leaf = await _leaf(origin)
    except (OSError, TimeoutError, failures.NetworkFailure) as fault:
        return (
            findings.transient(
                name,
                f"{one.url} does not answer from this machine: {str(fault) or 'no answer in time'}."
                " Machines elsewhere may still get through, if a router translates the address.",
                command=f"ss -ltnp 'sport = :{origin.port}'",
            ),
        )
    facts: dict[str, Any] = {
        "url": one.url,
        "pin": leaf.pin,
        "not_after": times.to_rfc3339(leaf.not_after),
        "names": _names(leaf.der),
        "took_ms": round((clock.monotonic() - started) * 1000),
    }
    if one.pins and not leaf.matches(frozenset(one.pins)):
        return (
            findings.needs_operator(
                name,
                f"{one.url} shows {leaf.pin}, and this Platform serves with "
                f"{' or '.join(one.pins)}: another server answers there.",
                command=f"ss -ltnp 'sport = :{origin.port}'; getent ahosts {origin.host}",
                facts=facts,
            ),
        )
    now = clock.now()
    if not leaf.not_before <= now <= leaf.not_after:
        return (
            findings.warning(
                name,
                f"The certificate at {one.url} is not valid now (until "
                f"{leaf.not_after:%Y-%m-%d}); machines that pin its key do not mind.",
                command="timedatectl",
                facts=facts,
            ),
        )
    names = facts["names"]
    if one.pins and isinstance(names, list) and origin.host not in names:
        return (
            findings.warning(
                name,
                f"The certificate at {one.url} names {', '.join(names[:_SHOWN])}, not "
                f"{origin.host}; machines that pin its key do not mind.",
                command="enlist serve --enrollment-address HOST",
                facts=facts,
            ),
        )
    return (
        findings.ok(
            name,
            f"{one.url} answers with the right key, until {leaf.not_after:%Y-%m-%d}.",
            facts=facts,
        ),
    )


async def _leaf(origin: dial.Origin) -> pinned_handshake.Leaf:
    """What is shown there; nothing is sent, so nobody has to be believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(
            origin.host, origin.port, ssl=context, server_hostname=origin.host
        )
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return pinned_handshake.read_leaf(der or b"")
    except ValueError as fault:
        raise pinned_handshake.TlsFailed("its certificate cannot be read") from fault
    finally:
        writer.transport.abort()


def _names(der: bytes) -> list[str]:
    try:
        extensions = x509.load_der_x509_certificate(der).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]


async def names(hosts: Sequence[str]) -> Found:
    """Whether the names by which machines are told to come resolve, here at least."""
    if not hosts:
        return (findings.skipped("dns", "No name is told to machines."),)
    loop = asyncio.get_running_loop()
    unknown: list[str] = []
    facts: dict[str, list[str]] = {}
    for host in hosts:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError, TimeoutError):
            unknown.append(host)
            continue
        facts[host] = list(dict.fromkeys(str(info[4][0]) for info in infos))[:8]
    if unknown:
        return (
            findings.transient(
                "dns",
                f"{', '.join(unknown)} cannot be resolved here, and machines are told to come "
                "there.",
                command=f"getent ahosts {unknown[0]}",
                facts=facts,
            ),
        )
    return (findings.ok("dns", f"{', '.join(hosts)} can be resolved here.", facts=facts),)
