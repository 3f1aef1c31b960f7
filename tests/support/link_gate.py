"""A server of links on a real port, and clients that come to it with any certificate."""

import asyncio
import contextlib
import dataclasses
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from runtime_kit import tls
from runtime_kit.mux import connection, contexts, link, tls_server, tls_wire, transports
from tests.support import certificates, waits

NAME = "0123456789abcdef0123456789abcdef.node.enlist.internal"


async def echo(_link: link.Link, method: str, body: bytes) -> bytes:
    return method.encode() + b" " + body


@dataclasses.dataclass(slots=True)
class Gate:
    """A server of links and what it has seen."""

    acceptor: tls_server.Acceptor
    server: certificates.Issued
    port: int
    folder: Path
    known: dict[str, Sequence[bytes]]
    opened: list[tuple[link.Link, tls_wire.Proof]]
    failed: list[Exception]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def pem(self, issued: certificates.Issued) -> Path:
        path = self.folder / f"{issued.pin[-12:]}-{issued.fingerprint[-12:]}.pem"
        return path if path.exists() else issued.write(path)

    def context(self, issued: certificates.Issued | None) -> ssl.SSLContext:
        """A client's, which shows this certificate."""
        context = tls.trusting_context(leaf_der=self.server.der)
        if issued is not None:
            context.load_cert_chain(self.pem(issued))
        return context

    async def dial(
        self,
        issued: certificates.Issued | None,
        *,
        name: str = NAME,
        answer: link.Answer | None = None,
        local: str | None = None,
    ) -> link.Link:
        """A client's link, from that local address."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            ssl=self.context(issued),
            server_hostname=name,
            local_addr=None if local is None else (local, 0),
        )
        return transports.over_streams(reader, writer, peer="the gate", answer=answer)


@contextlib.asynccontextmanager
async def gate(
    folder: Path,
    *,
    limits: tls_server.Limits | None = None,
    link_limits: connection.Limits | None = None,
    change: Callable[[ssl.SSLContext], None] = lambda _context: None,
) -> AsyncIterator[Gate]:
    server = certificates.issue()
    context = contexts.without_anchors(server.write(folder / "server.pem"))
    change(context)
    known: dict[str, Sequence[bytes]] = {}
    opened: list[tuple[link.Link, tls_wire.Proof]] = []
    failed: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0), backlog=512) as sock:
        acceptor = tls_server.accept_tls(
            sock,
            default=lambda: context,
            anchors_for=lambda name: known.get(name, ()),
            opened=lambda made, proof: opened.append((made, proof)),
            answer=echo,
            limits=limits,
            link_limits=link_limits,
            handshake_failed=lambda error, _address: failed.append(error),
        )
        yield Gate(
            acceptor=acceptor,
            server=server,
            port=sock.getsockname()[1],
            folder=folder,
            known=known,
            opened=opened,
            failed=failed,
        )
        acceptor.stop()
        for one in acceptor.links:
            one.close(reason="over")
        await acceptor.finish(timeout_s=2.0)


async def closed(*links: link.Link) -> None:
    """Closes clients' links; their wires close in tasks of their own."""
    for one in links:
        one.close(reason="done")
    for one in links:
        await one.wait_closed()
    await waits.pace()
