"""The gateway on a real port: real TLS, real strangers, hostile nodes with real certificates."""

import asyncio
import contextlib
import datetime
import pathlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from platform_server.gateway import rules
from platform_server.store import contract, opening
from platform_server.trust import port_certificate
from runtime_kit.mux import frames
from runtime_kit.mux import link as links
from tests.support import certificates, domain, gateways, scripted_agent, waits
from wire_protocol import ids, pins, session

pytestmark = pytest.mark.timeout(120)
WEB = ids.NodeId("web-1")
LOOPBACK = "127.0.0.1"


@pytest.fixture
async def store(tmp_path: pathlib.Path) -> AsyncIterator[contract.Store]:
    opened = await opening.open_store(f"sqlite:///{tmp_path}/enlist.db")
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind((LOOPBACK, 0))
        made.listen(1024)
        yield made


@pytest.fixture
async def engine(
    store: contract.Store, tmp_path: pathlib.Path, sock: socket.socket
) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(
        store, folder=tmp_path, handshakes=8, handshakes_per_address=8
    ) as built:
        built.gate.serve_with(port_identity())
        built.gate.start(sock)
        yield built


def port_identity() -> port_certificate.PortIdentity:
    made = certificates.issue()
    return port_certificate.PortIdentity(
        key_pem=made.key_pem.encode(),
        certificate_pem=made.pem,
        pin=pins.Pin(made.pin),
        fingerprint=pins.Pin(made.fingerprint),
        next_pin=None,
        switch_at=None,
        not_after=made.certificate.not_valid_after_utc,
    )


def place_of(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()
    return host, port


class Dialler:
    """Opens real connections and closes them in the end."""

    def __init__(self, engine: gateways.Engine, sock: socket.socket, folder: pathlib.Path) -> None:
        self.engine = engine
        self.place = place_of(sock)
        self.folder = folder
        self.agents: list[scripted_agent.Agent] = []

    async def dial(
        self, identity: scripted_agent.Identity, *, server_name: str | None = None, **more: str
    ) -> scripted_agent.Agent:
        agent = self.engine.agent(identity, **more)
        await agent.dial(self.place, context=identity.context(self.folder), server_name=server_name)
        self.agents.append(agent)
        return agent

    async def open(self, identity: scripted_agent.Identity, **more: str) -> scripted_agent.Agent:
        agent = await self.dial(identity, **more)
        await agent.greet()
        await agent.confirm()
        await self.engine.settle()
        return agent

    async def close(self) -> None:
        for agent in self.agents:
            agent.link.close(reason="test-ends")
        for agent in self.agents:
            await gateways.ended(agent.link)
        await asyncio.sleep(0)


@pytest.fixture
async def dialler(
    engine: gateways.Engine, sock: socket.socket, tmp_path: pathlib.Path
) -> AsyncIterator[Dialler]:
    made = Dialler(engine, sock, tmp_path)
    yield made
    await made.close()


async def test_a_machine_that_has_just_joined_is_welcome_at_its_first_try(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    agent = await dialler.open(await engine.join("web-1"))
    assert agent.asked == ["health"]
    assert await engine.state("web-1") == ("ready", None)


async def test_a_certificate_that_ended_years_ago_still_opens_and_renews(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    key = domain.new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "machine")])
    ended = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2020, 4, 1, tzinfo=datetime.UTC))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    token = await engine.domain.new_token("web-1")
    assert (await engine.domain.knock("web-1", token, certificate=ended)).status == 201
    await engine.turn()
    identity = scripted_agent.Identity(node_id=WEB, key=key, certificate_pem=ended)
    agent = await dialler.open(identity, instance="one-process")
    fresh = await agent.renew()
    fresh.generation = identity.generation
    await dialler.open(fresh, instance="one-process")
    assert (await engine.node("web-1")).certificate_sha256 == fresh.sha256


@pytest.mark.parametrize("case", ["a stranger", "no name", "another node's name"])
async def test_whoever_is_no_node_does_not_get_past_the_handshake(
    engine: gateways.Engine, dialler: Dialler, case: str
) -> None:
    node = await engine.join("web-1")
    other = await engine.join("web-2")
    stranger = scripted_agent.Identity(
        node_id=WEB, key=(key := domain.new_key()), certificate_pem=domain.certificate_of(key)
    )
    identity, name = {
        "a stranger": (stranger, None),
        "no name": (node, "gateway.example"),
        "another node's name": (node, engine.agent(other).server_name),
    }[case]
    agent = await dialler.dial(identity, server_name=name)
    with pytest.raises(links.ClientRefused):
        await agent.greet()
    assert len(engine.gate.sessions) == 0
    assert engine.gate.refused_handshakes == 1


