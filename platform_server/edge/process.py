"""The life of one process at the edge: start, serve, drain, go.

It ends when it is told to (SIGTERM, SIGINT) and, as a host's child, when that host is gone. SIGHUP
is not for it: the engine is replaced behind its back and it goes on serving. A service manager is
told when it listens and when it stops.
"""

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from platform_server.edge import certificate, notes
from runtime_kit import clock, descriptors, service_manager
from runtime_kit.http1 import server

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_S = 0.1
_TALLY_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said."""

    sockets: Sequence[socket.socket]
    parent: int | None
    """Whose end is this process's end, too; None under a service manager."""
    manager: service_manager.Manager
    tls_file: Path
    drain_s: float
    start_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a process has before it serves."""

    tls: Callable[[], ssl.SSLContext]
    tally: notes.Tally

    def handshake_failed(self, _error: OSError, _peer: str) -> None:
        """For `server.Server`."""
        self.tally.count("handshakes_failed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What serves, and what is to be closed after it."""

    serving: server.Server
    close: Callable[[], None] = lambda: None


Build = Callable[[Given], Part]


class CannotStart(Exception):
    """The process cannot serve; the sentence says why."""


def run(settings: Settings, *, build: Build, descriptors_needed: int) -> None:
    """Serve until told to stop.

    Raises:
        CannotStart: Nothing was served.
    """
    if settings.parent is not None:
        _end_with(settings.parent)
    descriptors.raise_limit(descriptors_needed)
    uvloop.run(_serve(settings, build=build))


def _end_with(parent: int) -> None:
    # Here, since importing it makes a page that is written and run, which a unit forbids.
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise CannotStart("The kernel does not tell of a parent's end (prctl)")
    if os.getppid() != parent:
        raise CannotStart("Whoever started this process is gone")


async def _serve(settings: Settings, *, build: Build) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _stay)

    tally = notes.Tally()
    served = await _load_certificate(settings)
    part = build(Given(tls=served.context, tally=tally))
    sockets = settings.sockets
    for sock in sockets:
        part.serving.start(sock)
    notes.write("Listening", pid=os.getpid(), addresses=[s.getsockname()[:2] for s in sockets])
    settings.manager.ready()
    telling = asyncio.create_task(_tell(tally, serving=part.serving), name="edge-tally")
    await stopping.wait()
    settings.manager.stopping()
    notes.write("Draining", sockets=part.serving.sockets)
    await part.serving.drain(timeout_s=settings.drain_s)
    telling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await telling
    part.close()
    for sock in sockets:
        sock.close()
    notes.write_counts("Stopped", counts=tally.take())


def _stay() -> None:
    notes.write("Stayed on SIGHUP")


async def _load_certificate(settings: Settings) -> certificate.CertificateFile:
    """The engine writes the file; at the very first start it may come a moment later."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.start_s
    while True:
        try:
            return certificate.CertificateFile(settings.tls_file, note=_note_certificate)
        except FileNotFoundError as error:
            if loop.time() > deadline:
                raise CannotStart(f"{settings.tls_file} does not exist") from error
            await clock.SystemClock().sleep(_LOOK_S)
        except OSError as error:
            raise CannotStart(
                f"{settings.tls_file} does not hold a key and its certificate: {error}"
            ) from error


def _note_certificate(event: str, reason: str) -> None:
    if reason:
        notes.write(event, level="error", reason=reason)
    else:
        notes.write(event)


async def _tell(tally: notes.Tally, *, serving: server.Server) -> None:
    told = 0
    while True:
        await clock.SystemClock().sleep(_TALLY_S)
        tally.count("sockets_closed_for_room", times=serving.evicted - told)
        told = serving.evicted
        counts = tally.take()
        if counts:
            notes.write_counts("Counted in the last minute", counts=counts)
