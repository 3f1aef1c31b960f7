"""Asks the machine's root helper one question: what only root may do, and no order is needed for.

One connection a question, bounded in time and size. Orders go another way (`orders.root_helper`),
since they stay open until the Agent has written down what it was told.
"""

import asyncio
import contextlib
import os
import pathlib
import socket
from collections.abc import Mapping
from typing import Final

from wire_protocol import helper_protocol as helper

SECONDS: Final = 10.0
VARIABLE: Final = "ENLIST_HELPER_SOCKET"  # another place for it; proves nothing and needs no proof


class NotAsked(Exception):
    """The helper could not be asked; the message says why."""


class Door:
    """The helper behind one socket."""

    def __init__(self, path: pathlib.Path, *, seconds: float = SECONDS) -> None:
        self._path = path
        self._seconds = seconds

    @property
    def is_there(self) -> bool:
        """Whether this machine has one that this account may ask."""
        return self._path.is_socket() and os.access(self._path, os.W_OK)

    async def ask(self, line: bytes, *, content: bytes | None = None) -> bytes:
        """The answer's line; `content` goes as a file beside it. Raises `NotAsked`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(line, content=content)
        except TimeoutError as error:
            raise NotAsked("The root helper did not answer in time.") from error
        except OSError as error:
            raise NotAsked(
                f"The root helper cannot be asked: {error.strerror or error}. On the machine: "
                "systemctl status enlist-helper.socket"
            ) from error

    async def _ask(self, line: bytes, *, content: bytes | None) -> bytes:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as closing:
            connection = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.settimeout(0)
            await loop.sock_connect(connection, str(self._path))
            sent = 0
            if content is not None:
                file = os.memfd_create("content", os.MFD_CLOEXEC)
                closing.callback(os.close, file)
                os.write(file, content)
                sent = socket.send_fds(connection, [line], [file])
            await loop.sock_sendall(connection, line[sent:])
            said = b""
            while not said.endswith(b"\n"):
                piece = await loop.sock_recv(connection, helper.MAX_LINE_BYTES + 1 - len(said))
                said += piece
                if not piece or len(said) > helper.MAX_LINE_BYTES:
                    raise ConnectionResetError("it broke off")
            return said


def of(environment: Mapping[str, str]) -> Door:
    """The helper of this machine."""
    return Door(pathlib.Path(environment.get(VARIABLE) or helper.SOCKET))
