"""The real Agent in listen mode: to whom it answers what, and how it starts and ends."""

import asyncio
import datetime
import pathlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator

import psutil
import pytest
from cryptography.x509 import oid

from tests.support import imaginary_platform, joining, machine, worker_command
from wire_protocol import health, product
from worker_agent.settings import agent_file

MOST_RESIDENT_BYTES = 60_000_000


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
async def node(
    platform: imaginary_platform.ImaginaryPlatform, tmp_path: pathlib.Path
) -> joining.Joining:
    """A machine that has joined."""
    joined = joining.Joining(folder=tmp_path / "worker")
    await joined.join(platform.issue("web-1"), port=machine.free_port())
    return joined


@pytest.fixture
async def agent(node: joining.Joining) -> AsyncIterator[asyncio.subprocess.Process]:
    """Its running Agent, ready."""
    async with worker_command.started("agent", "--data-dir", str(node.folder)) as process:
        await worker_command.said(process, "Agent ready")
        yield process


def port_of(node: joining.Joining) -> int:
    content = agent_file.read(node.where.agent)
    assert content is not None
    return content.port


@pytest.mark.usefixtures("agent")
async def test_it_answers_the_platform_as_that_node(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    code, body = await platform.ask_agent(port_of(node), client=platform.client_certificate())
    said = health.parse(body)
    assert code == 200
    assert (said.node_id, said.agent_id) == ("web-1", "agent-web-1")
    assert said.version == product.VERSION
    assert said.trust_keys == (platform.keys[0].public.key_id,)
    assert abs(said.now - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(seconds=30)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/"), ("POST", "/health"), ("GET", "/health/"), ("GET", "/%68ealth")],
)
async def test_it_knows_nothing_but_the_health_question(
    platform: imaginary_platform.ImaginaryPlatform,
    node: joining.Joining,
    method: str,
    target: str,
) -> None:
    code, body = await platform.ask_agent(
        port_of(node), client=platform.client_certificate(), target=target, method=method
    )
    assert (code, body) == (404, b"")


@pytest.mark.usefixtures("agent")
async def test_no_certificate_no_answer(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await platform.ask_agent(port_of(node), client=None)


@pytest.mark.usefixtures("agent")
async def test_a_certificate_by_an_unknown_key_gets_no_answer(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    stranger = platform.client_certificate(key=platform.new_key())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await platform.ask_agent(port_of(node), client=stranger)


@pytest.mark.usefixtures("agent")
async def test_an_expired_certificate_gets_no_answer(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    expired = platform.client_certificate(not_after=platform.now - datetime.timedelta(hours=1))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await platform.ask_agent(port_of(node), client=expired)


@pytest.mark.usefixtures("agent")
async def test_a_certificate_for_servers_gets_no_answer(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    other = platform.client_certificate(usage=oid.ExtendedKeyUsageOID.SERVER_AUTH)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await platform.ask_agent(port_of(node), client=other)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("uri", ["enlist:platform:other", "enlist:node:web-1", "https://x"])
async def test_a_certificate_by_the_right_key_and_of_another_name_is_refused(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining, uri: str
) -> None:
    code, body = await platform.ask_agent(
        port_of(node), client=platform.client_certificate(uri=uri)
    )
    assert (code, body) == (403, b"")


@pytest.mark.usefixtures("agent")
async def test_nothing_older_than_tls_1_3_is_spoken(node: joining.Joining) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", port_of(node), ssl=context)


async def test_a_key_it_does_not_know_makes_it_ask_and_then_it_answers(
    platform: imaginary_platform.ImaginaryPlatform,
    node: joining.Joining,
    agent: asyncio.subprocess.Process,
) -> None:
    await worker_command.said(agent, "Trust set is current")
    fresh = platform.new_key()
    platform.publish(platform.keys[0], fresh)
    client = platform.client_certificate(key=fresh)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await platform.ask_agent(port_of(node), client=client)
    await worker_command.said(agent, "Trust set renewed")
    code, _ = await platform.ask_agent(port_of(node), client=client)
    assert code == 200


async def test_a_key_that_has_left_the_set_is_no_longer_answered(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    old, fresh = platform.keys[0], platform.new_key()
    platform.publish(old, fresh)
    platform.publish(fresh, signed_by=(old, fresh))
    async with worker_command.started("agent", "--data-dir", str(node.folder)) as process:
        await worker_command.said(process, "Trust set renewed")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await platform.ask_agent(port_of(node), client=platform.client_certificate(key=old))
        code, _ = await platform.ask_agent(
            port_of(node), client=platform.client_certificate(key=fresh)
        )
    assert code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_cleanly_when_asked_to(
    agent: asyncio.subprocess.Process, number: signal.Signals
) -> None:
    agent.send_signal(number)
    async with asyncio.timeout(10):
        assert await agent.wait() == 0


async def test_it_runs_without_a_platform_and_keeps_what_it_has(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining
) -> None:
    before = worker_command.contents(node.folder)
    platform.faults = [imaginary_platform.answer_with(404)] * 20
    async with worker_command.started("agent", "--data-dir", str(node.folder)) as process:
        await worker_command.said(process, "was not refreshed, the held one stays")
        code, _ = await platform.ask_agent(port_of(node), client=platform.client_certificate())
    assert code == 200
    after = worker_command.contents(node.folder)
    assert after == before


@pytest.mark.usefixtures("agent")
async def test_a_second_agent_on_the_same_folder_is_refused(node: joining.Joining) -> None:
    done = await worker_command.enlist("agent", "--data-dir", str(node.folder))
    assert done.code == 75
    assert "Another Agent runs already" in done.err


async def test_a_port_that_another_program_holds_is_named(node: joining.Joining) -> None:
    with socket.create_server(("127.0.0.1", port_of(node))):
        done = await worker_command.enlist("agent", "--data-dir", str(node.folder))
    assert done.code == 75
    assert f"Port {port_of(node)} is in use" in done.err


async def test_on_a_machine_that_has_not_joined_it_says_what_to_run(tmp_path: pathlib.Path) -> None:
    done = await worker_command.enlist("agent", "--data-dir", str(tmp_path / "nothing"))
    assert done.code == 6
    assert done.err.strip().endswith(f"enlist worker join - --data-dir {tmp_path / 'nothing'}")


async def test_a_file_in_the_place_of_the_data_directory_is_misuse_for_every_command() -> None:
    for command in (["agent"], ["worker", "status"], ["worker", "refresh-trust"]):
        done = await worker_command.enlist(*command, "--data-dir", "/etc/hostname")
        assert done.code == 2, command
        assert "Traceback" not in done.err
        assert done.err.startswith("Error: /etc/hostname is no folder")


async def test_an_identity_of_another_machine_is_refused(
    platform: imaginary_platform.ImaginaryPlatform, node: joining.Joining, tmp_path: pathlib.Path
) -> None:
    other = joining.Joining(folder=tmp_path / "other")
    await other.join(platform.issue("web-2"), port=machine.free_port())
    node.where.certificate.write_bytes(other.where.certificate.read_bytes())
    done = await worker_command.enlist("agent", "--data-dir", str(node.folder))
    assert done.code == 6
    assert "belongs to another key" in done.err


async def test_joining_again_while_the_own_agent_holds_the_port_works(
    platform: imaginary_platform.ImaginaryPlatform,
    node: joining.Joining,
    agent: asyncio.subprocess.Process,
) -> None:
    done = await node.join(platform.issue("web-1"))
    assert done.reachable is True, done.reachable_reason
    assert agent.returncode is None


async def test_status_tells_whether_the_agent_runs(
    node: joining.Joining, agent: asyncio.subprocess.Process
) -> None:
    command = ("worker", "status", "--data-dir", str(node.folder), "-o", "json")
    assert (await worker_command.enlist(*command)).document["agent_runs"] is True
    agent.terminate()
    await agent.wait()
    report = (await worker_command.enlist(*command)).document
    assert (report["agent_runs"], report["state"]) == (False, "joined")


async def test_it_stays_small_after_a_thousand_questions(
    platform: imaginary_platform.ImaginaryPlatform,
    node: joining.Joining,
    agent: asyncio.subprocess.Process,
) -> None:
    client = platform.client_certificate()
    await platform.ask_agent_often(port_of(node), client=client, times=1000)
    resident = psutil.Process(agent.pid).memory_info().rss
    assert resident <= MOST_RESIDENT_BYTES
    maps = psutil.Process(agent.pid).memory_maps()
    assert not [one.path for one in maps if "pydantic" in one.path or "uvloop" in one.path]
