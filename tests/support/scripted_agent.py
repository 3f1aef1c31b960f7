"""The machine's end of a session, word by word: what a test wants an Agent, or a copy, to say.

For: the gateway's tests over links in memory. Not for: what the real Agent does (`worker_agent`).
"""

import asyncio
import dataclasses
import hashlib
import pathlib
import secrets
import ssl
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from platform_server.gateway import gateway as gateways
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from runtime_kit.mux import transports
from tests.support import domain
from wire_protocol import health, heartbeats, ids, pins, product, renewal, session

KEY_IDS = (ids.KeyId("00112233445566aa"),)


@dataclasses.dataclass(kw_only=True)
class Identity:
    """What a machine keeps on its disk; `copy` is what a clone of the disk has."""

    node_id: ids.NodeId
    key: ec.EllipticCurvePrivateKey
    certificate_pem: str
    generation: int = 1

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.certificate_pem)

    @property
    def pin(self) -> pins.Pin:
        return pins.pin_of_certificate(x509.load_der_x509_certificate(self.der))

    @property
    def sha256(self) -> str:
        return f"sha256:{hashlib.sha256(self.der).hexdigest()}"

    def context(self, folder: pathlib.Path) -> ssl.SSLContext:
        """A client that shows this certificate; whom it talks to is other tests' matter."""
        file = folder / f"{self.pin[7:23]}.pem"
        private = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file.write_bytes(private + self.certificate_pem.encode())
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        made.load_cert_chain(file)
        return made

    def copy(self) -> "Identity":
        return dataclasses.replace(self)

    def renewed(
        self, *, key: ec.EllipticCurvePrivateKey | None = None
    ) -> tuple["Identity", renewal.Request]:
        """The next certificate, of the same key or of another, and the request for it."""
        fresh = dataclasses.replace(
            self,
            key=key or self.key,
            certificate_pem=domain.certificate_of(key or self.key, name=secrets.token_hex(4)),
        )
        signature = None if key is None else renewal.sign(self.key, fresh.der)
        return fresh, renewal.Request(certificate_pem=fresh.certificate_pem, signature=signature)


class Agent:
    """One process on a machine, with its own end of a link. It stores what it is given."""

    def __init__(
        self,
        gate: gateways.Gateway,
        identity: Identity,
        *,
        clock: clock_kit.Clock,
        address: str = "192.0.2.10",
        instance: str | None = None,
        trust_keys: Sequence[ids.KeyId] = KEY_IDS,
    ) -> None:
        self.gate = gate
        self.identity = identity
        self.clock = clock
        self.address = address
        self.instance = instance or secrets.token_hex(8)
        self.trust_keys = tuple(trust_keys)
        self.version = product.VERSION
        self.answers_as = identity.node_id
        self.asked: list[str] = []
        self.pair: transports.InMemoryPair | None = None
        self._dialled: links.Link | None = None
        self.welcome: session.Welcome | None = None

    @property
    def link(self) -> links.Link:
        if self._dialled is not None:
            return self._dialled
        assert self.pair is not None
        return self.pair.left

    def connect(self) -> "Agent":
        """A connection that has proved the certificate, as the port hands it on.

        Raises `ssl.SSLError` where the port would end the handshake.
        """
        proved = self.gate._anchors.of_leaf(self.identity.der, pin=self.identity.pin)
        if not proved:
            raise ssl.SSLError("unknown ca")
        self.pair = transports.in_memory_pair(
            answer_left=self._answer, peer_left=self.address, clock=self.clock
        )
        self.gate.take(self.pair.right, proved)
        return self

    async def dial(
        self, place: tuple[str, int], *, context: ssl.SSLContext, server_name: str | None = None
    ) -> "Agent":
        """A real connection to the gateway's port, with the certificate in the context."""
        reader, writer = await asyncio.open_connection(
            *place, ssl=context, server_hostname=server_name or self.server_name
        )
        self._dialled = transports.over_streams(
            reader, writer, peer="gateway", answer=self._answer, clock=self.clock
        )
        return self

    @property
    def server_name(self) -> str:
        """What a node asks the gateway for."""
        return f"{self.identity.pin.removeprefix('sha256:')[:32]}.node.enlist.internal"

    def hello(self, **changes: object) -> session.Hello:
        fields: dict[str, object] = {
            "node_id": self.identity.node_id,
            "generation": self.identity.generation,
            "epoch": 1,
            "version": self.version,
            "instance": self.instance,
            "purpose": session.Purpose.SESSION,
            "statement": (1, 1),
            **changes,
        }
        return session.Hello(**fields)  # type: ignore[arg-type]

    async def ask(self, asked: str, body: bytes = b"", *, timeout_s: float = 30.0) -> bytes:
        return await self.link.ask(asked, body, timeout_s=timeout_s)

    async def greet(self, **changes: object) -> session.Welcome:
        """Hello alone; what it grants is stored, as the protocol wants it."""
        said = await self.ask(session.Ask.HELLO, self.hello(**changes).to_bytes())
        self.welcome = session.parse_welcome(said)
        self.identity.generation = self.welcome.generation
        return self.welcome

    async def confirm(self) -> None:
        given = session.Confirm(generation=self.identity.generation)
        await self.ask(session.Ask.CONFIRM, given.to_bytes())

    async def open(self) -> "Agent":
        """Connect, hello, confirm."""
        self.connect()
        await self.greet()
        await self.confirm()
        return self

    async def errand(self) -> "Agent":
        """Connect and say hello for an errand."""
        self.connect()
        await self.greet(purpose=session.Purpose.ERRAND)
        return self

    async def beat(self, **changes: object) -> session.Pulse:
        return session.parse_pulse(
            await self.ask(session.Ask.HEARTBEAT, self.heartbeat(**changes).to_bytes())
        )

    def heartbeat(self, **changes: object) -> heartbeats.Heartbeat:
        fields: dict[str, object] = {
            "version": self.version,
            "now": self.clock.now(),
            "uptime_seconds": 5,
            "load_milli": (10, 20, 30),
            "capacity": heartbeats.Capacity(
                cpu_count=2, memory_bytes=4_000_000_000, disk_bytes=50_000_000_000
            ),
            "memory_available_bytes": 1_000_000_000,
            "disk_free_bytes": 10_000_000_000,
            "trust_keys": self.trust_keys,
            "statement": (1, 1),
            **changes,
        }
        return heartbeats.Heartbeat(**fields)  # type: ignore[arg-type]

    async def renew(self, *, key: ec.EllipticCurvePrivateKey | None = None) -> Identity:
        """Hands in the next certificate; gives the identity that has it, not used yet."""
        fresh, request = self.identity.renewed(key=key)
        await self.ask(session.Ask.RENEW, request.to_bytes())
        return fresh

    async def _answer(self, _link: links.Link, method: str, _body: bytes) -> bytes:
        self.asked.append(method)
        if method != session.Ask.HEALTH:
            raise links.Refusal(session.Refusal.UNKNOWN)
        return health.AgentHealth(
            node_id=self.answers_as,
            agent_id=ids.agent_id_of(self.answers_as),
            version=self.version,
            now=self.clock.now(),
            trust_keys=self.trust_keys,
        ).to_bytes()
