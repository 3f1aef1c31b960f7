"""The small HTTP/1.1 on real sockets: server, client and pool, and what others may send them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from runtime_kit import failures
from runtime_kit.http1 import client, limits, messages, pool, server

Handler = Callable[[messages.Request], Awaitable[messages.Response]]


async def echo(request: messages.Request) -> messages.Response:
    return messages.Response(status=200, headers={"x-peer": request.peer}, body=request.body)


@contextlib.asynccontextmanager
async def serving(
    handler: Handler = echo,
    *,
    path: Path | None = None,
    allowed: limits.Limits | None = None,
) -> AsyncIterator[tuple[int, server.Server]]:
    if path is None:
        sock = socket.create_server(("127.0.0.1", 0))
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(path))
        sock.listen()
    with sock:
        running = server.Server(handler, limits=allowed)
        running.start(sock)
        yield (0 if path else sock.getsockname()[1]), running
        await running.drain(timeout_s=1.0)


@contextlib.asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def asked(
    port: int, *, method: str = "POST", body: bytes = b"", **more: float
) -> messages.Answer:
    async with connected(port) as (reader, writer):
        return await client.exchange(
            reader,
            writer,
            method=method,
            target="/x",
            host="h",
            body=body,
            timeout_s=more.get("timeout_s", 5.0),
            max_body_bytes=int(more.get("max_body_bytes", 1000)),
        )


async def test_client_and_server_understand_one_another() -> None:
    async with serving() as (port, _):
        got = await asked(port, body=b"hello")
        assert (got.status, got.body, got.headers["x-peer"]) == (200, b"hello", "127.0.0.1")
        assert (await asked(port, method="GET")).body == b""
        head = await asked(port, method="HEAD")
        assert (head.status, head.body) == (200, b"")


async def test_a_handler_that_fails_or_takes_too_long_answers_for_itself_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: messages.Request) -> messages.Response:
        if request.body == b"fail":
            raise ValueError("a fault")
        if request.body == b"wait":
            await asyncio.Event().wait()
        return messages.Response(status=204)

    async with serving(handler, allowed=limits.Limits(work_s=0.1)) as (port, _):
        assert (await asked(port, body=b"fail")).status == 500
        assert (await asked(port, body=b"wait")).status == 503
        assert (await asked(port)).status == 204
    assert [record.message for record in caplog.records] == ["Handler failed"]


async def test_who_has_left_does_not_wait_for_a_place() -> None:
    release, handled = asyncio.Event(), []

    async def handler(request: messages.Request) -> messages.Response:
        handled.append(request.body)
        await release.wait()
        return messages.Response(status=200)

    allowed = limits.Limits(in_work=1, place_s=5.0)
    async with serving(handler, allowed=allowed) as (port, running):
        first = asyncio.create_task(asked(port, body=b"first"))
        await _until(lambda: handled == [b"first"])
        async with connected(port) as (_, writer):
            writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\ngone")
            await _until(lambda: running.sockets == 2)
        await _until(lambda: running.sockets == 1)
        release.set()
        assert (await first).status == 200
        assert (await asked(port, body=b"third")).status == 200
    assert handled == [b"first", b"third"]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is watched tells nobody
            await asyncio.sleep(0)


async def test_a_drain_closes_the_idle_at_once_and_finishes_what_is_in_work() -> None:
    release, started = asyncio.Event(), asyncio.Event()

    async def handler(request: messages.Request) -> messages.Response:
        if request.body == b"slow":
            started.set()
            await release.wait()
        return messages.Response(status=200)

    with socket.create_server(("127.0.0.1", 0)) as sock:
        running = server.Server(handler)
        running.start(sock)
        port = sock.getsockname()[1]
        async with connected(port) as (reader, writer):
            writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            slow = asyncio.create_task(asked(port, body=b"slow"))
            await started.wait()
            draining = asyncio.create_task(running.drain(timeout_s=5.0))
            async with asyncio.timeout(2):
                assert await reader.read() == b""
            assert not draining.done()
            release.set()
            assert (await slow).headers["connection"] == "close"
            async with asyncio.timeout(2):
                await draining
        assert running.sockets == 0


async def test_a_drain_is_bounded_whatever_the_handler_does() -> None:
    started = asyncio.Event()

    async def handler(_request: messages.Request) -> messages.Response:
        started.set()
        await asyncio.Event().wait()
        return messages.Response(status=200)

    async with serving(handler) as (port, running):
        waiting = asyncio.create_task(asked(port))
        await started.wait()
        async with asyncio.timeout(2):
            await running.drain(timeout_s=0.1)
        with pytest.raises(client.NoAnswer):
            await waiting


ANSWERS: dict[str, tuple[bytes, tuple[int, bytes] | type[failures.NetworkFailure]]] = {
    "with a length": (b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok", (201, b"ok")),
    "chunked": (
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        (200, b"ok"),
    ),
    "until the end": (b"HTTP/1.0 200 X\r\n\r\nok", (200, b"ok")),
    "after a hint": (
        b"HTTP/1.1 103 Hint\r\n\r\nHTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n",
        (200, b""),
    ),
    "a redirect": (
        b"HTTP/1.1 302 X\r\nLocation: https://x\r\nContent-Length: 0\r\n\r\n",
        (302, b""),
    ),
    "nothing": (b"", client.NoAnswer),
    "half a head": (b"HTTP/1.1 200 X\r\nConte", client.NoAnswer),
    "half a body": (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf", client.NoAnswer),
    "no HTTP": (b"SSH-2.0-x\r\n", client.NoAnswer),
    "an upgrade": (b"HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n", client.NoAnswer),
    "a head without end": (b"HTTP/1.1 200 X\r\nX: " + b"x" * 40_000, client.NoAnswer),
    "too long a body": (
        b"HTTP/1.1 200 X\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
        client.AnswerTooLong,
    ),
}


@pytest.mark.parametrize(("raw", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_client_reads_an_answer_or_says_why_not(
    raw: bytes, expected: tuple[int, bytes] | type[failures.NetworkFailure]
) -> None:
    async with answering(raw) as port:
        if isinstance(expected, tuple):
            got = await asked(port)
            assert (got.status, got.body) == expected
        else:
            with pytest.raises(expected):
                await asked(port)


async def test_the_client_does_not_wait_for_ever() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(client.NoAnswer, match=r"within 0\.1 s"),
    ):
        await asked(silent.getsockname()[1], timeout_s=0.1)


@contextlib.asynccontextmanager
async def answering(raw: bytes) -> AsyncIterator[int]:
    """A server that answers anything with these bytes and closes."""
    done: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    listening = await asyncio.start_server(
        lambda reader, writer: done.append(asyncio.create_task(answer(reader, writer))),
        "127.0.0.1",
        0,
    )
    async with listening:
        yield listening.sockets[0].getsockname()[1]
        async with asyncio.timeout(5):
            await asyncio.gather(*done)


async def test_the_pool_keeps_its_connection(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(path=path) as (_, running):
        pooled = pool.Pool(path)
        for _ in range(3):
            got = await pooled.exchange(method="POST", target=b"/x", body=b"hi")
            assert (got.status, got.body) == (200, b"hi")
            assert running.sockets == 1
        pooled.close()


async def test_the_pool_replaces_a_connection_that_its_server_has_closed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    pooled = pool.Pool(path)
    for body in (b"1", b"2"):
        async with serving(path=path):
            assert (await pooled.exchange(method="POST", target=b"/x", body=body)).body == body
        path.unlink()
    pooled.close()


async def test_the_pool_is_served_though_all_its_connections_close_on_the_next_request(
    tmp_path: Path,
) -> None:
    """As when a server is killed: of several kept connections none is known to be closed yet."""
    path = tmp_path / "s"
    everybody = asyncio.Barrier(3)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not kept.is_set():
            await everybody.wait()  # so that the pool needs three connections at once
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readuntil(b"\r\n\r\n")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        ended.release()

    kept = asyncio.Event()
    ended = asyncio.Semaphore(0)
    pooled = pool.Pool(path)
    async with await asyncio.start_unix_server(answer_once, str(path)):
        first = [pooled.exchange(method="POST", target=b"/x") for _ in range(3)]
        assert [got.status for got in await asyncio.gather(*first)] == [200, 200, 200]
        kept.set()
        assert (await pooled.exchange(method="POST", target=b"/x")).status == 200
        pooled.close()
        for _ in range(4):
            await ended.acquire()


async def test_the_pool_gives_up_when_nobody_answers_in_time(tmp_path: Path) -> None:
    with pytest.raises(pool.Unreachable):
        await pool.Pool(tmp_path / "none").exchange(method="POST", target=b"/x", timeout_s=0.1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 X\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 X\r\nContent-Length: 9999999\r\n\r\n",
        b"garbage\r\n\r\n",
        b"x" * 40_000,
    ],
    ids=["nothing", "no length", "half", "too long", "garbage", "no end"],
)
async def test_the_pool_believes_no_odd_answer(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "s"
    asked_times = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked_times
        asked_times += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_unix_server(answer, str(path)):
        with pytest.raises(pool.Unreachable):
            await pool.Pool(path).exchange(method="POST", target=b"/x", timeout_s=5.0)
    assert asked_times == (1 if raw else 2)  # once more only where no byte came back
