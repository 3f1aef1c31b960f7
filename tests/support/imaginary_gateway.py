"""A small gateway that behaves: real mutual TLS on loopback, the real rules, and faults on order.

It belongs to an imaginary Platform, whose enrollments are its nodes, and decides by the product's
own table (`platform_server.gateway.generation`). What it keeps is in memory. The real gateway is
tested elsewhere; this one loses answers and lies where it is told to.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import pathlib
import socket
from collections.abc import AsyncIterator, Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from platform_server.gateway import generation as rules
from runtime_kit import clock as clock_kit
from runtime_kit.mux import contexts, tls_server, tls_wire
from runtime_kit.mux import link as links
from tests.support import certificates, imaginary_platform, waits
from wire_protocol import health, heartbeats, ids, pins, product, renewal, session


@dataclasses.dataclass(slots=True, kw_only=True)
class Node:
    """What the gateway knows of one node."""

    node_id: ids.NodeId
    present: x509.Certificate
    coming: x509.Certificate | None = None
    former: list[x509.Certificate] = dataclasses.field(default_factory=list)
    generation: int = 1
    adopted_epoch: int = 1
    removed: bool = False
    link: links.Link | None = None
    instance: str | None = None
    sessions: int = 0
    beats: list[heartbeats.Heartbeat] = dataclasses.field(default_factory=list)

    def certificates(self) -> list[x509.Certificate]:
        """What it may prove itself by."""
        return [self.present, *([self.coming] if self.coming else []), *self.former]

    def proof_of(self, der: bytes) -> rules.Proof:
        """Which of them that is."""
        if der == _der(self.present):
            return rules.Proof.PRESENT
        if self.coming is not None and der == _der(self.coming):
            return rules.Proof.NEXT
        return rules.Proof.FORMER


@dataclasses.dataclass(slots=True, kw_only=True)
class Peer:
    """One connection."""

    node: Node
    der: bytes
    purpose: session.Purpose | None = None
    instance: str = ""
    given: int = 0


class ImaginaryGateway:
    """The stand-in; a test reads `asked` and writes `loses` and `refuses`."""

    def __init__(self, platform: imaginary_platform.ImaginaryPlatform) -> None:
        self.platform = platform
        self.identity = certificates.issue()
        self.port = 0
        self.nodes: dict[str, Node] = {}
        self.heartbeat_seconds = 30
        self.certificate_days = 90
        self.epoch = 1
        self.version = product.VERSION
        self.knows_nobody = False
        self.asked: list[str] = []
        self.loses: collections.Counter[str] = collections.Counter()  # answers still to be lost
        self.refuses: dict[str, links.Refusal] = {}
        self.silent = False
        self.clock: clock_kit.Clock = clock_kit.SystemClock()
        self.refused_handshakes = 0
        self._acceptor: tls_server.Acceptor | None = None
        self._listening: socket.socket | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def pin(self) -> pins.Pin:
        """Its key's pin."""
        return pins.Pin(self.identity.pin)

    def node(self, node_id: str) -> Node:
        """The node, once it has enrolled."""
        for enrolled in self.platform.enrollments.values():
            if enrolled.certificate is not None and enrolled.node_id not in self.nodes:
                self.nodes[enrolled.node_id] = Node(
                    node_id=enrolled.node_id, present=enrolled.certificate
                )
        return self.nodes[node_id]

    def announce(self) -> None:
        """The Platform's statements name this gateway from now on."""
        self.platform.gateway_urls = (self.url,)
        self.platform.gateway_pins = (self.pin,)

    def open_session(self, node_id: str) -> links.Link | None:
        """The node's session, if one is open."""
        link = self.node(node_id).link if self.knows(node_id) else None
        return link if link is not None and link.ended is None else None

    def knows(self, node_id: str) -> bool:
        """Whether the node has enrolled."""
        with contextlib.suppress(KeyError):
            return bool(self.node(node_id))
        return False

    async def session_of(self, node_id: str, *, after: int = 0) -> links.Link:
        """The node's open session, once it has had more than so many."""
        await waits.until(
            lambda: self.open_session(node_id) is not None and self.node(node_id).sessions > after
        )
        found = self.open_session(node_id)
        assert found is not None
        return found

    async def ask_health(self, node_id: str) -> health.AgentHealth:
        """The health question over the session."""
        link = await self.session_of(node_id)
        return health.parse(await link.ask(session.Ask.HEALTH, b"", timeout_s=5))

    def _anchors_for(self, name: str) -> Sequence[bytes]:
        if self.knows_nobody:
            return ()
        prefix = name.partition(".")[0]
        for enrolled in self.platform.enrollments.values():
            if enrolled.certificate is not None:
                self.node(enrolled.node_id)
        return [
            _der(one)
            for node in self.nodes.values()
            for one in node.certificates()
            if pins.pin_of_certificate(one).removeprefix("sha256:").startswith(prefix)
        ]

    def _opened(self, link: links.Link, proof: tls_wire.Proof) -> None:
        if not self.take(link, der=proof.leaf_der):
            link.close(reason="unknown")

    def take(self, link: links.Link, *, der: bytes) -> bool:
        """A link on which that certificate was proved; whether it is a node's."""
        for node in self.nodes.values() if not self.knows_nobody else ():
            if der in map(_der, node.certificates()):
                link.owner = Peer(node=node, der=der)
                link.answer = self._answer
                return True
        return False

    async def _answer(self, link: links.Link, method: str, body: bytes) -> bytes:
        peer = link.owner
        assert isinstance(peer, Peer)
        self.asked.append(method)
        if self.silent:
            await asyncio.Event().wait()
        if method in self.refuses:
            raise self.refuses[method]
        said = await self._by_method(link, peer, method=method, body=body)
        if self.loses[method] > 0:
            self.loses[method] -= 1
            link.lost("cut")
            await asyncio.Event().wait()
        return said

    async def _by_method(  # noqa: PLR0911 - one a question
        self, link: links.Link, peer: Peer, *, method: str, body: bytes
    ) -> bytes:
        match method:
            case session.Ask.HELLO:
                return (await self._hello(peer, session.parse_hello(body))).to_bytes()
            case session.Ask.CONFIRM:
                return self._confirm(link, peer, session.parse_confirm(body))
            case session.Ask.HEARTBEAT:
                peer.node.beats.append(heartbeats.parse(body))
                number = (self.epoch, self.platform.serial)
                return session.Pulse(statement=number, now=self.clock.now()).to_bytes()
            case session.Ask.TRUST:
                return json.dumps(self.platform.trust_document()).encode()
            case session.Ask.RENEW:
                return self._renew(peer, renewal.parse_request(body))
            case session.Ask.LEAVE:
                peer.node.removed = True
                return b""
            case session.Ask.RESULT:
                return b""
        raise links.Refusal(session.Refusal.UNKNOWN, "That is no question.")

    async def _hello(self, peer: Peer, hello: session.Hello) -> session.Welcome:
        node = peer.node
        running = node.instance if self.open_session(node.node_id) is not None else None
        decision = rules.decide(
            hello,
            known=rules.Known(
                removed=node.removed,
                generation=node.generation,
                adopted_epoch=node.adopted_epoch,
                running_instance=running,
            ),
            proof=node.proof_of(peer.der),
            epoch=self.epoch,
            platform_version=self.version,
        )
        if decision.verdict is rules.Verdict.ASK_RUNNING:
            with contextlib.suppress(links.Silent, links.Closed):
                assert node.link is not None
                await node.link.ping(timeout_s=5)
                raise links.Refusal(
                    session.Refusal.GENERATION_CONFLICT,
                    "Node runs at 192.0.2.1 since 2026-01-01T00:00:00Z; you come from 192.0.2.2",
                )
        elif decision.verdict is rules.Verdict.REFUSE:
            assert decision.refusal is not None
            raise links.Refusal(decision.refusal, "Not you")
        if decision.adopts:
            node.adopted_epoch = self.epoch
        peer.purpose, peer.instance, peer.given = hello.purpose, hello.instance, decision.generation
        return session.Welcome(
            session_id=f"ses_{len(self.asked)}",
            generation=decision.generation,
            epoch=self.epoch,
            statement=(self.epoch, self.platform.serial),
            heartbeat_seconds=self.heartbeat_seconds,
            certificate_days=self.certificate_days,
            now=self.clock.now(),
        )

    def _confirm(self, link: links.Link, peer: Peer, said: session.Confirm) -> bytes:
        assert said.generation == peer.given
        node = peer.node
        node.generation = said.generation
        if node.coming is not None and peer.der == _der(node.coming):
            node.former, node.present, node.coming = [node.present], node.coming, None
        before, node.link = node.link, link
        node.instance = peer.instance
        node.sessions += 1
        if before is not None:
            before.close(reason="replaced")
        return b""

    def _renew(self, peer: Peer, asked: renewal.Request) -> bytes:
        node = peer.node
        certificate = x509.load_pem_x509_certificate(asked.certificate_pem.encode())
        certificate.verify_directly_issued_by(certificate)
        used = x509.load_der_x509_certificate(peer.der)
        if certificate.public_key() != used.public_key():
            assert asked.signature is not None
            assert renewal.is_signed_by(
                used.public_key(), _der(certificate), signature=asked.signature
            )
        if certificate != node.present:
            node.coming = certificate
        return renewal.Granted(
            certificate_sha256=pins.fingerprint_of_certificate(certificate),
            pin=pins.pin_of_certificate(certificate),
        ).to_bytes()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["ImaginaryGateway"]:
        """Listens on a free port of loopback inside the block."""
        self.start()
        try:
            yield self
        finally:
            await self.stop()

    @contextlib.asynccontextmanager
    async def moved_to(self, host: str) -> AsyncIterator[None]:
        """The same gateway at another address, the same port, inside the block."""
        await self.stop()
        self.start(host=host)
        try:
            yield
        finally:
            await self.stop()

    @contextlib.asynccontextmanager
    async def with_another_key(self) -> AsyncIterator[None]:
        """The same gateway with another key inside the block."""
        await self.stop()
        self.identity = certificates.issue()
        self.start()
        try:
            yield
        finally:
            await self.stop()

    def start(self, *, host: str = "127.0.0.1") -> None:
        """Listens, on the port it had before if it had one."""
        pem = self.identity.write(self.platform.folder / f"gateway-{id(self.identity)}.pem")
        context = contexts.without_anchors(pem)
        self._listening = socket.create_server((host, self.port))
        self.port = self._listening.getsockname()[1]

        def failed(_error: Exception, _address: str) -> None:
            self.refused_handshakes += 1

        self._acceptor = tls_server.accept_tls(
            self._listening,
            default=lambda: context,
            anchors_for=self._anchors_for,
            opened=self._opened,
            handshake_failed=failed,
        )

    async def stop(self) -> None:
        """Ends at once; may be repeated."""
        if self._acceptor is None or self._listening is None:
            return
        self._acceptor.stop()
        for link in list(self._acceptor.links):
            link.close(reason="the gateway ends")
        await self._acceptor.finish(timeout_s=1)
        self._listening.close()
        self._acceptor = self._listening = None


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path,
) -> AsyncIterator[ImaginaryGateway]:
    """An imaginary Platform with its gateway, named in its statements."""
    async with (
        imaginary_platform.running(folder) as platform,
        ImaginaryGateway(platform).serving() as gateway,
    ):
        gateway.announce()
        yield gateway
