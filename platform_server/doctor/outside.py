"""What can be seen of a Platform without asking it: its folder, its process, its ports.

Works whether it runs or not. Every port is really connected to, and the key that is shown there is
compared with the one the Platform says it serves with.
"""

import asyncio
import dataclasses
import os
import pathlib
import shutil
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography import x509

from runtime_kit import clock as clock_kit
from runtime_kit import (
    dial,
    failures,
    file_rules,
    mends,
    pinned_handshake,
    private_files,
    processes,
)
from runtime_kit.http1 import client
from wire_protocol import findings, times

_ASK_SECONDS: Final = 12.0
_CONNECT_SECONDS: Final = 4.0
_LEAST_FREE_BYTES: Final = 64 * 1024 * 1024
_MAX_ANSWER: Final = 4 * 1024 * 1024
_OK: Final = 200
_SHOWN: Final = 5

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a Platform keeps what; named by the program that makes them."""

    folder: pathlib.Path
    master_key: pathlib.Path
    run: pathlib.Path
    host_lock: pathlib.Path
    local_socket: pathlib.Path
    rules: tuple[file_rules.Rule, ...]

    @property
    def uid(self) -> int:
        """Whose the folder is."""
        return self.folder.stat().st_uid


def files(places: Places) -> Found:
    """Owners and modes, and what killed programs left."""
    command = f"enlist doctor --fix --data-dir {places.folder}"
    faults = file_rules.examine(places.folder, places.rules, uid=places.uid)
    if faults:
        first, *more = faults
        rest = f" And {len(more)} more." if more else ""
        exposed = any(one.exposed and one.path == places.master_key for one in faults)
        advice = " If somebody may have read it: enlist platform rotate-master-key." * exposed
        return (
            findings.needs_operator(
                "files",
                f"{first.text}{rest}{advice}",
                command=command if first.mend else first.command,
                facts={"faults": [one.text for one in faults]},
            ),
        )
    left = stale(places)
    if left:
        return (
            findings.warning(
                "files",
                f"{len(left)} files were left by programs that were killed while they wrote.",
                command=command,
                facts={"left": left},
            ),
        )
    return (findings.ok("files", f"Owners and modes are right in {places.folder}."),)


def stale(places: Places) -> list[str]:
    """What writers that are no more left aside."""
    found: list[str] = []
    for folder in (places.folder, places.run, places.run / "listener"):
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
        except OSError:
            continue
        found += [
            str(folder / name)
            for name in names
            if private_files.aside_of(name) is not None and private_files.is_left(folder / name)
        ]
    return found


def mends_of(places: Places) -> list[mends.Mend]:
    """Owners and modes, and what killed programs left."""
    found = file_rules.examine(places.folder, places.rules, uid=places.uid)
    possible = [one.mend for one in found if one.mend is not None]
    left = stale(places)
    if left:
        possible.append(
            mends.Mend(
                action="remove",
                target=str(places.folder / ".tmp-*"),
                detail="files that killed programs left",
                apply=lambda: _sweep(left),
            )
        )
    return possible


def _sweep(left: Sequence[str]) -> None:
    for name in left:
        path = pathlib.Path(name)
        written_for = private_files.aside_of(path.name)
        if written_for is not None:
            private_files.sweep(path.with_name(written_for))


def disk(places: Places) -> Found:
    """Room in the data directory."""
    free = shutil.disk_usage(places.folder).free
    facts = {"free_bytes": free}
    if os.statvfs(places.folder).f_flag & os.ST_RDONLY:
        return (
            findings.needs_operator(
                "disk",
                f"{places.folder} lies on a file system that is mounted read-only.",
                command=f"findmnt -T {places.folder}",
                facts=facts,
            ),
        )
    if free < _LEAST_FREE_BYTES:
        return (
            findings.needs_operator(
                "disk",
                f"Only {free // 1024} KB are free under {places.folder}.",
                command=f"df -h {places.folder}",
                facts=facts,
            ),
        )
    return (findings.ok("disk", f"{free // 1_048_576} MB are free.", facts=facts),)


def is_running(places: Places) -> bool:
    """Whether a host holds this data directory."""
    return processes.holder_of_flock(places.host_lock) is not None


def process(places: Places) -> Found:
    """Whether it runs."""
    pid = processes.holder_of_flock(places.host_lock)
    if pid is None:
        return (
            findings.needs_operator(
                "process",
                "The Platform does not run; what follows is read from its files.",
                command=f"enlist serve --data-dir {places.folder}",
            ),
        )
    return (findings.ok("process", f"It runs (pid {pid}).", facts={"pid": pid}),)


class NotAnswered(Exception):
    """The engine gave no answer that can be used: the sentence says why."""

    def __init__(self, text: str, *, closed: bool = False) -> None:
        super().__init__(text)
        self.closed = closed


async def ask(places: Places, target: str) -> bytes:
    """Asks the running engine over its local socket; raises `NotAnswered`."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(places.local_socket))
            try:
                answer = await client.exchange(
                    reader,
                    writer,
                    method="GET",
                    target=target,
                    host="platform",
                    headers={"accept": "application/json"},
                    max_body_bytes=_MAX_ANSWER,
                    timeout_s=_ASK_SECONDS,
                )
            finally:
                writer.transport.abort()
    except PermissionError:
        raise NotAnswered(
            f"This account may not ask the Platform over {places.local_socket}", closed=True
        ) from None
    except (OSError, TimeoutError, failures.NetworkFailure) as fault:
        raise NotAnswered(
            f"The engine does not answer over {places.local_socket}: {fault}"
        ) from None
    if answer.status != _OK:
        raise NotAnswered(f"The engine answered {answer.status}")
    return answer.body


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
