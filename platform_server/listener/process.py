"""The life of one listener process: start, serve, drain, go.

It ends when it is told to (SIGTERM, SIGINT) and when whoever started it is gone. SIGHUP is not
for it: the engine is replaced behind its back and it goes on serving.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import uvloop

from platform_server.listener import certificate, door, forwarded, notes, proxy_protocol
from runtime_kit import clock, descriptors
from runtime_kit.http1 import limits, pool, server

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_S = 0.1
_SPARE_DESCRIPTORS = 128
_TALLY_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said."""

    fds: Sequence[int]
    tls_file: Path
    engine_socket: Path
    proxies: Sequence[forwarded.Network]
    limits: limits.Limits
    engine_wait_s: float
    drain_s: float
    start_s: float


class CannotStart(Exception):
    """The process cannot serve; the sentence says why."""


def run(settings: Settings) -> None:
    """Serve until told to stop.

    Raises:
        CannotStart: Nothing was served.
    """
    parent = os.getppid()
    _end_with_parent()
    if os.getppid() != parent:
        raise CannotStart("Whoever started the listener is gone")
    # each socket may need a second descriptor towards the engine
    descriptors.raise_limit(2 * settings.limits.sockets + _SPARE_DESCRIPTORS)
    uvloop.run(_serve(settings))


def _end_with_parent() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise CannotStart("The kernel does not tell of a parent's end (prctl)")


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _stay)

    tally = notes.Tally()
    served = await _load_certificate(settings)
    engine = pool.Pool(settings.engine_socket)
    passing = door.Door(
        engine, proxies=settings.proxies, wait_s=settings.engine_wait_s, tally=tally
    )

    async def preface(sock: socket.socket, peer: str) -> str:
        if not forwarded.is_trusted(peer, proxies=settings.proxies):
            return peer
        return await proxy_protocol.read_caller(sock, peer=peer)

    serving = server.Server(
        passing.forward,
        limits=settings.limits,
        tls=served.context,
        before_body=passing.before_body,
        refusal=passing.refusal,
        preface=preface if settings.proxies else None,
        handshake_failed=lambda _error, _peer: tally.count("handshakes_failed"),
    )
    sockets = [socket.socket(fileno=fd) for fd in settings.fds]
    for sock in sockets:
        serving.start(sock)
    notes.write("Listening", pid=os.getpid(), addresses=[s.getsockname()[:2] for s in sockets])
    telling = asyncio.create_task(_tell(tally, serving=serving), name="listener-tally")
    await stopping.wait()
    notes.write("Draining", sockets=serving.sockets)
    await serving.drain(timeout_s=settings.drain_s)
    telling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await telling
    engine.close()
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
