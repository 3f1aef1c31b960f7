"""Raw sockets against a real listener: whatever strangers do, one enrollment is served at once.

Each abuse goes on while a plain request is served within a second, and nothing of it reaches the
engine.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.support import edge

SOON_S = 1.0


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[edge.Engine]:
    one = edge.Engine(tmp_path / "e.sock")
    one.serve()
    yield one
    await one.stop()
    one.close()


@pytest.fixture
async def listener(tmp_path: Path, engine: edge.Engine) -> AsyncIterator[edge.Listener]:
    assert engine.path.exists()
    async with edge.running(tmp_path) as one:
        yield one


async def served_soon(listener: edge.Listener) -> None:
    """A stranger's neighbour: one enrollment over a new connection, in good time."""
    async with asyncio.timeout(SOON_S):
        assert (await edge.ask_raw(listener, edge.post(body=b'"neighbour"'))).status == 201


def reached(engine: edge.Engine) -> list[bytes]:
    """What came through beside the neighbour."""
    return [one.body for one in engine.asked if one.body != b'"neighbour"']


async def answers(
    listener: edge.Listener, requests: dict[str, bytes]
) -> dict[str, tuple[int, bytes]]:
    """What each request, on a connection of its own, is answered."""
    got = await asyncio.gather(*(edge.ask_raw(listener, raw) for raw in requests.values()))
    return {name: (one.status, one.body) for name, one in zip(requests, got, strict=True)}


TARGETS = {
    "a doubled slash": "//api/v1/enroll",
    "a doubled slash within": "/api//v1/enroll",
    "a dot segment": "/./api/v1/enroll",
    "two dots": "/api/v1/trust/../enroll",
    "two dots to the root": "/../api/v1/enroll",
    "an encoded letter": "/api/v1/%65nroll",
    "encoded dots": "/%2e%2e/api/v1/enroll",
    "an encoded slash": "/api/v1%2fenroll",
    "a path parameter": "/api/v1/enroll;a=b",
    "a query": "/api/v1/enroll?x",
    "an empty query": "/api/v1/enroll?",
    "a fragment": "/api/v1/enroll#x",
    "a trailing slash": "/api/v1/enroll/",
    "another case": "/api/v1/Enroll",
    "another case of all": "/API/V1/ENROLL",
    "the absolute form": "https://edge/api/v1/enroll",
    "the absolute form in http": "http://127.0.0.1/api/v1/enroll",
    "the authority form": "edge:8444",
    "the asterisk": "*",
    "no leading slash": "api/v1/enroll",
    "a backslash": "\\api\\v1\\enroll",
    "a zero byte, encoded": "/api/v1/enroll%00",
    "the rest of the API": "/api/v1/nodes",
    "the root": "/",
    "health": "/healthz",
}


async def test_any_other_target_is_404_with_an_empty_body(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    got = await answers(listener, {name: edge.post(target) for name, target in TARGETS.items()})
    assert got == dict.fromkeys(TARGETS, (404, b""))
    assert reached(engine) == []


METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "post", "POSTS")


