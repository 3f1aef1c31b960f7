"""The gateway's port as `enlist serve` opens it: where, under which names, with which key."""

import contextlib
import json
import pathlib
import signal
import socket
import ssl
import subprocess

import httpx
import psutil
import pytest

from tests.support import gateway_port, machine, operators, real_platform, worker_command

pytestmark = pytest.mark.timeout(120)
LOOPBACK = "127.0.0.1"


def _refused(data_dir: pathlib.Path, *arguments: str) -> str:
    """A start that fails as wrong use; what it said."""
    done = subprocess.run(
        [
            *(*real_platform.ENLIST, "serve", "-o", "json", "--data-dir", str(data_dir)),
            *(() if "--listen" in arguments else ("--listen", f"{LOOPBACK}:0")),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=real_platform.clean_environment({"ENLIST_LISTEN__ADDRESSES": LOOPBACK}),
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


def _listening(platform: real_platform.RealPlatform) -> set[tuple[str, int]]:
    """Where the host, which holds all sockets, listens."""
    return {
        (one.laddr.ip, one.laddr.port)
        for one in psutil.Process(platform.process.pid).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }


def test_beside_the_enrollment_port_the_gateway_opens_with_a_key_of_its_own(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    with real_platform.running(tmp_path / "p", database_url=store_url) as platform:
        url, (pin,) = platform.said["gateway"], platform.said["gateway_pins"]
        assert url.startswith(f"https://{LOOPBACK}:")
        assert pin not in platform.said["pins"]
        leaf = gateway_port.leaf(url)
        assert gateway_port.pin(url) == pin
        assert gateway_port.names(leaf) == {LOOPBACK}
        shown = platform.api("GET", "/platform")
        assert (shown["gateway_url"], shown["gateway_pins"]) == (url, [pin])
        stated = gateway_port.statement(platform)
        assert stated["pins"]["gateway"] == [pin]
        assert stated["urls"]["gateway"] == [url]
        assert gateway_port.trust(platform)["gateway_pins"] == [pin]
    with real_platform.running(tmp_path / "p", database_url=store_url) as again:
        assert again.said["gateway_pins"] == [pin]


def test_it_binds_what_the_enrollment_port_binds(tmp_path: pathlib.Path) -> None:
    def places(platform: real_platform.RealPlatform, name: str) -> set[str]:
        port = gateway_port.place(platform.said[name])[1]
        return {address for address, one in _listening(platform) if one == port}

    with real_platform.running(tmp_path / "p") as platform:
        everywhere = places(platform, "gateway")
        assert everywhere == places(platform, "enrollment")
        assert "0.0.0.0" in everywhere
    narrow = {"ENLIST_LISTEN__ADDRESSES": LOOPBACK}
    with real_platform.running(tmp_path / "p", environment=narrow) as platform:
        assert places(platform, "gateway") == places(platform, "enrollment") == {LOOPBACK}


def test_addresses_of_its_own_stand_in_statement_and_certificate_the_best_first(
    tmp_path: pathlib.Path,
) -> None:
    own = {"ENLIST_GATEWAY__ADDRESSES": "gate.example.org,192.0.2.7,2001:db8::7"}
    with real_platform.running(tmp_path / "p", environment=own) as platform:
        port = gateway_port.place(platform.said["gateway"])[1]
        assert gateway_port.statement(platform)["urls"]["gateway"] == [
            f"https://gate.example.org:{port}",
            f"https://192.0.2.7:{port}",
            f"https://[2001:db8::7]:{port}",
        ]
        leaf = gateway_port.leaf(f"https://{LOOPBACK}:{port}")
        assert gateway_port.names(leaf) == {"gate.example.org", "192.0.2.7", "2001:db8::7"}
        pin = platform.said["gateway_pins"]
    with real_platform.running(tmp_path / "p") as platform:
        url = platform.said["gateway"]
        assert gateway_port.names(gateway_port.leaf(url)) == {LOOPBACK}
        assert platform.said["gateway_pins"] == pin


def test_off_beside_an_open_enrollment_port_it_is_told_to_nobody_and_issuing_says_so(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p", "--gateway-port", "off") as platform:
        assert (platform.said["gateway"], platform.said["gateway_pins"]) == (None, [])
        assert len({port for _, port in _listening(platform)}) == 2
        shown = platform.api("GET", "/platform")
        assert (shown["gateway_url"], shown["gateway_pins"]) == (None, [])
        stated = gateway_port.statement(platform)
        assert (stated["pins"]["gateway"], stated["urls"]["gateway"]) == ([], [])
        issued = subprocess.run(
            [
                *(*real_platform.ENLIST, "--data-dir", str(platform.data_dir)),
                *("nodes", "enroll-token", "web-1", "-o", "json"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=real_platform.clean_environment(),
        )
        assert "opens no gateway" in issued.stderr
        assert json.loads(issued.stdout)["platform_url"] == platform.enrollment_url


async def test_a_machine_that_dials_out_is_told_where_to_and_by_which_key(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        done = await worker_command.enlist(
            *worker_command.join_arguments(tmp_path / "w"), stdin=machine.issue(platform, "web-1")
        )
        assert done.code == 0, done.err
        kept = json.loads((tmp_path / "w" / "agent.json").read_text())
        assert kept["connectivity"] == "dial-out"
        assert kept["gateway_url"] == platform.said["gateway"]
        assert kept["gateway_pins"] == platform.said["gateway_pins"]


async def test_started_again_without_a_gateway_the_platform_says_who_is_cut_off(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        done = await worker_command.enlist(
            *worker_command.join_arguments(tmp_path / "w"), stdin=machine.issue(platform, "web-1")
        )
        assert done.code == 0, done.err
    with real_platform.running(tmp_path / "p", "--gateway-port", "off") as platform:
        assert "start it with --gateway-port" in platform.log.read_text()


def test_a_busy_port_of_the_gateway_names_the_option_though_nobody_typed_it(
    tmp_path: pathlib.Path,
) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else has it, which serves as well
            stack.enter_context(socket.create_server((LOOPBACK, 8445)))
        said = _refused(tmp_path / "p", "--enrollment-port", str(machine.free_port()))
    assert "another process listens on " in said
    assert ":8445" in said
    assert "--gateway-port PORT" in said
    assert "off" in said
    assert not (tmp_path / "p" / "master.key").exists()


def test_who_proves_no_node_is_let_go_without_an_answer(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(gateway_port.place(platform.said["gateway"]), 10) as raw,
            context.wrap_socket(raw, server_hostname="stranger") as secured,
        ):
            assert secured.version() == "TLSv1.3"
            with contextlib.suppress(OSError):  # the alert, where it was not the end at once
                assert secured.recv(1) == b""
        metrics = httpx.get(f"{platform.said['api']}/metrics").text
        assert "enlist_gateway_refused_handshakes_total 1.0" in metrics
        assert "enlist_sessions 0.0" in metrics


def test_while_the_engine_is_replaced_the_port_stays_and_serves_whoever_waited(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        url = platform.said["gateway"]
        before = platform.child("platform_server engine")
        platform.process.send_signal(signal.SIGHUP)
        for _ in range(20):
            assert gateway_port.pin(url) == platform.said["gateway_pins"][0]
        operators.wait_until(lambda: not before.is_running(), what="the old engine is gone")
        assert gateway_port.pin(url) == platform.said["gateway_pins"][0]


def test_where_no_nodes_are_taken_there_is_no_gateway(tmp_path: pathlib.Path) -> None:
    off = {"ENLIST_DISPATCH__ENABLED": "false"}
    with real_platform.running(tmp_path / "p", environment=off) as platform:
        assert (platform.said["gateway"], platform.said["gateway_pins"]) == (None, [])
