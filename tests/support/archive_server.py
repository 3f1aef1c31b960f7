"""An https server that gives an archive out, or fails at it in the way a test asks for."""

import asyncio
import contextlib
import dataclasses
import datetime
import enum
import pathlib
from collections.abc import AsyncIterator

from runtime_kit import tls
from tests.support import certificates, held_sets, waits
from wire_protocol import ids, pins, updates
from worker_agent.settings import join_file, paths, trust_file

CONTENT = bytes(range(256)) * 4096  # a megabyte
VERSION, RELEASE = "0.2.0", "0.2.0-0123456789ab"


class Way(enum.Enum):
    """How one request is answered."""

    WHOLE = "the whole, whatever was asked for"
    RANGES = "the part that was asked for"
    CUT = "the part that was asked for, cut off in the middle"
    ANOTHER = "as many other bytes"
    LONGER = "more than there is"
    ENDLESS = "more and more, without a length"
    NOT_THERE = "404"
    BUSY = "503"
    ELSEWHERE = "a redirect"
    NOT_HTTP = "no HTTP"
    SILENT = "nothing"


@dataclasses.dataclass
class Server:
    """One server; each request takes the next way, the last one again and again."""

    ways: list[Way]
    port: int = 0
    heads: list[str] = dataclasses.field(default_factory=list)
    issued: certificates.Issued = dataclasses.field(default_factory=certificates.issue)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/bundles/sha256/x"

    def next(self) -> Way:
        return self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]


@contextlib.asynccontextmanager
async def serving(folder: pathlib.Path, *ways: Way) -> AsyncIterator[Server]:
    """The server for the length of an `async with`."""
    made = Server(ways=list(ways))
    pem = made.issued.write(folder / f"server-{made.issued.pin[7:15]}.pem")
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                made.heads.append(head)
                await _answer(made.next(), head, reader, writer)
        finally:
            writer.transport.abort()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(one(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls.server_context(pem))
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(
    way: Way, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    statuses = {Way.NOT_THERE: "404 No", Way.BUSY: "503 Later"}
    if way is Way.SILENT:
        await reader.read()
        return
    if way is Way.NOT_HTTP:
        writer.write(b"SSH-2.0-x\r\n\r\n")
    elif way in statuses:
        writer.write(f"HTTP/1.1 {statuses[way]}\r\ncontent-length: 0\r\n\r\n".encode())
    elif way is Way.ELSEWHERE:
        writer.write(b"HTTP/1.1 302 x\r\nlocation: https://else/\r\ncontent-length: 0\r\n\r\n")
    elif way is Way.ENDLESS:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(CONTENT)
            await writer.drain()
            await waits.pace()  # else a client that has gone is never noticed
        return
    else:
        _body(way, head, writer)
    await _flushed(writer)
    if way is not Way.CUT:
        writer.close()
        async with asyncio.timeout(10):
            await writer.wait_closed()


def _body(way: Way, head: str, writer: asyncio.StreamWriter) -> None:
    content = bytes(len(CONTENT)) if way is Way.ANOTHER else CONTENT
    if way is Way.LONGER:
        content += b"more"
    start, status = 0, "200 OK"
    asked = head.lower().partition("range: bytes=")[2].partition("-")[0]
    if asked and way in (Way.RANGES, Way.CUT):
        start = int(asked)
        status = f"206 Part\r\ncontent-range: bytes {start}-{len(content) - 1}/{len(content)}"
    part = content[start:]
    writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(part)}\r\n\r\n".encode())
    writer.write(part[: len(part) // 2] if way is Way.CUT else part)


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Until the kernel has all of it; then the connection may be cut."""
    writer.transport.set_write_buffer_limits(high=0)
    await writer.drain()


def joined(folder: pathlib.Path, *known: certificates.Issued) -> paths.Paths:
    """A machine that knows its Platform by these keys."""
    where = paths.Paths(folder=folder / "machine")
    where.folder.mkdir(mode=0o700)
    found = tuple(pins.parse_pin(one.pin) for one in known)
    join_file.write(
        where.join,
        join_file.JoinFile(
            platform_url="https://127.0.0.1:8444",
            platform_id=ids.PlatformId("plt_1"),
            node_id=ids.parse_node_id("web-1"),
            mode=join_file.Mode.PINS,
            given_pins=found,
            pins=found,
            ca_pem=None,
            enrollment_id=ids.EnrollmentId("0123456789abcdef"),
            joined_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        ),
    )
    trust_file.write(where.trust, held_sets.held(held_sets.Key()))
    return where


def update(*servers: Server, sha256: str, size: int = len(CONTENT)) -> updates.Update:
    """The order to fetch the archive from these."""
    return updates.Update(
        version=VERSION,
        release=RELEASE,
        archive_sha256=sha256,
        size=size,
        urls=tuple(one.url for one in servers),
    )
