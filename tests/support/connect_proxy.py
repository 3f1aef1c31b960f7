"""A real HTTP proxy for CONNECT, with or without a password, which can be told to hesitate."""

import asyncio
import base64
import contextlib
import dataclasses
from collections.abc import AsyncIterator

CHUNK = 65_536


@dataclasses.dataclass(slots=True, kw_only=True)
class Proxy:
    """A running proxy; `asked` are the heads it was sent, `tunnels` how many it opened."""

    port: int = 0
    password: tuple[str, str] | None = None
    asked: list[str] = dataclasses.field(default_factory=list)
    tunnels: int = 0
    open: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    waiting: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def url(self, *, user: str | None = None) -> str:
        """What goes into `https_proxy`; `user` is `name:password`."""
        return f"http://{f'{user}@' if user else ''}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.asked.append(head)
            if self.password is not None and not self._knows(head):
                writer.write(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                    b'Proxy-Authenticate: Basic realm="proxy"\r\nContent-Length: 0\r\n\r\n'
                )
                await writer.drain()
                return
            self.waiting.set()
            await self.open.wait()
            host, _, port = head.split(" ")[1].rpartition(":")
            onward = await asyncio.open_connection(host.strip("[]"), int(port))
            self.tunnels += 1
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with contextlib.closing(onward[1]):
                await asyncio.gather(_pass(reader, onward[1]), _pass(onward[0], writer))

    def _knows(self, head: str) -> bool:
        assert self.password is not None
        expected = base64.b64encode(":".join(self.password).encode()).decode()
        return f"Proxy-Authorization: Basic {expected}" in head


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def running(
    *, password: tuple[str, str] | None = None, hesitates: bool = False
) -> AsyncIterator[Proxy]:
    """A proxy on loopback for the length of an `async with`."""
    proxy = Proxy(password=password)
    if not hesitates:
        proxy.open.set()
    serving = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = serving.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        serving.close()
