"""A bundle server that strangers read slowly from: nobody holds what others need."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from runtime_kit.http1 import server as http_server
from tests.support import bundle_server, edge, waits

ARCHIVE = "/bundles/sha256/" + "a" * 64
SIZE = 64_000_000
STRANGER, OTHER, MACHINE = "127.0.0.2", "127.0.0.3", "127.0.0.4"


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: edge\r\n\r\n".encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archives = tmp_path / "bundles" / "sha256"
    archives.mkdir(parents=True)
    (archives / ("a" * 64)).touch()
    os.truncate(archives / ("a" * 64), SIZE)
    (tmp_path / "bundles" / "install.sh").write_text("#!/bin/sh\n")
    return tmp_path


@contextlib.asynccontextmanager
async def _connected(
    server: edge.Listener, *, address: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(edge.PATIENCE_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=edge.client_context(), local_addr=(address, 0)
        )
    try:
        yield reader, writer
    finally:
        await edge.closed(writer)


async def _download_slowly(
    server: edge.Listener, stack: contextlib.AsyncExitStack, *, address: str
) -> asyncio.StreamReader:
    """One that has the head of its answer and takes hardly more."""
    reader, writer = await stack.enter_async_context(_connected(server, address=address))
    writer.write(_get(ARCHIVE))
    async with asyncio.timeout(edge.PATIENCE_S):
        await reader.readuntil(b"\r\n\r\n")
    return reader


async def _installer(server: edge.Listener, *, address: str) -> int:
    async with _connected(server, address=address) as (reader, writer):
        writer.write(_get("/install.sh"))
        return (await edge.read_answer(reader)).status


async def _rest(reader: asyncio.StreamReader) -> int:
    """How many bytes still come."""
    taken = 0
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(edge.PATIENCE_S):
            while piece := await reader.read(1_000_000):
                taken += len(piece)
                if taken == SIZE:
                    break
    return taken


async def test_one_address_holds_no_more_than_its_part_and_others_are_served(
    folder: Path,
) -> None:
    async with (
        bundle_server.running(
            folder, "--max-sockets", "8", "--max-sockets-by-address", "3"
        ) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(3):
            await _download_slowly(server, stack, address=STRANGER)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await _installer(server, address=STRANGER)
        for _ in range(6):
            assert await _installer(server, address=MACHINE) == 200


async def test_a_full_server_cuts_off_the_slowest_of_the_address_with_the_most(
    folder: Path,
) -> None:
    async with (
        bundle_server.running(
            folder, "--max-sockets", "6", "--max-sockets-by-address", "4"
        ) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        others = [await _download_slowly(server, stack, address=OTHER) for _ in range(2)]
        strangers = [await _download_slowly(server, stack, address=STRANGER) for _ in range(4)]
        assert await _installer(server, address=MACHINE) == 200
        assert [await _rest(one) for one in others] == [SIZE, SIZE]
        whole = [await _rest(one) == SIZE for one in strangers]
        assert sorted(whole) == [False, True, True, True]


async def test_a_download_below_the_least_rate_is_cut_off_though_it_never_stalls(
    folder: Path,
) -> None:
    async with (
        bundle_server.running(
            folder, "--least-bytes-s", "50000000", "--least-after-s", "1"
        ) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        reader = await _download_slowly(server, stack, address=STRANGER)
        process = psutil.Process(server.process.pid)

        async def read_a_little() -> None:
            while await reader.read(1_000):
                await waits.pace()

        reading = asyncio.create_task(read_a_little())
        await waits.until(lambda: not process.open_files())
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await reading
        assert await _installer(server, address=MACHINE) == 200


@pytest.mark.parametrize(
    ("peer", "holder"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("", ""),
    ],
)
def test_of_ipv6_a_whole_64_is_one_holder(peer: str, holder: str) -> None:
    assert http_server.holder_of(peer) == holder
