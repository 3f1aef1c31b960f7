"""The health question over real mutual TLS, and the one dial after an enrollment (Z-33)."""

import asyncio
import contextlib
import dataclasses
import datetime
import pathlib
import socket
from collections.abc import AsyncIterator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from platform_server.nodes import asking, reach
from platform_server.store import contract, opening
from platform_server.trust import port_certificate
from runtime_kit import clock as clock_kit
from runtime_kit import tls
from runtime_kit.http1 import messages, server
from tests.support import domain
from wire_protocol import health, ids, pins

pytestmark = pytest.mark.timeout(60)
NODE = ids.NodeId("web-1")


class ListeningAgent:
    """An Agent's port: its own key, the Platform's trust keys as anchors, a health answer."""

    def __init__(self, folder: pathlib.Path, *, anchors: str, platform_id: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = port_certificate.make_certificate(
            key, names=["192.0.2.1"], now=datetime.datetime.now(datetime.UTC)
        )
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.pin = pins.pin_of_certificate(certificate)
        file = folder / "agent.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + self.certificate_pem.encode()
        )
        self.context = tls.mutual_server_context(file, anchors_pem=anchors)
        self.uri = f"enlist:platform:{platform_id}"
        self.node_id = NODE
        self.offset = datetime.timedelta()
        self.port = 0
        self.callers = 0

    async def answer(self, request: messages.Request) -> messages.Response:
        assert request.tls is not None
        tls.check_client_certificate(request.tls, uri=self.uri)
        self.callers += 1
        body = health.AgentHealth(
            node_id=self.node_id,
            agent_id=ids.agent_id_of(self.node_id),
            version="0.1.0",
            now=datetime.datetime.now(datetime.UTC) + self.offset,
            trust_keys=(),
        ).to_bytes()
        return messages.Response(status=200, body=body)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port = sock.getsockname()[1]
            running = server.Server(self.answer, tls=lambda: self.context)
            running.start(sock)
            yield f"https://127.0.0.1:{self.port}"
            await running.drain(timeout_s=1.0)

    def target(self, url: str) -> asking.Target:
        return asking.Target(
            node_id=NODE, url=url, pin=self.pin, certificate_pem=self.certificate_pem
        )


@pytest.fixture
async def one(tmp_path: pathlib.Path) -> AsyncIterator[domain.Domain]:
    store: contract.Store = await opening.open_store(f"sqlite:///{tmp_path}/enlist.db")
    clock = clock_kit.ManualClock(datetime.datetime.now(datetime.UTC))
    yield await domain.build(store, folder=tmp_path, clock=clock)
    await store.close()


@pytest.fixture
def asker(one: domain.Domain) -> asking.Asker:
    return asking.Asker(identity=one.trust._identity, clock=clock_kit.SystemClock())


@pytest.fixture
def agent(one: domain.Domain, tmp_path: pathlib.Path) -> ListeningAgent:
    statement = one.trust.published.statement
    return ListeningAgent(
        tmp_path,
        anchors="".join(key.certificate_pem for key in statement.trust_keys),
        platform_id=statement.platform_id,
    )


async def _reason(asker: asking.Asker, target: asking.Target, *, timeout_s: float = 3) -> str:
    with pytest.raises(asking.NoAnswer) as silent:
        await asker.ask(target, timeout_s=timeout_s)
    return silent.value.reason


async def test_an_agent_is_heard_by_its_certificate_and_its_clock_is_measured(
    asker: asking.Asker, agent: ListeningAgent
) -> None:
    agent.offset = datetime.timedelta(hours=2)
    async with agent.listening() as url:
        heard = await asker.ask(agent.target(url), timeout_s=5)
    assert heard.is_from(NODE)
    assert abs(heard.clock_offset_ms - 7_200_000) < 2000


async def test_an_agent_known_by_its_pin_alone_is_heard_too(
    asker: asking.Asker, agent: ListeningAgent
) -> None:
    async with agent.listening() as url:
        target = asking.Target(node_id=NODE, url=url, pin=agent.pin)
        heard = await asker.ask(target, timeout_s=5, trusted=True)
    assert heard.is_from(NODE)


async def test_a_certificate_that_was_handed_in_is_believed_as_the_present_one(
    asker: asking.Asker, agent: ListeningAgent
) -> None:
    async with agent.listening() as url:
        renewed = dataclasses.replace(
            agent.target(url),
            certificate_pem=domain.new_certificate(),
            next_certificate_pem=agent.certificate_pem,
        )
        heard = await asker.ask(renewed, timeout_s=5)
        assert heard.is_from(NODE)
        neither = dataclasses.replace(renewed, next_certificate_pem=domain.new_certificate())
        assert await _reason(asker, neither) == "another-key"


async def test_another_key_on_the_address_is_not_asked(
    asker: asking.Asker, agent: ListeningAgent, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "other").mkdir()
    other = ListeningAgent(tmp_path / "other", anchors=agent.certificate_pem, platform_id="x")
    async with agent.listening() as url:
        assert await _reason(asker, other.target(url)) == "another-key"
        by_pin = asking.Target(node_id=NODE, url=url, pin=other.pin)
        assert await _reason(asker, by_pin) == "another-key"
    assert agent.callers == 0


async def test_an_agent_that_does_not_know_the_platform_answers_nothing(
    asker: asking.Asker, agent: ListeningAgent, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = ListeningAgent(
        tmp_path / "foreign", anchors=agent.certificate_pem, platform_id="other"
    )
    async with foreign.listening() as url:
        # asyncio may close before its alert is out, and then nobody says why
        assert await _reason(asker, foreign.target(url)) in ("refuses-platform", "no-answer")
    assert foreign.callers == 0


async def test_a_closed_port_and_a_silent_one_are_told_apart(
    asker: asking.Asker, agent: ListeningAgent
) -> None:
    async with agent.listening() as url:
        pass
    assert await _reason(asker, agent.target(url)) == "no-connection"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        assert await _reason(asker, agent.target(url), timeout_s=0.3) == "timeout"


async def test_a_name_is_judged_by_what_it_resolves_to_at_every_call(
    asker: asking.Asker, agent: ListeningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent.listening() as url:
        port = url.rpartition(":")[2]
        loop = asyncio.get_running_loop()

        async def rebound(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

        monkeypatch.setattr(loop, "getaddrinfo", rebound)
        target = agent.target(f"https://innocent.example.com:{port}")
        assert await _reason(asker, target) == "address-forbidden"
        heard = await asker.ask(agent.target(f"https://localhost:{port}"), timeout_s=5)
        assert heard.is_from(NODE)
    assert agent.callers == 1


async def test_the_platform_says_whether_it_reached_the_agent_and_at_which_address(
    one: domain.Domain, asker: asking.Asker, agent: ListeningAgent, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "again").mkdir()
    reaching = await domain.build(
        one.store,
        folder=tmp_path / "again",
        keyring=one.keyring,
        clock=one.clock,
        reacher=reach.Reacher(asker),
    )
    token = await reaching.new_token("web-1")
    certificate = agent.certificate_pem
    async with agent.listening() as url:
        said = await reaching.knock(
            "web-1", token, certificate=certificate, url=url, address="127.0.0.1"
        )
        assert (said.status, said.body["reachable"]) == (201, True)
    again = await reaching.knock(
        "web-1", token, certificate=certificate, url=url, address="127.0.0.1"
    )
    assert (again.status, again.body["reachable"]) == (200, False)
    assert again.body["reachable_reason"].startswith(f"not reachable from the Platform at {url}")
    row = await reaching.count("nodes", "state = 'enrolled'")
    assert row == 1, "a dial at the join makes nobody ready"
