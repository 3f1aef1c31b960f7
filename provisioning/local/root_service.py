"""The root helper of an installed Platform: makes and removes local machines, and nothing else.

`python -I -m provisioning.local.root_service --account enlist-platform`, started by its socket
(enlist-machines.socket) and gone again after a while without work; machines live on in units of
their own. One request a connection: one line of JSON, one line as the answer. The kernel says who
asks; only root and the Platform's account are served.

Whoever has taken that account over can start and remove machines with names that operations give,
in the folder, with the images and on the bridge that root's units name; a machine's own root is
nobody on this host. Containers alone: what is not needed as root is not done as root. Known limit:
he can run what he likes inside such machines.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import pathlib
import pwd
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioning.local import bridge, hands, machines, programs
from provisioning.local import host as hosts
from runtime_kit import clock as clock_kit
from runtime_kit import service_manager

LOGGER = logging.getLogger(__name__)
SOCKET_NAME: Final = "machines"  # FileDescriptorName of enlist-machines.socket
IDLE_SECONDS: Final = 30.0
READ_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 8
_PEER: Final = struct.Struct("3i")


class Refused(Exception):
    """It is not done; the code is for programs, the message for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Service:
    """Serves one host."""

    def __init__(
        self,
        host: hosts.Host,
        *,
        clock: clock_kit.Clock,
        peers: frozenset[int],
        idle_seconds: float = IDLE_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._host = host
        self._clock = clock
        self._peers = peers
        self._idle_seconds = idle_seconds
        self._read_seconds = read_seconds
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "machine-create": self._create,
            "machine-delete": lambda fields: {"found": host.delete(_name(fields))},
            "machine-reboot": self._reboot,
            "machine-console": lambda fields: {"console": host.console(_name(fields))},
            "machine-list": lambda _: {"machines": [hands.document_of(one) for one in host.all()]},
        }

    async def run(self, listener: socket.socket) -> None:
        """Serves until there has been nothing to do for a while."""
        listener.setblocking(False)  # noqa: FBT003 - the library's own signature
        work: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                work = {task for task in work if not task.done()}
                if len(work) >= MOST_CONNECTIONS:
                    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                    continue
                try:
                    async with asyncio.timeout(self._idle_seconds):
                        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
                except TimeoutError:
                    if not work:
                        return
                    continue
                work.add(group.create_task(self._serve(accepted), name="request"))

    async def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)  # noqa: FBT003 - the library's own signature
            try:
                answer = await self._answer(connection)
            except Refused as refused:
                LOGGER.warning("Refused (%s): %s", refused.code, refused)
                answer = {"error": refused.code, "detail": str(refused)[:1024]}
            except (OSError, TimeoutError) as error:
                LOGGER.info("A request broke off: %s", error)
                return
            except Exception:
                LOGGER.exception("A fault of ours in one request")
                answer = {"error": "failed", "detail": "A fault of the root helper's: see its log."}
            line = json.dumps(answer).encode() + b"\n"
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._read_seconds):
                    await asyncio.get_running_loop().sock_sendall(connection, line)

    async def _answer(self, connection: socket.socket) -> Mapping[str, Any]:
        line = await self._line(connection)  # first: an answer to what is unread would be lost
        self._require_welcome(connection)
        fields = _parse(line)
        verb = self._verbs.get(str(fields.get("verb")))
        if verb is None:
            raise Refused("malformed", f"There is no verb {str(fields.get('verb'))[:40]!r}.")
        try:
            return await asyncio.to_thread(verb, fields)
        except hosts.Taken as error:
            raise Refused("taken", str(error)) from error
        except hosts.NoRoom as error:
            raise Refused("no-room", str(error)) from error
        except machines.Unusable as error:
            raise Refused("refused", str(error)) from error
        except (programs.Failed, OSError) as error:
            raise Refused("failed", f"This host cannot do that: {error}") from error

    async def _line(self, connection: socket.socket) -> bytes:
        line = bytearray()
        async with asyncio.timeout(self._read_seconds):
            while not line.endswith(b"\n"):
                piece = await asyncio.get_running_loop().sock_recv(connection, 65_536)
                line += piece
                if not piece or len(line) > hands.MAX_LINE_BYTES:
                    raise Refused("malformed", "The request is cut short, or too long.")
        return bytes(line)

    def _require_welcome(self, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        _, uid, _ = _PEER.unpack(raw)
        if uid not in self._peers:
            raise Refused("not-permitted", f"The Platform is served here, and not uid {uid}.")

    def _create(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        wish = machines.parse_wish(fields)
        _require_no_emulator(wish.kind)
        LOGGER.info("Machine %s: %s, %s", wish.name, wish.kind.value, wish.size)
        return hands.document_of(self._host.create(wish, now=self._clock.now()))

    def _reboot(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        name = _name(fields)
        seen = self._host.find(name)
        if seen is not None:
            _require_no_emulator(seen.machine.kind)
        return {"found": self._host.reboot(name)}


def _require_no_emulator(kind: machines.Kind) -> None:
    """Its verbs make containers; what root is not needed for stays out of it."""
    if kind is machines.Kind.QEMU:
        raise Refused("refused", hands.NO_EMULATOR)


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise Refused("malformed", "The request is no line of JSON.") from None
    if not isinstance(fields, dict):
        raise Refused("malformed", "The request is no JSON object.")
    return fields


def _name(fields: Mapping[str, Any]) -> str:
    name = fields.get("name")
    if not isinstance(name, str):
        raise Refused("malformed", "The request names no machine.")
    return name


def main(arguments: list[str]) -> int:
    """Serves; returns the exit code."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    parser = argparse.ArgumentParser(prog="python -I -m provisioning.local.root_service")
    parser.add_argument("--account", required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=machines.FOLDER)
    parser.add_argument("--images", type=pathlib.Path, default=machines.IMAGES)
    parser.add_argument("--bridge", default=bridge.NAME)
    given = parser.parse_args(arguments)
    manager = service_manager.of(os.environ)
    sockets = service_manager.take_sockets(os.environ).get(SOCKET_NAME, ())
    try:
        uid = pwd.getpwnam(given.account).pw_uid
    except KeyError:
        sys.stderr.write(f"Error: There is no account {given.account}. Run the installer again.\n")
        return 6
    if len(sockets) != 1:
        sys.stderr.write("Error: It is started by its socket: enlist-machines.socket\n")
        return 6
    places = hosts.Places(folder=given.folder, images=given.images, bridge=given.bridge)
    serving = Service(hosts.Host(places), clock=clock_kit.SystemClock(), peers=frozenset({0, uid}))
    manager.ready("Serves the Platform of this machine")
    asyncio.run(serving.run(sockets[0]))
    manager.stopping("Nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
