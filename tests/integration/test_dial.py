"""Real sockets on loopback: several addresses, proxies, and clear refusals."""

import asyncio
import base64
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runtime_kit import dial, failures, server_trust, tls
from tests.support import certificates

NO_PROXY: dict[str, str] = {}


@dataclasses.dataclass(slots=True)
class Proxy:
    """An HTTP proxy that notes what it was asked and answers as it is told."""

    port: int = 0
    answer: bytes | None = None
    credentials: str | None = None
    asked: list[str] = dataclasses.field(default_factory=list)

    def environment(self, user: str = "") -> dict[str, str]:
        return {"https_proxy": f"http://{user}127.0.0.1:{self.port}"}


@contextlib.asynccontextmanager
async def proxying() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    serving: list[asyncio.Task[None]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            proxy.asked.append(head)
            answer = proxy.answer
            if answer is None and proxy.credentials is not None:
                expected = base64.b64encode(proxy.credentials.encode()).decode()
                if f"Proxy-Authorization: Basic {expected}\r\n" not in head:
                    answer = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n"
            if answer is None:
                host, _, port = head.split(" ")[1].rpartition(":")
                inner, outer = await asyncio.open_connection(host.strip("[]"), int(port))
                writer.write(b"HTTP/1.1 200 Connected\r\nVia: x\r\n\r\n")
                await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(relay(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        async with asyncio.timeout(5):
            await asyncio.gather(*serving)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.write_eof()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
async def test_an_address_of_either_family_is_dialled(
    family: socket.AddressFamily, host: str
) -> None:
    with socket.create_server((host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        with await dial.dial(host, port=port, environment=NO_PROXY) as sock:
            assert sock.getpeername()[:2] == (host, port)
            assert sock.getblocking() is False


async def test_a_name_is_resolved_anew_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1", "127.0.0.2"])
    _resolve_to(monkeypatch, lambda: [next(answers)])
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        reached = []
        for _ in range(2):
            with await dial.dial("moves.example", port=port, environment=NO_PROXY) as sock:
                reached.append(sock.getpeername()[0])
    assert reached == ["127.0.0.1", "127.0.0.2"]


async def test_an_address_that_swallows_everything_costs_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _resolve_to(monkeypatch, lambda: ["127.0.0.9", "127.0.0.1"])
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def swallowing(sock: socket.socket, address: Any) -> None:
        if address[0] == "127.0.0.9":
            await asyncio.Event().wait()
        await connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", swallowing)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        began = loop.time()
        port = listening.getsockname()[1]
        with await dial.dial("dual.example", port=port, environment=NO_PROXY) as sock:
            assert sock.getpeername()[0] == "127.0.0.1"
        assert loop.time() - began < 1.0


async def test_a_refusing_address_gives_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, lambda: ["::1", "127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with await dial.dial("dual.example", port=port, environment=NO_PROXY) as sock:
            assert sock.getpeername()[0] == "127.0.0.1"


async def test_a_port_where_nobody_listens_is_transient_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(dial.DialFailed, match=f"127.0.0.1:{port}") as caught:
        await dial.dial("127.0.0.1", port=port, environment=NO_PROXY)
    assert caught.value.kind is failures.Kind.TRANSIENT


async def test_a_name_that_does_not_exist_is_transient_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    _resolve_to(monkeypatch, unknown)
    with pytest.raises(dial.DialFailed, match=r"nowhere\.example.*not known"):
        await dial.dial("nowhere.example", port=1, environment=NO_PROXY)


async def test_through_a_proxy_the_target_is_asked_for_by_name_and_authenticated(
    tmp_path: Path,
) -> None:
    issued = certificates.issue()
    context = tls.server_context(issued.write(tmp_path / "s.pem"))
    serving: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"got " + await reader.read(100))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server, proxying() as proxy:
        proxy.credentials = "user:hunter2"
        port = server.sockets[0].getsockname()[1]
        connection = await server_trust.open_authenticated(
            f"https://127.0.0.1:{port}",
            trust=server_trust.ServerTrust(pins=frozenset({issued.pin})),
            environment=proxy.environment("user:hunter2@"),
        )
        async with connection:
            connection.writer.write(b"hello")
            assert await connection.reader.read(100) == b"got hello"
        assert [head.split("\r\n")[0] for head in proxy.asked] == [
            f"CONNECT 127.0.0.1:{port} HTTP/1.1"
        ] * 2
        async with asyncio.timeout(5):
            await asyncio.gather(*serving)


async def test_a_proxy_that_wants_a_password_is_named_and_the_password_never() -> None:
    async with proxying() as proxy:
        proxy.credentials = "user:right"
        for user in ("", "user:hunter2@"):
            with pytest.raises(dial.ProxyAsksForCredentials) as caught:
                await dial.dial("h.example", port=8444, environment=proxy.environment(user))
            assert "proxy asked for credentials (407)" in str(caught.value)
            assert "hunter2" not in str(caught.value)
            assert caught.value.kind is failures.Kind.NEEDS_OPERATOR


ANSWERS: dict[str, tuple[bytes, type[failures.NetworkFailure]]] = {
    "forbidden": (b"HTTP/1.1 403 Forbidden\r\n\r\n", dial.ProxyRefused),
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: https://x\r\n\r\n", dial.ProxyRefused),
    "a bad gateway": (b"HTTP/1.1 502 Bad\r\n\r\n", dial.DialFailed),
    "no HTTP": (b"SSH-2.0-x\r\n\r\n", dial.DialFailed),
    "the end": (b"", dial.DialFailed),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"x" * 20_000, dial.DialFailed),
    "bytes after the head": (b"HTTP/1.1 200 OK\r\n\r\nsurplus", dial.DialFailed),
}


@pytest.mark.parametrize(("answer", "error"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_else_a_proxy_answers_is_a_clear_refusal(
    answer: bytes, error: type[failures.NetworkFailure]
) -> None:
    async with proxying() as proxy:
        proxy.answer = answer
        with pytest.raises(error, match=f"proxy 127.0.0.1:{proxy.port}"):
            await dial.dial("h.example", port=8444, environment=proxy.environment())


async def test_a_proxy_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {"https_proxy": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(dial.DialFailed, match=r"0\.1 s through the proxy"):
            await dial.dial("h.example", port=1, timeout_s=0.1, environment=environment)


def _resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: Any) -> None:
    async def resolve(_host: str, port: int, **_options: Any) -> list[Any]:
        return [
            (family, socket.SOCK_STREAM, 6, "", _socket_address(family, address, port))
            for address in addresses()
            for family in [socket.AF_INET6 if ":" in address else socket.AF_INET]
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


def _socket_address(family: socket.AddressFamily, address: str, port: int) -> tuple[Any, ...]:
    return (address, port) if family is socket.AF_INET else (address, port, 0, 0)
