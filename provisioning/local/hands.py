"""Whose hands do what needs root: this process's own, or the root helper's behind its socket.

Known limit: the helper is asked one thing a connection, and answers within a minute.
"""

import asyncio
import datetime
import json
import os
import pathlib
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from provisioning.local import host as hosts
from provisioning.local import machines

SOCKET: Final = pathlib.Path("/run/enlist-machines.sock")
MAX_LINE_BYTES: Final = 65_536
MAX_ANSWER_BYTES: Final = 1_048_576
SECONDS: Final = 60.0
NO_EMULATOR: Final = (
    "The root helper of an installed Platform holds no emulators: take local-nspawn, or order "
    "local-qemu from a Platform that root runs (sudo enlist serve)."
)


class NoHands(Exception):
    """Nothing here can make machines as root: run the Platform as root, or install it."""


class Refused(Exception):
    """The root helper refuses. The message is its sentence."""

    def __init__(self, sentence: str, *, code: str) -> None:
        super().__init__(sentence)
        self.code = code


class Hands(Protocol):
    """What the driver has done; each may raise `Unusable`, `Failed`, `OSError`, `Refused`."""

    async def create(self, wish: machines.Wish, *, now: datetime.datetime) -> hosts.Seen:
        """Makes a machine, or gives the one that is there."""
        ...

    async def all(self) -> Sequence[hosts.Seen]:
        """Every machine of this host."""
        ...

    async def reboot(self, name: str) -> bool:
        """Restarts one; False where there is none."""
        ...

    async def delete(self, name: str) -> bool:
        """Removes one; False where there was none."""
        ...

    async def console(self, name: str) -> str | None:
        """The end of what one showed."""
        ...


class Own:
    """This process is root's."""

    def __init__(self, host: hosts.Host) -> None:
        self._host = host

    async def create(self, wish: machines.Wish, *, now: datetime.datetime) -> hosts.Seen:
        """See `host`."""
        return await asyncio.to_thread(self._host.create, wish, now=now)

    async def all(self) -> Sequence[hosts.Seen]:
        """See `host`."""
        return await asyncio.to_thread(self._host.all)

    async def reboot(self, name: str) -> bool:
        """See `host`."""
        return await asyncio.to_thread(self._host.reboot, name)

    async def delete(self, name: str) -> bool:
        """See `host`."""
        return await asyncio.to_thread(self._host.delete, name)

    async def console(self, name: str) -> str | None:
        """See `host`."""
        return await asyncio.to_thread(self._host.console, name)


class Helper:
    """The root helper of an installed Platform, asked over its socket."""

    def __init__(self, path: pathlib.Path = SOCKET) -> None:
        self._path = path

    async def create(self, wish: machines.Wish, *, now: datetime.datetime) -> hosts.Seen:
        """Verb `machine-create`; the time is the helper's own."""
        del now
        return seen_of(await self._ask("machine-create", order_of(wish)))

    async def all(self) -> Sequence[hosts.Seen]:
        """Verb `machine-list`."""
        answer = await self._ask("machine-list", {})
        return [seen_of(one) for one in answer["machines"]]

    async def reboot(self, name: str) -> bool:
        """Verb `machine-reboot`."""
        return bool((await self._ask("machine-reboot", {"name": name}))["found"])

    async def delete(self, name: str) -> bool:
        """Verb `machine-delete`."""
        return bool((await self._ask("machine-delete", {"name": name}))["found"])

    async def console(self, name: str) -> str | None:
        """Verb `machine-console`."""
        shown = (await self._ask("machine-console", {"name": name}))["console"]
        return None if shown is None else str(shown)

    async def _ask(self, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps({"verb": verb, **fields}).encode() + b"\n"
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(
                str(self._path), limit=MAX_ANSWER_BYTES
            )
            try:
                writer.write(line)
                await writer.drain()
                raw = await reader.readline()
            finally:
                writer.close()
        try:
            answer = json.loads(raw)
            if "error" in answer:
                raise Refused(str(answer["detail"]), code=str(answer["error"]))
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"The root helper's answer cannot be read: {error}.") from error
        return dict(answer)


def of_this_process(places: hosts.Places) -> Hands:
    """Root's own hands, else the helper's; raises `NoHands`."""
    if os.geteuid() == 0:
        return Own(hosts.Host(places))
    if not _is_socket(SOCKET):
        raise NoHands(
            "Machines on this host need root: start the Platform as root (sudo enlist serve), or "
            "install it (install.sh --role platform), which brings a root helper for them."
        )
    return Helper()


def order_of(wish: machines.Wish) -> dict[str, Any]:
    """An order as the helper is handed it."""
    return {
        "kind": wish.kind.value,
        "owner": {
            "installation": wish.owner.installation,
            "infra": wish.owner.infra,
            "operation": wish.owner.operation,
            "node": wish.owner.node,
            "attempt": wish.owner.attempt,
        },
        "size": wish.size,
        "image": wish.image,
        "network": wish.network,
        "first_boot": wish.first_boot,
    }


def document_of(seen: hosts.Seen) -> dict[str, Any]:
    """A machine as the helper answers it."""
    return {
        "machine": json.loads(seen.machine.to_bytes()),
        "phase": seen.phase,
        "detail": seen.detail,
    }


def seen_of(document: Mapping[str, Any]) -> hosts.Seen:
    """The same, read."""
    return hosts.Seen(
        machine=machines.parse(document["machine"]),
        phase=str(document["phase"]),
        detail=str(document["detail"]),
    )


def _is_socket(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        try:
            tried.settimeout(1.0)
            tried.connect(str(path))
        except OSError:
            return False
    return True
