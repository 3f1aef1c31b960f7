"""What one listener process serves: the door to the engine, behind the limits of the port."""

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path

from platform_server.edge import process as edge_process
from platform_server.listener import door, forwarded, proxy_protocol
from runtime_kit.http1 import limits, pool, server

_SPARE_DESCRIPTORS = 128


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said."""

    life: edge_process.Settings
    engine_socket: Path
    proxies: Sequence[forwarded.Network]
    limits: limits.Limits
    engine_wait_s: float


def run(settings: Settings) -> None:
    """Serve until told to stop.

    Raises:
        edge_process.CannotStart: Nothing was served.
    """

    def build(given: edge_process.Given) -> edge_process.Part:
        return _build(settings, given=given)

    edge_process.run(
        settings.life,
        build=build,
        # each socket may need a second descriptor towards the engine
        descriptors_needed=2 * settings.limits.sockets + _SPARE_DESCRIPTORS,
    )


def _build(settings: Settings, *, given: edge_process.Given) -> edge_process.Part:
    engine = pool.Pool(settings.engine_socket)
    passing = door.Door(
        engine, proxies=settings.proxies, wait_s=settings.engine_wait_s, tally=given.tally
    )

    async def preface(sock: socket.socket, peer: str) -> str:
        if not forwarded.is_trusted(peer, proxies=settings.proxies):
            return peer
        return await proxy_protocol.read_caller(sock, peer=peer)

    serving = server.Server(
        passing.forward,
        limits=settings.limits,
        tls=given.tls,
        before_body=passing.before_body,
        refusal=passing.refusal,
        preface=preface if settings.proxies else None,
        handshake_failed=given.handshake_failed,
    )
    return edge_process.Part(serving=serving, close=engine.close)