async def test_any_other_method_is_404_with_an_empty_body(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    requests = {name: edge.post().replace(b"POST", name.encode(), 1) for name in METHODS}
    assert await answers(listener, requests) == dict.fromkeys(METHODS, (404, b""))
    assert reached(engine) == []


START = b"POST /api/v1/enroll HTTP/1.1\r\nHost: edge\r\n"
HEADS = {
    "a length and a transfer coding": START
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a transfer coding and a length": START
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "a transfer coding alone": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a disguised transfer coding": START + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "an odd transfer coding": START + b"Transfer-Encoding: xchunked\r\n\r\n",
    "two lengths": START + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "the same length twice": START + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": START + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a plus": START + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": START + b"Content-Length: -2\r\n\r\n{}",
    "a length with a blank inside": START + b"Content-Length: 2 2\r\n\r\n{}",
    "a hexadecimal length": START + b"Content-Length: 0x2\r\n\r\n{}",
    "a length with an underscore": START + b"Content-Length: 1_0\r\n\r\n{}",
    "a length with a leading zero": START + b"Content-Length: 02\r\n\r\n{}",
    "an empty length": START + b"Content-Length:\r\n\r\n{}",
    "a length of other digits": START + "Content-Length: ²\r\n\r\n".encode("latin-1"),
    "a blank before the colon": START + b"Content-Length : 2\r\n\r\n{}",
    "a folded line": START + b"X-A: 1\r\n Content-Length: 2\r\n\r\n{}",
    "a bare line feed": START + b"X-A: 1\nContent-Length: 2\r\n\r\n{}",
    "bare line feeds all over": b"POST /api/v1/enroll HTTP/1.1\nHost: edge\n\r\n\r\n",
    "a bare carriage return": START + b"X-A: 1\rContent-Length: 2\r\n\r\n{}",
    "a zero byte in a header": START + b"X-A: 1\x00\r\nContent-Length: 2\r\n\r\n{}",
    "an empty header name": START + b": 1\r\nContent-Length: 2\r\n\r\n{}",
    "no host": b"POST /api/v1/enroll HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "two hosts": START + b"Host: other\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.0": b"POST /api/v1/enroll HTTP/1.0\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/0.9": b"POST /api/v1/enroll\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two blanks": b"POST  /api/v1/enroll HTTP/1.1\r\nHost: edge\r\n\r\n",
    "an empty line first": b"\r\n\r\n" + START + b"\r\n",
    "letters of another alphabet": START.replace(b"enroll", b"enr\xc3\xb6ll") + b"\r\n",
}


async def test_a_head_out_of_the_ordinary_is_400_and_the_end_of_the_connection(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    async def last_answer(raw: bytes) -> tuple[int, bytes, str, bytes]:
        async with edge.connected(listener) as (reader, writer):
            writer.write(raw + edge.post(body=b'"smuggled"'))
            got = await edge.read_answer(reader)
            async with asyncio.timeout(edge.PATIENCE_S):
                return got.status, got.body, got.headers["connection"], await _rest(reader)

    got = await asyncio.gather(*(last_answer(raw) for raw in HEADS.values()))
    assert dict(zip(HEADS, got, strict=True)) == dict.fromkeys(HEADS, (400, b"", "close", b""))
    assert reached(engine) == []


async def test_a_head_without_end_is_431(listener: edge.Listener, engine: edge.Engine) -> None:
    async with edge.connected(listener) as (reader, writer):
        writer.write(START + b"X-A: " + b"a" * 20_000)
        assert (await edge.read_answer(reader)).status == 431
    assert reached(engine) == []


async def test_ten_thousand_requests_at_once_on_one_connection_are_answered_in_turn(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    async with edge.connected(listener) as (reader, writer):
        one = edge.post("/x", body=b"")
        sending = asyncio.create_task(_send(writer, one * 10_000))
        for _ in range(2_000):
            assert (await edge.read_answer(reader)).status == 404
        await served_soon(listener)
        for _ in range(8_000):
            assert (await edge.read_answer(reader)).status == 404
        await sending
    assert reached(engine) == []


async def test_a_flood_of_requests_whose_answers_nobody_reads_is_held_back_and_cut_off(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    process = psutil.Process(listener.process.pid)
    await served_soon(listener)
    before = process.memory_info().rss
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what the kernel reads for us
    sock.connect(("127.0.0.1", listener.port))
    _, writer = await asyncio.open_connection(
        sock=sock, ssl=edge.client_context(), server_hostname="edge"
    )
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    with pytest.raises(ConnectionError):
        await _flood(writer, edge.post("/x", body=b"") * 1000)
    assert process.memory_info().rss - before < 16 << 20
    await edge.closed(writer)
    await served_soon(listener)
    assert reached(engine) == []


async def test_five_hundred_slow_heads_cost_one_another_and_nobody_else(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    async with contextlib.AsyncExitStack() as slow:
        opened = await asyncio.gather(
            *(slow.enter_async_context(edge.connected(listener)) for _ in range(500))
        )
        for _, writer in opened:
            writer.write(b"POST /api/v1/enroll HTTP/1.1\r\nHost: edge\r\nX-Slow: ")
        for _ in range(3):
            for _, writer in opened:
                writer.write(b"a")
            await served_soon(listener)
    assert reached(engine) == []


async def test_a_slow_head_has_five_seconds(listener: edge.Listener) -> None:
    async with edge.connected(listener) as (reader, writer):
        began = asyncio.get_running_loop().time()
        writer.write(b"POST /api/v1/enroll HT")
        async with asyncio.timeout(edge.PATIENCE_S):
            assert await _rest(reader) == b""
        assert 4.5 < asyncio.get_running_loop().time() - began < 7.0


async def test_silence_after_connecting_is_cut_off_after_three_seconds(
    listener: edge.Listener,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    began = asyncio.get_running_loop().time()
    await served_soon(listener)
    async with asyncio.timeout(edge.PATIENCE_S):
        assert await _rest(reader) == b""
    assert 2.5 < asyncio.get_running_loop().time() - began < 5.0
    await edge.closed(writer)


async def test_when_the_sockets_are_full_the_oldest_without_a_head_makes_room(
    tmp_path: Path, engine: edge.Engine
) -> None:
    assert engine.path.exists()
    edge.allow_descriptors(2048)
    async with edge.running(tmp_path) as listener, contextlib.AsyncExitStack() as silent:
        opened = []
        for _ in range(1100):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            silent.push_async_callback(edge.closed, writer)
            opened.append(reader)
        await served_soon(listener)
        async with asyncio.timeout(edge.PATIENCE_S):
            assert await _rest(opened[0]) == b""  # the oldest went first
        process = psutil.Process(listener.process.pid)
        assert process.num_fds() < 1024 + 32


async def test_a_full_house_of_slow_bodies_makes_room_too(
    tmp_path: Path, engine: edge.Engine
) -> None:
    async with (
        edge.running(tmp_path, "--max-sockets", "8") as listener,
        contextlib.AsyncExitStack() as slow,
    ):
        for _ in range(8):
            _, writer = await slow.enter_async_context(edge.connected(listener))
            writer.write(edge.post(body=b"x" * 100)[:-50])
        await served_soon(listener)
    assert reached(engine) == []


async def test_a_gigabyte_is_413_by_its_length_and_barely_read(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    sent = 0
    async with edge.connected(listener) as (reader, writer):
        writer.write(START + b"Content-Length: 1073741824\r\n\r\n")
        got = await edge.read_answer(reader)
        assert (got.status, got.headers["content-type"]) == (413, "application/problem+json")
        block = b"x" * 65_536
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(edge.PATIENCE_S):
                while sent < 1 << 30:
                    writer.write(block)
                    await writer.drain()
                    sent += len(block)
    # A megabyte is dropped; what else left here lies in the buffers of both kernels.
    assert sent < 32 << 20
    await served_soon(listener)
    assert reached(engine) == []


async def test_a_body_one_byte_too_long_is_413_and_the_longest_allowed_passes(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    assert (await edge.ask_raw(listener, edge.post(body=b"x" * 65_537))).status == 413
    assert (await edge.ask_raw(listener, edge.post(body=b"x" * 65_536))).status == 201
    assert [len(one) for one in reached(engine)] == [65_536]


async def test_a_body_that_ends_early_reaches_nobody(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    async with edge.connected(listener) as (_, writer):
        writer.write(edge.post(body=b"x" * 100)[:-1])
        await writer.drain()
        writer.write_eof() if writer.can_write_eof() else writer.close()
    await served_soon(listener)
    assert reached(engine) == []


async def test_an_older_tls_is_refused(listener: edge.Listener) -> None:
    context = edge.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):  # noqa: PT011 - an alert or a bare end, by the event loop
        async with edge.connected(listener, context=context):
            pass
    await served_soon(listener)


async def test_http_2_is_not_agreed_on(listener: edge.Listener) -> None:
    context = edge.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with edge.connected(listener, context=context) as (reader, writer):
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        writer.write(edge.post())
        assert (await edge.read_answer(reader)).status == 201


async def test_no_session_can_be_resumed(listener: edge.Listener) -> None:
    async with edge.connected(listener) as (reader, writer):
        writer.write(edge.post())
        await edge.read_answer(reader)
        session = writer.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: edge\r\n\r\n",
        edge.post(),
        b"\x00" * 4096,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000,
    ],
    ids=["plain GET", "plain POST", "zeros", "SSH", "a record too long"],
)
async def test_what_is_not_tls_gets_no_answer(
    listener: edge.Listener, engine: edge.Engine, raw: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    with contextlib.suppress(OSError):
        writer.write(raw)
        async with asyncio.timeout(edge.PATIENCE_S):
            said = await _rest(reader)
        assert b"HTTP" not in said
    await edge.closed(writer)
    await served_soon(listener)
    assert reached(engine) == []


async def test_connections_cut_off_in_every_phase_leave_nothing_behind(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    process = psutil.Process(listener.process.pid)
    await served_soon(listener)
    before = process.num_fds()
    for raw in (b"", b"\x16\x03\x01", b"garbage"):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", listener.port)) as sock:
                sock.sendall(raw)
    for raw in (b"", b"POST /api", edge.post(body=b"xy")[:-1], edge.post("/404"), edge.post()):
        for _ in range(10):
            async with edge.connected(listener) as (_, writer):
                writer.write(raw)
    async with asyncio.timeout(edge.PATIENCE_S):
        while process.num_fds() > before + 16:  # idle connections to the engine are kept
            await served_soon(listener)
    assert set(reached(engine)) <= {b"{}"}


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _flood(writer: asyncio.StreamWriter, block: bytes) -> None:
    """Send the block again and again until the connection is cut off."""
    async with asyncio.timeout(3 * edge.PATIENCE_S):
        while True:
            writer.write(block)
            await writer.drain()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end, however it ends."""
    got = b""
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            got += data
    return got
