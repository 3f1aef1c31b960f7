"""Asks the root helper of this machine to carry out an order that only root can carry out.

The helper verifies everything by itself; this account proves nothing by asking. The connection
stays open until the caller has written down what it was told, since the helper then ends this
process and starts the other release.
"""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from wire_protocol import helper_protocol as helper
from wire_protocol import orders, strict_json
from worker_agent.settings import failures

CONNECT_SECONDS: Final = 10.0
VARIABLE: Final = "ENLIST_HELPER_SOCKET"  # another place for it; proves nothing and needs no proof
ANSWER_SECONDS: Final = 300.0  # it verifies and unpacks the archive; a slow disk takes a minute


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What the helper said; it acts once `let_go` was called, or this process has ended."""

    release: str
    connection: socket.socket

    def let_go(self) -> None:
        """Closes the connection."""
        self.connection.close()


class RootHelper:
    """The helper behind one socket."""

    def __init__(
        self,
        path: pathlib.Path = pathlib.Path(helper.SOCKET),
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._path = path
        self._answer_seconds = answer_seconds

    @property
    def is_there(self) -> bool:
        """Whether this machine has one."""
        return self._path.is_socket()

    def require(self) -> None:
        """Raises `NeedsOperator` on a machine without one."""
        if not self.is_there:
            raise failures.NeedsOperator(
                f"This machine has no root helper ({self._path} is no socket), so its Platform "
                "cannot change which release it runs.",
                hint="Update it by hand, as root: run the installer again.",
            )

    async def hand(
        self, verb: helper.Verb, signed: orders.SignedOrder, *, archive: int | None
    ) -> Staged:
        """Hands the order over, for an update with the open archive.

        Raises `Refused` with the helper's own sentence, and `Temporary` where it cannot be asked.
        """
        self.require()
        with contextlib.ExitStack() as undo:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(connection.close)
            connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await asyncio.get_running_loop().sock_connect(connection, str(self._path))
                    await _send(connection, helper.write_order(verb, signed), archive=archive)
                async with asyncio.timeout(self._answer_seconds):
                    line = await _line(connection)
            except TimeoutError as error:
                raise failures.Temporary("The root helper did not answer in time.") from error
            except OSError as error:
                raise failures.Temporary(
                    f"The root helper cannot be asked ({error.strerror or error}). On the machine: "
                    "systemctl status enlist-helper.socket"
                ) from error
            try:
                staged = helper.parse_staged(line)
            except helper.Refused as error:
                raise failures.Refused(f"The root helper refuses: {error}") from error
            except strict_json.Malformed as error:
                raise failures.Fault(f"The root helper cannot be understood: {error}") from error
            undo.pop_all()
        return Staged(release=staged.release, connection=connection)


def of(environment: Mapping[str, str]) -> RootHelper:
    """The helper of this machine."""
    return RootHelper(pathlib.Path(environment.get(VARIABLE) or helper.SOCKET))


async def _send(connection: socket.socket, line: bytes, *, archive: int | None) -> None:
    """The open file goes with the first bytes, for which a fresh connection has room."""
    sent = 0
    if archive is not None:
        sent = socket.send_fds(connection, [line], [archive])
    await asyncio.get_running_loop().sock_sendall(connection, line[sent:])


async def _line(connection: socket.socket) -> bytes:
    """One line; what an ended connection did not say is no line."""
    loop = asyncio.get_running_loop()
    said = b""
    while not said.endswith(b"\n"):
        piece = await loop.sock_recv(connection, helper.MAX_LINE_BYTES + 1 - len(said))
        said += piece
        if not piece or len(said) > helper.MAX_LINE_BYTES:
            raise ConnectionResetError("it broke off")
    return said


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[int]:
    """A file for reading, as the helper gets it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
