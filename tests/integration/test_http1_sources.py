"""Answers too large to hold: sent whole, at the client's pace, and bounded."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_kit import tls
from runtime_kit.http1 import limits, messages, server
from tests.support import certificates, edge, waits

SIZE = 5_000_000


class Made:
    """A source that is made up, so that what was read of it can be looked at."""

    def __init__(self, size: int, *, holds: int | None = None) -> None:
        self.size = size
        self.left = size if holds is None else holds
        self.closed = 0

    def read(self, most: int) -> bytes:
        piece = bytes(min(self.left, most))
        self.left -= len(piece)
        return piece

    def close(self) -> None:
        self.closed += 1


@contextlib.asynccontextmanager
async def serving(
    source: Made, *, context: ssl.SSLContext | None = None, allowed: limits.Limits | None = None
) -> AsyncIterator[tuple[int, server.Server]]:
    async def answer(_request: messages.Request) -> messages.Response:
        return messages.Response(status=200, source=source)

    with socket.create_server(("127.0.0.1", 0)) as sock:
        # Small, so that a client that reads nothing is felt at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        running = server.Server(
            answer, limits=allowed, tls=None if context is None else lambda: context
        )
        running.start(sock)
        yield sock.getsockname()[1], running
        await running.drain(timeout_s=1.0)


@contextlib.asynccontextmanager
async def connected(
    port: int, *, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.settimeout(0)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    host = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection(
        sock=sock, ssl=context, server_hostname=host, limit=65_536
    )
    try:
        yield reader, writer
    finally:
        await edge.closed(writer)


def ask(*, method: str = "GET", close: bool = False) -> bytes:
    more = "Connection: close\r\n" if close else ""
    return f"{method} /x HTTP/1.1\r\nHost: h\r\n{more}\r\n".encode()


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("secure", [False, True])
async def test_a_large_answer_arrives_whole_and_its_source_is_closed(
    tmp_path: Path, *, close: bool, secure: bool
) -> None:
    source = Made(SIZE)
    context = tls.server_context(certificates.issue().write(tmp_path / "t.pem")) if secure else None
    async with (
        serving(source, context=context) as (port, _),
        connected(port, context=edge.client_context() if secure else None) as (reader, writer),
    ):
        writer.write(ask(close=close))
        got = await edge.read_answer(reader)
        assert (got.status, len(got.body), got.headers["content-length"]) == (200, SIZE, str(SIZE))
        assert ("connection" in got.headers) == close
        if not close:  # the same connection serves the next request
            source.left = SIZE
            writer.write(ask())
            assert len((await edge.read_answer(reader)).body) == SIZE
    assert source.closed >= 1


async def test_no_more_is_read_than_the_client_takes() -> None:
    source = Made(SIZE)
    async with serving(source) as (port, _), connected(port) as (reader, writer):
        writer.write(ask())
        await reader.readuntil(b"\r\n\r\n")
        while source.left > 0:
            before = source.left
            await asyncio.sleep(0)
            if source.left == before:
                break
        assert source.left > SIZE / 2
        assert len(await reader.readexactly(SIZE)) == SIZE


async def test_a_client_that_takes_nothing_is_cut_off() -> None:
    source = Made(SIZE)
    async with (
        serving(source, allowed=limits.Limits(stall_s=0.2)) as (port, running),
        connected(port) as (reader, writer),
    ):
        writer.write(ask())
        await waits.until(lambda: not running.sockets and source.closed > 0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await edge.read_answer(reader)


async def test_a_download_has_an_end_however_steadily_it_creeps() -> None:
    source = Made(50 * SIZE)
    async with (
        serving(source, allowed=limits.Limits(transfer_s=0.3)) as (port, _),
        connected(port) as (reader, writer),
    ):
        writer.write(ask())
        got = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(edge.PATIENCE_S):
                while data := await reader.read(4096):
                    got += len(data)
                    await waits.pace()
        assert got < source.size
    assert source.closed >= 1


async def test_a_source_that_ends_early_breaks_the_connection_off() -> None:
    source = Made(SIZE, holds=1000)
    async with serving(source) as (port, _), connected(port) as (reader, writer):
        writer.write(ask())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await edge.read_answer(reader)
    assert source.closed >= 1


async def test_head_has_the_length_and_nothing_else() -> None:
    source = Made(SIZE)
    async with serving(source) as (port, _), connected(port) as (reader, writer):
        writer.write(ask(method="HEAD"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert f"content-length: {SIZE}".encode() in head
        assert source.closed >= 1
        assert source.left == SIZE


async def test_a_client_that_leaves_closes_the_source() -> None:
    source = Made(SIZE)
    async with serving(source) as (port, running):
        async with connected(port) as (reader, writer):
            writer.write(ask())
            await reader.readuntil(b"\r\n\r\n")
        await waits.until(lambda: not running.sockets)
    assert source.closed >= 1
