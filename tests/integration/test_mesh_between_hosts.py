"""The mesh for real: a Platform and nodes on hosts of their own, with WireGuard between them."""

import functools
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import machine, mesh_hosts, mesh_nodes, operators, real_platform
from wire_protocol import problems

Hosts = tuple[mesh_hosts.Host, list[mesh_hosts.Host]]
OPTIONAL = {"ENLIST_MESH__REQUIRED": "false"}
# Several real programs on a machine that may be busy; one at a time, as in mesh_hosts.
pytestmark = pytest.mark.timeout(300)
UNDISTURBED_SECONDS = 60.0  # a node goes on by itself within two heartbeats


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    mesh_hosts.require_wireguard()
    with mesh_hosts.around_a_hub(2) as (hub, machines):
        yield hub, machines


@pytest.fixture
def node(hosts: Hosts, tmp_path: pathlib.Path) -> mesh_nodes.Node:
    return mesh_nodes.on(hosts[1][0], folder=tmp_path)


def test_a_node_is_ready_once_both_ends_have_shaken_hands_and_not_before(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    with mesh_nodes.platform_on(hub, folder=tmp_path) as platform:
        node.join(platform)
        node.block()
        with node.agent() as agent:
            mesh_nodes.wait_for_reason(platform, node.name, "mesh-waiting")
            assert machine.node(platform, node.name)["state"] == "enrolled"
            assert "Session open" in real_platform.tail(agent.log)
            node.unblock()
            machine.wait_for_state(platform, node.name, "ready", seconds=60)
            assert mesh_hosts.hears(node.host, at=node.address(), sender=hub)
            assert mesh_nodes.check(platform)["status"] == "ok"
            assert machine.node(platform, node.name)["mesh"]["state"] == "up"
        assert node.host.interfaces() == []  # it stopped, and left nothing
    assert hub.interfaces() == []


def test_a_removed_node_is_cut_off_at_once(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    with mesh_nodes.platform_on(hub, folder=tmp_path) as platform, node.agent_joined(platform):
        assert len(mesh_nodes.peers_of(hub)) == 1
        platform.enlist("nodes", "remove", node.name)
        operators.wait_until(
            lambda: mesh_nodes.peers_of(hub) == [], what="the peer is gone", seconds=5
        )
        grant = node.grant()
        assert grant is not None
        assert not mesh_hosts.hears(hub, at=str(grant.platform_address), sender=node.host)


def test_a_node_reaches_the_platform_alone_however_its_own_end_is_bent(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    hub, machines = hosts
    one, two = (mesh_nodes.on(host, folder=tmp_path) for host in machines)
    for switch in ("net.ipv6.conf.all.forwarding", "net.ipv4.ip_forward"):
        hub.run("sysctl", "-w", f"{switch}=1")  # as on any host with containers
    with (
        mesh_nodes.platform_on(hub, folder=tmp_path) as platform,
        one.agent_joined(platform),
        two.agent_joined(platform),
    ):
        grant = one.grant()
        assert grant is not None
        (interface,), key = one.host.interfaces(), grant.platform_public_key
        one.host.run("wg", "set", interface, "peer", key, "allowed-ips", "::/0,0.0.0.0/0")
        one.host.run("ip", "route", "add", f"{two.host.address}/32", "dev", interface)
        one.host.run("ip", "-6", "route", "add", f"{two.address()}/128", "dev", interface)
        assert mesh_hosts.hears(two.host, at=two.address(), sender=hub)
        assert not mesh_hosts.hears(two.host, at=two.address(), sender=one.host)
        assert not mesh_hosts.hears(two.host, at=two.host.address, sender=one.host)
        another = two.address()
        one.host.run("ip", "addr", "add", f"{another}/128", "dev", interface, "nodad")
        platform_address = str(grant.platform_address)
        assert not mesh_hosts.hears(hub, at=platform_address, sender=one.host, source=another)
        assert mesh_hosts.hears(hub, at=platform_address, sender=two.host)


def test_what_killed_programs_left_is_taken_up_again(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    with mesh_nodes.platform_on(hub, folder=tmp_path) as platform:
        node.join(platform)
        agent = node.worker.start_agent(prefix=node.host.inside)
        machine.wait_for_state(platform, node.name, "ready", seconds=60)
        agent.kill()
        left = node.host.interfaces()
        assert len(left) == 1
        with node.agent():
            machine.wait_for_state(platform, node.name, "ready", seconds=60)
            assert node.host.interfaces() == left
            at_hub, peers = hub.interfaces(), mesh_nodes.peers_of(hub)
            os.kill(platform.child("platform_server engine").pid, signal.SIGKILL)
            with pytest.raises(subprocess.TimeoutExpired):
                platform.process.wait(1)  # the host starts another engine
            machine.wait_for_state(platform, node.name, "ready", seconds=UNDISTURBED_SECONDS)
            assert (hub.interfaces(), mesh_nodes.peers_of(hub)) == (at_hub, peers)
        assert node.host.interfaces() == []
    assert hub.interfaces() == []


def test_an_agent_without_the_rights_says_so_and_is_ready_where_the_mesh_is_optional(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    with mesh_nodes.platform_on(hub, folder=tmp_path, environment=OPTIONAL) as platform:
        node.join(platform)
        with node.agent(prefix=mesh_nodes.WITHOUT_RIGHTS) as agent:
            machine.wait_for_state(platform, node.name, "ready", seconds=60)
            said = real_platform.tail(agent.log)
            assert "Mesh failed" in said
            assert "not permitted" in said.lower()
            operators.wait_until(
                lambda: machine.node(platform, node.name)["mesh"]["said"] == "failed",
                what="the node list shows what the node says of its end",
            )
            shown = machine.node(platform, node.name)["mesh"]
            assert (shown["state"], shown["address"]) == ("waiting", node.address())
            assert "not permitted" in shown["said_reason"].lower()


def test_a_platform_without_the_rights_does_not_start_and_says_what_it_lacks(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    serve = ("serve", "--mesh", "--data-dir", str(tmp_path / "p"), "--listen", "127.0.0.1:0")
    done = subprocess.run(
        [
            *(*hub.inside, *mesh_nodes.WITHOUT_RIGHTS, *real_platform.ENLIST),
            *(*serve, "--enrollment-port", "0"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=real_platform.clean_environment(),
    )
    assert done.returncode == problems.Exit.NEEDS_OPERATOR
    assert "CAP_NET_ADMIN" in done.stderr


def test_a_mesh_that_is_turned_on_later_reaches_nodes_that_have_joined_before(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    gateway = ("--gateway-port", "18445")
    start = functools.partial(mesh_nodes.platform_on, hub, folder=tmp_path, enrollment_port=18444)
    with start(more=gateway) as platform:
        assert node.join(platform) is None
        agent = node.worker.start_agent(prefix=node.host.inside)
        machine.wait_for_state(platform, node.name, "ready", seconds=60)
    try:
        with start(more=(*gateway, "--mesh")) as platform:
            operators.wait_until(
                lambda: node.grant() is not None, what="the node has learned its place", seconds=90
            )
            machine.wait_for_state(platform, node.name, "ready", seconds=60)
            assert mesh_hosts.hears(node.host, at=node.address(), sender=hub)
    finally:
        agent.stop()


def test_a_machine_with_ipv6_off_takes_part_all_the_same(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    node.host.run("sysctl", "-w", "net.ipv6.conf.default.disable_ipv6=1")
    with mesh_nodes.platform_on(hub, folder=tmp_path) as platform, node.agent_joined(platform):
        assert mesh_hosts.hears(node.host, at=node.address(), sender=hub)


def test_a_mesh_of_ipv4_addresses_works_as_well(
    hosts: Hosts, node: mesh_nodes.Node, tmp_path: pathlib.Path
) -> None:
    hub, _ = hosts
    environment = {"ENLIST_MESH__NETWORK": "10.71.0.0/16"}
    with (
        mesh_nodes.platform_on(hub, folder=tmp_path, environment=environment) as platform,
        node.agent_joined(platform),
    ):
        assert node.address().startswith("10.71.")
        assert mesh_hosts.hears(node.host, at=node.address(), sender=hub)
        assert mesh_hosts.hears(hub, at="10.71.0.1", sender=node.host)
