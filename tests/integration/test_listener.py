"""The enrollment listener as a real process: two paths pass, bounded, and the port is kept."""

import asyncio
import json
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_kit.http1 import messages
from tests.support import certificates, edge


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


@pytest.mark.parametrize("target", ["/api/v1/enroll", "/api/v1/trust"])
async def test_the_two_paths_pass_to_the_engine_and_back(
    listener: edge.Listener, engine: edge.Engine, target: str
) -> None:
    got = await edge.ask_raw(listener, edge.post(target, body=b'{"node_id":"w"}'))
    assert (got.status, json.loads(got.body)) == (201, {"bytes": 15, "peer": "127.0.0.1"})
    assert got.headers == {
        "content-type": "application/json",
        "content-length": str(len(got.body)),
        "date": got.headers["date"],
        "cache-control": "no-store",
    }
    assert [(one.method, one.target, one.body) for one in engine.asked] == [
        ("POST", target.encode(), b'{"node_id":"w"}')
    ]


async def test_the_engine_hears_of_the_caller_and_the_content_type_and_nothing_else(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    told = ("X-Enlist-Peer: 10.9.9.9", "Forwarded: for=10.8.8.8", "Authorization: Bearer x")
    await edge.ask_raw(listener, edge.post(headers=told))
    assert dict(engine.asked[0].headers) == {
        "host": "localhost",
        "x-enlist-peer": "127.0.0.1",
        "content-type": "application/json",
        "content-length": "2",
    }


async def test_of_the_engines_headers_only_content_type_and_retry_after_come_back(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    engine.answer = lambda _request: messages.Response(
        status=429,
        headers={"content-type": "application/problem+json", "retry-after": "7", "server": "x"},
        body=b"{}",
    )
    got = await edge.ask_raw(listener, edge.post())
    assert (got.status, got.headers) == (
        429,
        {
            "content-type": "application/problem+json",
            "retry-after": "7",
            "content-length": "2",
            "date": got.headers["date"],
            "cache-control": "no-store",
        },
    )


async def test_a_connection_serves_one_request_after_the_other(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    async with edge.connected(listener) as (reader, writer):
        for _ in range(3):
            writer.write(edge.post())
            assert (await edge.read_answer(reader)).status == 201
        writer.write(edge.post("/nothing", body=b""))
        assert (await edge.read_answer(reader)).status == 404
        writer.write(edge.post() + edge.post())
        assert (await edge.read_answer(reader)).status == 201
        assert (await edge.read_answer(reader)).status == 201
    assert len(engine.asked) == 5


async def test_a_body_is_asked_for_with_100_continue_only_when_it_will_be_taken(
    listener: edge.Listener,
) -> None:
    async with edge.connected(listener) as (reader, writer):
        head, _, body = edge.post(headers=("Expect: 100-continue",)).partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        async with asyncio.timeout(edge.PATIENCE_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await edge.read_answer(reader)).status == 201
        writer.write(head.replace(b"enroll", b"other") + b"\r\n\r\n")
        assert (await edge.read_answer(reader)).status == 404


async def test_a_request_waits_for_an_engine_that_is_being_replaced(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    assert (await edge.ask_raw(listener, edge.post())).status == 201
    await engine.stop()
    waiting = asyncio.create_task(edge.ask_raw(listener, edge.post(body=b"[1]")))
    await edge.ask_raw(listener, edge.post("/404"))  # the listener itself goes on
    assert not waiting.done()
    engine.serve()
    assert (await waiting).status == 201
    assert [one.body for one in engine.asked] == [b"{}", b"[1]"]


async def test_a_request_waits_for_a_socket_that_does_not_exist_yet(tmp_path: Path) -> None:
    engine = edge.Engine(tmp_path / "e.sock")
    async with edge.running(tmp_path) as listener:
        waiting = asyncio.create_task(edge.ask_raw(listener, edge.post()))
        await edge.ask_raw(listener, edge.post("/404"))
        engine.serve()
        assert (await waiting).status == 201
    await engine.stop()
    engine.close()


async def test_an_engine_away_for_too_long_is_503_with_retry_after(tmp_path: Path) -> None:
    async with edge.running(tmp_path, "--engine-wait-s", "0.2") as listener:
        got = await edge.ask_raw(listener, edge.post())
    problem = json.loads(got.body)
    assert got.status == 503
    assert got.headers["content-type"] == "application/problem+json"
    assert got.headers["retry-after"] == "5"
    assert (problem["code"], problem["class"], problem["retry_after"]) == (
        "unavailable",
        "transient",
        5,
    )
    assert problem["request_id"]


async def test_an_engine_that_dies_with_the_request_is_asked_once_more(
    listener: edge.Listener, engine: edge.Engine
) -> None:
    engine.hold = asyncio.Event()
    waiting = asyncio.create_task(edge.ask_raw(listener, edge.post()))
    async with asyncio.timeout(edge.PATIENCE_S):
        await engine.holding.acquire()
    await engine.stop(timeout_s=0.0)
    engine.hold = None
    engine.serve()
    assert (await waiting).status == 201
    assert len(engine.asked) == 2


async def test_one_request_past_the_places_waits_and_is_then_answered_503(
    tmp_path: Path, engine: edge.Engine
) -> None:
    engine.hold = asyncio.Event()
    async with edge.running(tmp_path, "--max-in-work", "2") as listener:
        held = [asyncio.create_task(edge.ask_raw(listener, edge.post())) for _ in range(2)]
        async with asyncio.timeout(edge.PATIENCE_S):
            await engine.holding.acquire()
            await engine.holding.acquire()
        refused = await edge.ask_raw(listener, edge.post())
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        engine.hold.set()
        assert [(await one).status for one in held] == [201, 201]
    assert len(engine.asked) == 2


async def test_a_replaced_certificate_is_served_by_every_process_at_once(
    tmp_path: Path, engine: edge.Engine
) -> None:
    assert engine.path.exists()
    first = certificates.issue()
    file = first.write(tmp_path / "tls.pem")
    with edge.bound() as sock:
        async with (
            edge.running(tmp_path, listening=sock, tls_file=file, server_certificate=first) as one,
            edge.running(tmp_path, listening=sock, tls_file=file, server_certificate=first),
        ):
            assert await _presented(one, times=20) == {first.der}
            # A steady stream of callers, none of whom may fail while the file is replaced.
            stream = asyncio.create_task(_presented(one, times=100))
            renewed = certificates.issue(key=first.key)
            one.replace_certificate(renewed)
            assert await _presented(one, times=20) == {renewed.der}
            assert await stream <= {first.der, renewed.der}


async def test_a_certificate_that_cannot_be_used_leaves_the_former_in_service(
    listener: edge.Listener,
) -> None:
    aside = listener.tls_file.with_suffix(".new")
    aside.write_text("no certificate")
    aside.rename(listener.tls_file)
    assert await _presented(listener, times=3) == {listener.server.der}
    note = await listener.wait_for("Certificate could not be replaced")
    assert note["level"] == "error"


async def _presented(listener: edge.Listener, *, times: int) -> set[bytes]:
    seen: set[bytes] = set()
    for _ in range(times):
        async with edge.connected(listener) as (reader, writer):
            seen.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            writer.write(edge.post())
            assert (await edge.read_answer(reader)).status == 201
    return seen


async def test_sigterm_finishes_what_is_in_work_and_keeps_the_port_for_a_successor(
    tmp_path: Path, engine: edge.Engine
) -> None:
    engine.hold = asyncio.Event()
    with edge.bound() as sock:
        async with edge.running(tmp_path, listening=sock) as listener:
            waiting = asyncio.create_task(edge.ask_raw(listener, edge.post()))
            async with asyncio.timeout(edge.PATIENCE_S):
                await engine.holding.acquire()
            stopping = asyncio.create_task(listener.stop())
            await listener.wait_for("Draining")
            # Nobody accepts now, yet the kernel holds the caller for whoever comes next.
            early = asyncio.create_task(edge.ask_raw(listener, edge.post("/404")))
            engine.hold.set()
            got = await waiting
            assert (got.status, got.headers["connection"]) == (201, "close")
            assert await stopping == 0
        async with edge.running(tmp_path, listening=sock):
            assert (await early).status == 404


async def test_sighup_is_not_for_the_listener(listener: edge.Listener) -> None:
    listener.process.send_signal(signal.SIGHUP)
    await listener.wait_for("Stayed on SIGHUP")
    assert (await edge.ask_raw(listener, edge.post())).status == 201


async def test_a_hosts_listener_goes_when_the_host_is_killed(tmp_path: Path) -> None:
    certificates.issue().write(tmp_path / "tls.pem")
    with edge.bound() as sock:
        script = (
            "import os,subprocess,sys\n"
            "own=['--child-of',str(os.getpid())]\n"
            "child=subprocess.Popen(sys.argv[2:]+own,pass_fds=[int(sys.argv[1])],stdin=0)\n"
            "print(child.pid,flush=True)\n"
            "child.wait()\n"
        )
        fd = str(sock.fileno())
        arguments = ["--fd", fd, "--tls-file", f"{tmp_path}/tls.pem"]
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, fd, sys.executable, "-m", "platform_server.listener"),
            *(*arguments, "--engine-socket", f"{tmp_path}/e.sock"),
            pass_fds=[sock.fileno()],
            cwd=edge.ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert parent.stdout is not None
        assert parent.stderr is not None
        async with asyncio.timeout(edge.PATIENCE_S):
            await parent.stdout.readline()
            assert b"Listening" in await parent.stderr.readline()
            parent.kill()
            await parent.wait()
            # Its stderr ends when the last holder of the pipe, the listener, is gone.
            rest = await parent.stderr.read()
        assert b'"Stopped"' in rest


async def test_without_its_tls_file_the_listener_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "tls.pem").write_text("nothing of use")
    with edge.bound() as sock:
        for file, reason in (("missing.pem", "does not exist"), ("tls.pem", "does not hold")):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "platform_server.listener", "--start-s", "0.2"),
                *("--fd", str(sock.fileno()), "--tls-file", f"{tmp_path}/{file}"),
                *("--engine-socket", f"{tmp_path}/e.sock"),
                pass_fds=[sock.fileno()],
                cwd=edge.ROOT,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(edge.PATIENCE_S):
                _, said = await process.communicate()
            note = json.loads(said)
            assert (process.returncode, note["event"]) == (1, "Could not start")
            assert reason in note["reason"]


async def test_forwarded_names_the_caller_only_when_a_trusted_proxy_says_so(
    tmp_path: Path, engine: edge.Engine
) -> None:
    named = edge.post(headers=('Forwarded: for=192.0.2.9, for="[2001:db8::7]:4711";proto=https',))
    async with edge.running(tmp_path, "--trusted-proxy", "127.0.0.0/8") as listener:
        assert json.loads((await edge.ask_raw(listener, named)).body)["peer"] == "2001:db8::7"
        unreadable = edge.post(headers=("Forwarded: for=_hidden",))
        assert (await edge.ask_raw(listener, unreadable)).status == 400
    async with edge.running(tmp_path, "--trusted-proxy", "192.0.2.0/24") as listener:
        assert json.loads((await edge.ask_raw(listener, named)).body)["peer"] == "127.0.0.1"
    assert len(engine.asked) == 2


PROXY_V1 = b"PROXY TCP4 198.51.100.4 192.0.2.1 40000 8444\r\n"
PROXY_V2 = (
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
    + socket.inet_aton("198.51.100.4")
    + socket.inet_aton("192.0.2.1")
    + b"\x9c\x40\x20\xfc"
)


@pytest.mark.parametrize("header", [PROXY_V1, PROXY_V2], ids=["version 1", "version 2"])
async def test_a_proxy_header_of_a_trusted_proxy_names_the_caller(
    tmp_path: Path, engine: edge.Engine, header: bytes
) -> None:
    assert engine.path.exists()
    async with edge.running(tmp_path, "--trusted-proxy", "127.0.0.1") as listener:
        body = await asyncio.to_thread(_ask_through_proxy, listener.port, header)
        assert b'"peer": "198.51.100.4"' in body
        # The same proxy may come without the header.
        assert json.loads((await edge.ask_raw(listener, edge.post())).body)["peer"] == "127.0.0.1"


@pytest.mark.parametrize("header", [PROXY_V1, PROXY_V2], ids=["version 1", "version 2"])
async def test_a_strangers_proxy_header_is_a_handshake_that_fails(
    listener: edge.Listener, engine: edge.Engine, header: bytes
) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.to_thread(_ask_through_proxy, listener.port, header)
    assert engine.asked == []


async def test_a_proxy_header_that_cannot_be_read_closes_the_connection(
    tmp_path: Path, engine: edge.Engine
) -> None:
    async with edge.running(tmp_path, "--trusted-proxy", "127.0.0.1") as listener:
        for header in (PROXY_V1.replace(b"TCP4", b"TCP6"), PROXY_V2[:12] + b"\x31" + PROXY_V2[13:]):
            with pytest.raises((ssl.SSLError, OSError)):
                await asyncio.to_thread(_ask_through_proxy, listener.port, header)
    assert engine.asked == []


def _ask_through_proxy(port: int, header: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=edge.PATIENCE_S) as sock:
        sock.sendall(header)
        with edge.client_context().wrap_socket(sock) as secured:
            secured.sendall(edge.post(headers=("Connection: close",)))
            got = b""
            while data := secured.recv(65_536):
                got += data
    return got


async def test_what_it_writes_is_json_and_holds_nothing_of_what_it_was_sent(
    tmp_path: Path, engine: edge.Engine
) -> None:
    secret = b'{"token":"ent_secret"}'
    async with edge.running(tmp_path) as listener:
        await edge.ask_raw(listener, edge.post(body=secret))
        await edge.ask_raw(listener, b"POST /api/v1/enroll?ent_secret HTTP/9\r\n\r\n")
        await edge.ask_raw(listener, edge.post("/ent_secret"))
    assert [one.body for one in engine.asked] == [secret]
    assert [note["event"] for note in listener.notes] == ["Listening", "Draining", "Stopped"]
    assert "ent_secret" not in json.dumps(listener.notes)


async def test_the_process_loads_little() -> None:
    listing = "import platform_server.listener.process, sys; print(' '.join(sys.modules))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", listing), cwd=edge.ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(edge.PATIENCE_S):
        listed, _ = await process.communicate()
    loaded = {name.partition(".")[0] for name in listed.decode().split()}
    assert "uvloop" in loaded
    assert loaded.isdisjoint({"aiohttp", "pydantic", "cryptography", "h11", "httpx", "structlog"})
