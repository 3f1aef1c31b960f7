"""A real listener process with a stand-in engine on its Unix socket, and raw clients for it."""

import asyncio
import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from runtime_kit.http1 import limits, messages, server
from tests.support import certificates

ROOT = Path(__file__).parents[2]
LISTENER = "platform_server.listener"
PATIENCE_S = 20.0  # for what takes no time unless it is broken


class Engine:
    """Answers on a Unix socket and notes whatever it was asked.

    Like the real host it keeps the socket listening while nobody serves it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[messages.Request] = []
        self.answer: Callable[[messages.Request], messages.Response] = _created
        self.hold: asyncio.Event | None = None
        self.holding = asyncio.Semaphore(0)
        self._serving: server.Server | None = None
        self._socket: socket.socket | None = None

    def listen(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.path))
        self._socket.listen(512)

    def serve(self) -> None:
        if self._socket is None:
            self.listen()
        assert self._socket is not None
        self._serving = server.Server(self._handle, limits=limits.Limits(idle_s=60.0))
        self._serving.start(self._socket)

    async def stop(self, *, timeout_s: float = 1.0) -> None:
        """End serving as an engine that is being replaced does; the socket stays."""
        if self._serving is not None:
            await self._serving.drain(timeout_s=timeout_s)
            self._serving = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self.path.unlink()
            self._socket = None

    async def _handle(self, request: messages.Request) -> messages.Response:
        self.asked.append(request)
        if self.hold is not None:
            self.holding.release()
            await self.hold.wait()
        return self.answer(request)


def _created(request: messages.Request) -> messages.Response:
    body = json.dumps({"bytes": len(request.body), "peer": request.headers["x-enlist-peer"]})
    return messages.Response(
        status=201, headers={"content-type": "application/json"}, body=body.encode()
    )


@dataclasses.dataclass(slots=True, kw_only=True)
class Listener:
    """One listener process and the port it was given."""

    port: int
    process: asyncio.subprocess.Process
    socket: socket.socket
    server: certificates.Issued
    tls_file: Path
    notes: list[dict[str, Any]]
    noted: asyncio.Condition

    async def wait_for(self, event: str) -> dict[str, Any]:
        """The first line on stderr with this event."""

        def found() -> dict[str, Any] | None:
            return next((note for note in self.notes if note["event"] == event), None)

        async with asyncio.timeout(PATIENCE_S), self.noted:
            await self.noted.wait_for(lambda: found() is not None)
        note = found()
        assert note is not None
        return note

    async def stop(self) -> int:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def replace_certificate(self, new: certificates.Issued) -> None:
        """As the engine does it: written aside, renamed."""
        aside = self.tls_file.with_suffix(".new")
        new.write(aside)
        aside.rename(self.tls_file)


def allow_descriptors(number: int) -> None:
    """Let this process hold that many sockets; many systems start with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


def bound(host: str = "127.0.0.1") -> socket.socket:
    return socket.create_server((host, 0), backlog=1024)


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *arguments: str,
    listening: socket.socket | None = None,
    tls_file: Path | None = None,
    server_certificate: certificates.Issued | None = None,
    module: str = LISTENER,
) -> AsyncIterator[Listener]:
    """Start a process at the edge and wait until it serves; several may share a socket."""
    own = listening is None
    sock = bound() if listening is None else listening
    issued = server_certificate or certificates.issue()
    file = tls_file or issued.write(folder / "tls.pem")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *("--fd", str(sock.fileno()), "--tls-file", str(file)),
        *(("--engine-socket", str(folder / "e.sock")) if module == LISTENER else ()),
        *arguments,
        pass_fds=[sock.fileno()],
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    listener = Listener(
        port=sock.getsockname()[1],
        process=process,
        socket=sock,
        server=issued,
        tls_file=file,
        notes=[],
        noted=asyncio.Condition(),
    )
    reading = asyncio.create_task(_read_notes(listener), name="listener-notes")
    try:
        await listener.wait_for("Listening")
        yield listener
    finally:
        await listener.stop()
        async with asyncio.timeout(PATIENCE_S):
            await reading
        if own:
            sock.close()


async def _read_notes(listener: Listener) -> None:
    assert listener.process.stderr is not None
    async for line in listener.process.stderr:
        try:
            note = json.loads(line)
        except ValueError:
            note = {"event": "no JSON", "line": line.decode(errors="replace")}
        async with listener.noted:
            listener.notes.append(note)
            listener.noted.notify_all()


def client_context() -> ssl.SSLContext:
    """A client that believes anybody: what is tested here is the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def connected(
    listener: Listener, *, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A TLS connection to the listener."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=context or client_context()
        )
    try:
        yield reader, writer
    finally:
        await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@dataclasses.dataclass(frozen=True, slots=True)
class Got:
    """An answer as raw as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


async def read_answer(reader: asyncio.StreamReader) -> Got:
    """Read one answer by its Content-Length."""
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(int(first.split(" ")[1]), headers, body)


async def ask_raw(listener: Listener, raw: bytes) -> Got:
    """Send bytes over a new connection and read one answer."""
    async with connected(listener) as (reader, writer):
        writer.write(raw)
        return await read_answer(reader)


def post(
    target: str = "/api/v1/enroll", *, body: bytes = b"{}", headers: tuple[str, ...] = ()
) -> bytes:
    """A plain request."""
    lines = [
        f"POST {target} HTTP/1.1",
        "Host: edge",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
