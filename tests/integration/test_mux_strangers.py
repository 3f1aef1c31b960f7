"""What strangers, crowds and breaches of the protocol cost a server of links."""

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from runtime_kit.mux import connection, frames, link, tls_server
from tests.support import certificates, link_gate, waits

STRANGERS: dict[str, bytes] = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": random.Random(3).randbytes(5_000),
    "a record that never ends": b"\x16\x03\x01\x40\x00" + b"\x01" * 16_379,
    "a frame without TLS": frames.frame(frames.Kind.PING, payload=b"12345678"),
}


@pytest.mark.parametrize("raw", STRANGERS.values(), ids=STRANGERS.keys())
async def test_a_stranger_is_closed_who_says(raw: bytes, tmp_path: Path) -> None:
    limits = tls_server.Limits(handshake_s=0.3)
    async with link_gate.gate(tmp_path, limits=limits) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(raw)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()
        await waits.until(lambda: not at.acceptor.handshaking)
        assert len(at.failed) == 1


async def test_a_stranger_who_says_nothing_is_closed_in_time(tmp_path: Path) -> None:
    async with link_gate.gate(tmp_path, limits=tls_server.Limits(handshake_s=0.1)) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        await waits.until(lambda: len(at.failed) == 1)
        assert isinstance(at.failed[0], TimeoutError)


async def test_silent_strangers_take_no_more_than_their_places_and_then_give_way(
    tmp_path: Path,
) -> None:
    limits = tls_server.Limits(
        handshakes=4, handshakes_per_address=2, waiting=3, waiting_per_address=2, handshake_s=0.5
    )
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path, limits=limits) as at:
        at.known[link_gate.NAME] = [node.der]
        silent = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(6)]
        await waits.until(lambda: at.acceptor.turned_away == 2)
        assert at.acceptor.handshaking == 2
        assert at.acceptor.waiting == 2
        # Another address has places of its own.
        other = await at.dial(node, local="127.0.0.9")
        assert await other.ask("hello", b"", timeout_s=5) == b"hello "
        # And the silent ones' own address has places again once their time is over.
        await waits.until(lambda: at.acceptor.handshaking == at.acceptor.waiting == 0)
        again = await at.dial(node)
        assert await again.ask("hello", b"", timeout_s=5) == b"hello "
        for _, one in silent:
            one.close()
        await link_gate.closed(other, again)


async def test_a_crowd_at_once_gets_in_one_after_the_other(tmp_path: Path) -> None:
    limits = tls_server.Limits(handshakes=4, handshakes_per_address=4)
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path, limits=limits) as at:
        at.known[link_gate.NAME] = [node.der]
        most = 0

        async def come() -> link.Link:
            nonlocal most
            ours = await at.dial(node)
            most = max(most, at.acceptor.handshaking)
            await ours.ask("hello", b"", timeout_s=20)
            return ours

        links = await asyncio.gather(*(come() for _ in range(60)))
        assert at.acceptor.turned_away == 0
        assert most <= 4
        assert len(at.acceptor.links) == 60
        await link_gate.closed(*links)
        await waits.until(lambda: at.acceptor.links == [])


async def test_there_are_no_more_sessions_than_allowed(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    async with link_gate.gate(tmp_path, limits=tls_server.Limits(sessions=2)) as at:
        at.known[link_gate.NAME] = [node.der]
        links = [await at.dial(node) for _ in range(2)]
        for ours in links:
            await ours.ask("hello", b"", timeout_s=5)
        with pytest.raises(ConnectionError):
            await at.dial(node)
        assert at.acceptor.turned_away == 1
        await link_gate.closed(links.pop())
        await waits.until(lambda: at.acceptor.sessions == 1)
        third = await at.dial(node)
        await third.ask("hello", b"", timeout_s=5)
        await link_gate.closed(third, *links)


async def test_a_breach_of_the_protocol_ends_one_link_and_no_other(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    chance = random.Random(4)
    async with link_gate.gate(tmp_path) as at:
        at.known[link_gate.NAME] = [node.der]
        good = await at.dial(node)
        await good.ask("hello", b"", timeout_s=5)
        context = at.context(node)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", at.port, ssl=context, server_hostname=link_gate.NAME
            )
            writer.write(b"\xff" + chance.randbytes(chance.randrange(8, 50_000)))
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    said = await reader.read()
                    assert frames.read_header(said)[1] == frames.Kind.GOAWAY
            writer.transport.abort()
        await waits.until(lambda: len(at.acceptor.links) == 1)
        assert await good.ask("hello", b"", timeout_s=5) == b"hello "
        await link_gate.closed(good)


async def test_who_reads_nothing_is_cut_off_and_costs_little(tmp_path: Path) -> None:
    node = certificates.issue(names=("node",))
    limits = connection.Limits(close_s=0.2)
    async with link_gate.gate(tmp_path, link_limits=limits) as at:
        at.known[link_gate.NAME] = [node.der]
        context = at.context(node)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)

            def flood() -> None:
                raw.settimeout(5)
                raw.connect(("127.0.0.1", at.port))
                secure = context.wrap_socket(raw, server_hostname=link_gate.NAME)
                pings = frames.frame(frames.Kind.PING, payload=b"12345678") * 1_000
                try:
                    for _ in range(2_000):
                        secure.sendall(pings)
                except OSError:
                    return
                finally:
                    secure.close()

            await asyncio.to_thread(flood)
        await waits.until(lambda: len(at.opened) == 1)
        theirs, _ = at.opened[0]
        ended = await theirs.wait_closed()
        assert "does not read" in ended.reason
        await waits.until(lambda: at.acceptor.links == [])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_client_that_asks_for_ever_and_never_reads_is_ended_over_tls_as_well(
    tmp_path: Path, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    node = certificates.issue(names=("node",))
    held = 0

    def now(own: link.Link, _method: str, _body: bytes) -> bytes:
        nonlocal held
        held = max(held, own._core.unsent)
        return b"x" * connection.SMALL_BYTES

    async def ask_for_ever(at: link_gate.Gate) -> None:
        _, writer = await asyncio.open_connection(
            "127.0.0.1",
            at.port,
            ssl=at.context(node),
            server_hostname=link_gate.NAME,
            limit=1_024,  # what is read ahead
        )
        await waits.until(lambda: bool(at.opened))
        theirs = at.opened[0][0]
        theirs.answer_now = now
        with contextlib.suppress(ConnectionError):
            for number in range(100_000):
                opening = frames.frame(frames.Kind.OPEN, stream=2 * number + 1, payload=b"beat")
                writer.write(opening + frames.whole_body(b"{}", stream=2 * number + 1))
                if theirs.ended is not None:
                    break
                await asyncio.sleep(0)
        assert theirs.ended is not None
        assert "does not read" in theirs.ended.reason
        assert 0 < held <= connection.Limits().unsent_bytes
        writer.transport.abort()
        await waits.pace()

    async def main() -> None:
        async with link_gate.gate(tmp_path) as at:
            at.known[link_gate.NAME] = [node.der]
            await ask_for_ever(at)

    run(main())
