"""A stand-in for the service manager's end of `$NOTIFY_SOCKET`: it hears, and nothing else."""

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import Iterator, Mapping

SECONDS = 30.0


class Hearing:
    """What a service told, message by message."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    @property
    def environment(self) -> Mapping[str, str]:
        """With which a service is started so that it tells us."""
        return {"NOTIFY_SOCKET": str(self._listener.getsockname())}

    def said_now(self) -> list[str]:
        """The lines of a message that is there; raises `BlockingIOError` where there is none."""
        return self._listener.recv(65_536).decode().splitlines()

    async def next(self) -> list[str]:
        """The lines of the next message; raises `TimeoutError`."""
        async with asyncio.timeout(SECONDS):
            loop = asyncio.get_running_loop()
            return (await loop.sock_recv(self._listener, 65_536)).decode().splitlines()


@contextlib.contextmanager
def hearing(folder: pathlib.Path) -> Iterator[Hearing]:
    """Hears in this folder until the end of the block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(folder / "notify.sock"))
        listener.settimeout(0)
        yield Hearing(listener)
