"""The node that dials out, over real TLS on loopback, against a gateway that can also misbehave."""

import asyncio
import json
import pathlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator

import psutil
import pytest

from runtime_kit.mux import link as links
from tests.support import (
    certificates,
    clocks,
    connect_proxy,
    dialling,
    imaginary_gateway,
    joining,
    machine,
    waits,
    worker_command,
)
from wire_protocol import health, heartbeats, product, session
from worker_agent.app import status
from worker_agent.identity import own
from worker_agent.session import errands
from worker_agent.settings import failures, paths

MOST_RESIDENT_BYTES = 60_000_000


@pytest.fixture
async def gateway(tmp_path: pathlib.Path) -> AsyncIterator[imaginary_gateway.ImaginaryGateway]:
    async with imaginary_gateway.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
async def joined(
    gateway: imaginary_gateway.ImaginaryGateway, tmp_path: pathlib.Path
) -> joining.Joining:
    """A machine that has joined without an address."""
    made = joining.Joining(folder=tmp_path / "worker")
    await made.join(gateway.platform.issue("web-1"))
    return made


def agent_of(where: paths.Paths) -> tuple[str, ...]:
    return ("agent", "--data-dir", str(where.folder))


async def test_without_an_address_the_machine_joins_and_dials_out_without_a_word(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    assert joined.warned == []
    async with worker_command.started(*agent_of(joined.where)) as process:
        said = await gateway.ask_health("web-1")
        assert (said.node_id, said.agent_id) == ("web-1", "agent-web-1")
        await waits.until(lambda: bool(gateway.node("web-1").beats))
        assert process.returncode is None
    beat = gateway.node("web-1").beats[0]
    assert beat.capacity.cpu_count >= 1
    assert beat.capacity.memory_bytes > beat.memory_available_bytes > 0
    assert beat.capacity.disk_bytes > beat.disk_free_bytes > 0
    assert beat.trust_keys == (gateway.platform.keys[0].public.key_id,)
    assert beat.statement == (1, 1)


async def test_a_platform_without_a_gateway_is_told_at_the_join_and_found_later(
    gateway: imaginary_gateway.ImaginaryGateway, tmp_path: pathlib.Path
) -> None:
    gateway.platform.gateway_urls, gateway.platform.gateway_pins = (), ()
    made = joining.Joining(folder=tmp_path / "early")
    done = await made.join(gateway.platform.issue("web-2"))
    assert done.agent.gateway_url is None
    async with worker_command.started(*agent_of(made.where)) as process:
        await worker_command.said(process, "named no gateway")
        gateway.announce()
        gateway.platform.publish(*gateway.platform.keys)
        await gateway.session_of("web-2")


async def test_no_port_is_open_on_the_machine_and_the_agent_stays_small(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    async with worker_command.started(*agent_of(joined.where)) as process:
        await gateway.session_of("web-1")
        for _ in range(200):
            await gateway.ask_health("web-1")
        running = psutil.Process(process.pid)
        listening = [
            one for one in running.net_connections("inet") if one.status == psutil.CONN_LISTEN
        ]
        assert listening == []
        assert running.memory_info().rss <= MOST_RESIDENT_BYTES
        maps = [one.path for one in running.memory_maps()]
    assert not [one for one in maps if "pydantic" in one or "uvloop" in one]


async def test_after_a_kill_the_agent_comes_back_at_once_without_a_token(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    async with worker_command.started(*agent_of(joined.where)) as process:
        await gateway.session_of("web-1")
        process.kill()
    async with worker_command.started(*agent_of(joined.where)):
        await gateway.session_of("web-1", after=1)
    assert gateway.node("web-1").generation == 3


async def test_a_copy_that_is_started_beside_the_running_machine_ends_with_code_6(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining, tmp_path: pathlib.Path
) -> None:
    async with worker_command.started(*agent_of(joined.where)):
        first = await gateway.session_of("web-1")
        copied = tmp_path / "copy"
        await asyncio.to_thread(_copy, joined.folder, copied)
        done = await worker_command.enlist("agent", "--data-dir", str(copied))
        assert gateway.open_session("web-1") is first
    assert done.code == 6
    assert "192.0.2.1" in done.err
    assert done.err.strip().endswith(f"enlist worker join - --data-dir {copied}")


def _copy(folder: pathlib.Path, target: pathlib.Path) -> None:
    shutil.copytree(folder, target)


async def test_status_tells_the_session_and_why_there_is_none(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    show = ("worker", "status", "--data-dir", str(joined.folder), "-o", "json")
    async with worker_command.started(*agent_of(joined.where)) as process:
        await gateway.session_of("web-1")
        await waits.until(lambda: bool(gateway.node("web-1").beats))
        said = (await worker_command.enlist(*show)).document
        assert said["session"]["state"] == "open"
        assert said["session"]["gateway"] == gateway.url
        assert said["session"]["last_heartbeat_at"] > said["joined_at"]
        assert said["certificate_not_after"] > said["joined_at"]
        gateway.refuses[session.Ask.HELLO] = links.Refusal("not-now", "Full")
        link = gateway.open_session("web-1")
        assert link is not None
        link.close(reason="away with you")
        await worker_command.said(process, "No session")
        said = (await worker_command.enlist(*show)).document
        assert said["session"]["state"] == "waiting"
        assert "Full" in said["session"]["reason"]
        assert said["session"]["class"] == "transient"
        text = await worker_command.enlist(*show[:-2])
        assert "session reason" in text.out


async def test_a_node_that_was_removed_ends_with_code_6_and_keeps_its_files(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    gateway.node("web-1").removed = True
    done = await worker_command.enlist(*agent_of(joined.where))
    assert done.code == 6
    assert "enlist nodes allow" in done.err
    assert "Traceback" not in done.err
    own.load(joined.where)
    show = ("worker", "status", "--data-dir", str(joined.folder), "-o", "json")
    said = (await worker_command.enlist(*show)).document
    assert said["session"]["state"] == "stopped"
    assert said["session"]["class"] == "needs-operator"


async def test_a_proxy_with_a_password_is_passed_through_by_the_session_too(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    async with connect_proxy.running(password=("user", "s3cret")) as proxy:
        right = {"https_proxy": proxy.url(user="user:s3cret")}
        async with worker_command.started(*agent_of(joined.where), environment=right) as process:
            await gateway.session_of("web-1")
            assert proxy.tunnels >= 2
            process.terminate()
            _, err = await process.communicate()
    assert b"s3cret" not in err
    assert f"CONNECT 127.0.0.1:{gateway.port} " in "".join(proxy.asked)


async def test_a_proxy_that_asks_for_credentials_is_named_and_asked_rarely(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    async with connect_proxy.running(password=("user", "s3cret")) as proxy:
        wrong = {"https_proxy": proxy.url(user="user:wr0ng")}
        async with worker_command.started(*agent_of(joined.where), environment=wrong) as process:
            line = await worker_command.said(process, "No session")
            process.terminate()
            _, err = await process.communicate()
    said = json.loads(line)
    assert "407" in said["reason"]
    assert said["class"] == "needs-operator"
    assert b"wr0ng" not in line.encode() + err
    assert gateway.asked == []


async def test_a_name_is_resolved_anew_at_each_try(
    gateway: imaginary_gateway.ImaginaryGateway,
    joined: joining.Joining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, moved = "gateway.enlist.test", "127.0.0.2"
    gateway.platform.gateway_urls = (f"https://{name}:{gateway.port}",)
    gateway.platform.publish(*gateway.platform.keys)
    resolve, address = socket.getaddrinfo, "127.0.0.1"

    def resolved(host: str, *rest: object, **more: object) -> object:
        return resolve(address if host == name and not more.get("flags") else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    await joined.join(gateway.platform.issue("web-1"))
    node = dialling.over_network(joined.where)
    async with node.running():
        await gateway.session_of("web-1")
        address = moved
        async with gateway.moved_to(moved):
            await gateway.session_of("web-1", after=1)


async def test_a_gateway_with_a_new_key_is_believed_by_the_signed_statement_alone(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    before = joined.where.join.read_bytes()
    node = dialling.over_network(joined.where)
    async with node.running():
        await gateway.session_of("web-1")
        async with gateway.with_another_key():
            gateway.announce()
            gateway.platform.publish(*gateway.platform.keys)
            await gateway.session_of("web-1", after=1)
    assert joined.where.join.read_bytes() == before


async def test_whoever_takes_the_gateways_place_learns_nothing_and_changes_nothing(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    before = worker_command.contents(joined.folder)
    stranger = imaginary_gateway.ImaginaryGateway(gateway.platform)
    stranger.port = gateway.port
    await gateway.stop()
    node = dialling.over_network(joined.where)
    async with stranger.serving(), node.running():
        await waits.until(lambda: len(node.told.reasons) >= 2)
    assert stranger.asked == []
    assert "not the expected server" in node.told.reasons[0]
    assert worker_command.contents(joined.folder) == before


async def test_a_platform_rebuilt_without_its_keys_is_given_up_after_ten_minutes_and_not_before(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    before = worker_command.contents(joined.folder)
    platform, clock = gateway.platform, clocks.ShiftedClock()
    stranger = platform.new_key()
    platform.tls_identity = certificates.issue()
    platform.publish(stranger, signed_by=(stranger,))
    platform.asked.clear()
    node = dialling.over_network(joined.where, clock=clock)
    async with gateway.with_another_key(), node.running():
        await waits.until(lambda: node.ended is not None)
    assert isinstance(node.ended, failures.NeedsOperator)
    assert "enlist nodes platform" in str(node.ended)
    assert 600 <= sum(clock.sleeps) <= 1000
    assert 5 <= len(platform.asked) <= 20
    assert gateway.asked == []
    assert worker_command.contents(joined.folder) == before


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 500 Internal Server Error\r\n\r\n<html>",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
async def test_what_is_no_gateway_is_tried_again_and_changes_nothing(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining, answer: bytes
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    before = worker_command.contents(joined.folder)
    port = gateway.port
    await gateway.stop()
    serving = await asyncio.start_server(serve, "127.0.0.1", port, reuse_address=True)
    node = dialling.over_network(joined.where)
    async with node.running():
        await waits.until(lambda: len(node.told.reasons) >= 2)
    serving.close()
    assert node.ended is None
    assert worker_command.contents(joined.folder) == before


async def test_a_command_renews_and_the_running_agent_takes_it_into_use(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    gateway.heartbeat_seconds = 1
    before = own.load(joined.where)
    command = ("worker", "renew", "--data-dir", str(joined.folder), "-o", "json")
    async with worker_command.started(*agent_of(joined.where)):
        await gateway.session_of("web-1")
        checked = await worker_command.enlist(*command, "--check")
        assert (checked.code, checked.document["renewed"]) == (0, False)
        assert own.load(joined.where).certificate == before.certificate
        done = await worker_command.enlist(*command, "--new-key")
        assert done.code == 0, done.err
        assert done.document["key_changed"] is True
        await waits.until(lambda: gateway.node("web-1").sessions == 2)
    after = own.load(joined.where)
    assert after.pin == done.document["pin"] != before.pin
    assert gateway.node("web-1").present == after.certificate


async def test_a_renewal_without_a_gateway_is_temporary_and_changes_nothing(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    await gateway.stop()
    before = worker_command.contents(joined.folder)
    done = await worker_command.enlist("worker", "renew", "--data-dir", str(joined.folder))
    assert done.code == 75
    assert worker_command.contents(joined.folder) == before


async def test_leaving_removes_the_node_and_everything_on_the_machine(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    command = ("worker", "leave", "--data-dir", str(joined.folder))
    checked = await worker_command.enlist(*command, "--check", "-o", "json")
    assert (checked.code, checked.document["left"]) == (0, False)
    assert not gateway.node("web-1").removed
    gateway.loses[session.Ask.LEAVE] = 1
    lost = await worker_command.enlist(*command)
    assert lost.code == 75, "the answer was lost"
    done = await worker_command.enlist(*command, "-o", "json")
    assert (done.code, done.document["left"]) == (0, True), done.err
    left = {path.name for path in joined.folder.rglob("*")}
    assert left <= {"lock", "agent.lock"}
    again = await worker_command.enlist(*command)
    assert again.code == 6
    assert "has not joined" in again.err


async def test_leaving_while_nobody_answers_deletes_nothing(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    await gateway.stop()
    done = await worker_command.enlist("worker", "leave", "--data-dir", str(joined.folder))
    assert done.code == 75
    assert status.read(joined.where, now=gateway.clock.now()).agent is not None


async def test_a_node_that_listens_renews_by_an_errand_and_shows_the_new_certificate(
    gateway: imaginary_gateway.ImaginaryGateway, tmp_path: pathlib.Path
) -> None:
    made = joining.Joining(folder=tmp_path / "listening")
    port = machine.free_port()
    await made.join(gateway.platform.issue("web-2"), port=port)
    before = own.load(made.where)
    client = gateway.platform.client_certificate()
    async with worker_command.started(*agent_of(made.where)) as process:
        await worker_command.said(process, "Agent ready")
        renewed = await worker_command.enlist(
            "worker", "renew", "--new-key", "--data-dir", str(made.folder)
        )
        assert renewed.code == 0, renewed.err
        code, body = await gateway.platform.ask_agent(port, client=client)
        assert (code, health.parse(body).node_id) == (200, "web-2")
        shown = await asyncio.to_thread(_certificate_shown, port, client)
        code, body = await gateway.platform.ask_agent(port, client=client, target=heartbeats.PATH)
        assert (code, heartbeats.parse(body).version) == (200, product.VERSION)
    after = own.load(made.where)
    assert after.pin != before.pin
    assert shown == after.certificate_der
    renewed_at = gateway.asked.index(session.Ask.RENEW)
    assert session.Ask.HELLO in gateway.asked[renewed_at:], "made known, then shown"


def _certificate_shown(port: int, client: pathlib.Path) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(client)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


async def test_an_errand_never_takes_the_session(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    node = dialling.over_network(joined.where)
    async with node.running():
        first = await gateway.session_of("web-1")
        await errands.greet(joined.where, around=node.around)
        assert gateway.open_session("web-1") is first


async def test_a_stranger_to_the_gateway_is_told_where_to_look(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining
) -> None:
    gateway.knows_nobody = True
    node = dialling.over_network(joined.where)
    with pytest.raises(failures.NeedsOperator, match="enlist nodes show web-1"):
        await errands.greet(joined.where, around=node.around)