async def test_a_node_whose_certificate_may_sign_others_lets_nobody_in_with_it(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    authority = certificates.issue(authority=True, names=())
    token = await engine.domain.new_token("web-1")
    assert (await engine.domain.knock("web-1", token, certificate=authority.pem)).status == 201
    await engine.turn()
    leaf = certificates.issue(issuer=authority, names=())
    identity = scripted_agent.Identity(node_id=WEB, key=leaf.key, certificate_pem=leaf.pem)
    named = f"{authority.pin.removeprefix('sha256:')[:32]}.node.enlist.internal"
    agent = await dialler.dial(identity, server_name=named)
    with pytest.raises((links.Closed, links.Refused)):
        await agent.greet()
    assert len(engine.gate.connections.unopened) == 0
    assert engine.gate.refused_handshakes == 1


async def test_a_session_is_never_resumed_and_no_ticket_is_given(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    identity = await engine.join("web-1")
    context = identity.context(dialler.folder)
    agent = engine.agent(identity)

    def handshake(known: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        with (
            socket.create_connection(dialler.place, 10) as raw,
            context.wrap_socket(raw, server_hostname=agent.server_name, session=known) as secured,
        ):
            secured.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                secured.recv(1)  # a ticket would come now
            return bool(secured.session_reused), secured.session

    resumed, known = await asyncio.to_thread(handshake, None)
    assert not resumed
    assert known is None or not known.has_ticket
    resumed, _ = await asyncio.to_thread(handshake, known)
    assert not resumed


async def test_a_node_removed_here_loses_its_session_at_once(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    identity = await engine.join("web-1")
    agent = await dialler.open(identity)
    following = asyncio.create_task(engine.gate.follow())
    try:
        leaver = engine.gate.sessions.find_peer(WEB)
        assert leaver is not None
        await engine.gate._questions._leave(leaver)  # any removal with its event
        engine.gate.changed(WEB)
        end = await gateways.ended(agent.link, seconds=5)
    finally:
        following.cancel()
    assert end.reason == "node-removed"
    again = await dialler.dial(identity)
    assert (await gateways.refusal(again.greet())).code == "node-removed"


async def test_hundreds_of_silent_strangers_delay_a_node_by_no_more_than_a_handshakes_time(
    engine: gateways.Engine, dialler: Dialler, sock: socket.socket
) -> None:
    identity = await engine.join("web-1")
    held = []
    try:
        for _ in range(300):
            stranger = socket.socket()
            stranger.setblocking(False)  # noqa: FBT003
            stranger.connect_ex(place_of(sock))
            held.append(stranger)
        await asyncio.sleep(0)
        await waits.until(lambda: engine.gate._port._acceptor is not None)
        async with asyncio.timeout(60):
            while True:
                try:
                    agent = await dialler.dial(identity)
                    await agent.greet()
                    break
                except (OSError, links.Closed):
                    await waits.pace()
        await agent.confirm()
    finally:
        for stranger in held:
            stranger.close()
    assert engine.gate.sessions.find(WEB) is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", (0xFFFFFF << 8) | frames.Kind.DATA, 1),
        struct.pack(">II", (4 << 8) | 99, 1) + b"1234",
    ],
    ids=["zeros", "http", "a huge frame", "an unknown kind"],
)
async def test_garbage_from_a_node_ends_its_connection_and_no_other(
    engine: gateways.Engine, dialler: Dialler, raw: bytes
) -> None:
    good = await dialler.open(await engine.join("web-1"))
    bad = await engine.join("web-2")
    reader, writer = await asyncio.open_connection(
        *dialler.place,
        ssl=bad.context(dialler.folder),
        server_hostname=engine.agent(bad).server_name,
    )
    writer.write(raw)
    async with asyncio.timeout(10):
        await reader.read()  # to its end
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await good.beat()
    assert good.link.ended is None


async def test_a_connection_says_hello_once(engine: gateways.Engine, dialler: Dialler) -> None:
    identity = await engine.join("web-1")
    agent = await dialler.dial(identity)
    said = agent.hello().to_bytes()
    answers = await asyncio.gather(
        *(agent.link.ask(session.Ask.HELLO, said, timeout_s=10) for _ in range(40)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, bytes) for one in answers) <= 1
    await gateways.ended(agent.link)
    assert len(engine.gate.sessions) == 0
    assert await engine.domain.count("sessions") == 0


async def test_a_huge_question_is_refused_and_not_kept(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    agent = await dialler.dial(await engine.join("web-1"))
    refused = await gateways.refusal(agent.ask(session.Ask.HELLO, b"x" * 1_000_000))
    assert refused.code == "too-long"
    agent = await dialler.open(await engine.join("web-2"))
    refused = await gateways.refusal(agent.ask(session.Ask.HEARTBEAT, b"x" * 1_000_000))
    assert refused.code == "too-long"
    await agent.beat()


async def test_out_of_turn_questions_are_refused(engine: gateways.Engine, dialler: Dialler) -> None:
    agent = await dialler.dial(await engine.join("web-1"))
    assert (await gateways.refusal(agent.ask(session.Ask.HEARTBEAT))).code == "invalid"
    await gateways.ended(agent.link)
    agent = await dialler.open(await engine.join("web-2"))
    for asked in (session.Ask.HELLO, session.Ask.CONFIRM, session.Ask.HEALTH, session.Ask.ORDER):
        assert (await gateways.refusal(agent.ask(asked))).code == "invalid"
    assert (await gateways.refusal(agent.ask("shell"))).code == "unknown"
    assert agent.link.ended is None


async def test_one_key_cannot_hold_more_than_a_few_connections_open(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    identity = await engine.join("web-1")
    for _ in range(rules.MOST_UNOPENED + 12):
        await dialler.dial(identity)
    await waits.until(
        lambda: sum(one.link.ended is not None for one in dialler.agents) >= 12, seconds=20
    )
    assert len(engine.gate.connections.unopened) == rules.MOST_UNOPENED
    other = await dialler.open(await engine.join("web-2"))
    assert other.link.ended is None


async def test_who_says_nothing_after_the_handshake_is_closed(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    silent = await dialler.dial(await engine.join("web-1"))
    welcomed = await dialler.dial(await engine.join("web-2"))
    await welcomed.greet()
    errand = await dialler.dial(await engine.join("web-3"))
    await errand.greet(purpose=session.Purpose.ERRAND)
    await waits.until(lambda: len(engine.gate.connections.unopened) == 3)
    engine.clock.advance(rules.HELLO_SECONDS + 1)
    await engine.turn()
    assert (await gateways.ended(silent.link)).reason == "too-slow"
    engine.clock.advance(rules.CONFIRM_SECONDS)
    await engine.turn()
    assert (await gateways.ended(welcomed.link)).reason == "too-slow"
    assert errand.link.ended is None
    engine.clock.advance(rules.ERRAND_SECONDS)
    await engine.turn()
    assert (await gateways.ended(errand.link)).reason == "too-slow"


async def test_the_ports_key_changes_for_the_next_handshake_and_sessions_stay(
    engine: gateways.Engine, dialler: Dialler
) -> None:
    agent = await dialler.open(await engine.join("web-1"))
    fresh = port_identity()
    engine.gate.serve_with(fresh)
    other = await engine.join("web-2")
    reader, writer = await asyncio.open_connection(
        *dialler.place,
        ssl=other.context(dialler.folder),
        server_hostname=engine.agent(other).server_name,
    )
    leaf = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert leaf == ssl.PEM_cert_to_DER_cert(fresh.certificate_pem)
    writer.close()
    await reader.read()
    await agent.beat()


async def test_a_herd_that_comes_back_at_once_is_let_in_without_one_refusal(
    engine: gateways.Engine, dialler: Dialler, sock: socket.socket, tmp_path: pathlib.Path
) -> None:
    number = 150
    herd = [await engine.join(f"web-{index}") for index in range(number)]
    for identity in herd:
        await dialler.open(identity, instance=identity.node_id)
    await engine.gate.drain(seconds=5)
    for agent in dialler.agents:
        assert (await gateways.ended(agent.link)).reason == "engine-replaced"
    dialler.agents.clear()
    async with gateways.engine(
        engine.store, folder=tmp_path, engine_id="engine-b", beside=engine
    ) as successor:
        successor.gate.serve_with(port_identity())
        comers = Dialler(successor, sock, tmp_path)
        returning = [
            asyncio.create_task(comers.open(identity, instance=identity.node_id))
            for identity in herd
        ]
        await asyncio.sleep(0)
        successor.gate.start(sock)  # they wait in the port's queue while the engine is replaced
        async with asyncio.timeout(60):
            await asyncio.gather(*returning)
        await successor.settle()
        assert len(successor.gate.sessions) == number
        assert successor.gate.refused_handshakes == 0
        ready = "SELECT COUNT(*) AS value FROM nodes WHERE state = 'ready'"
        assert await successor.value(ready) == number
        await comers.close()
