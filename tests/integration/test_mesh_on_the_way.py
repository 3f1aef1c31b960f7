"""The mesh over a way that misbehaves, in the other mode, and on one machine alone."""

import json
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import machine, mesh_hosts, mesh_nodes, operators, real_platform, routed_hosts

# Several real programs on a machine that may be busy; one at a time, as in mesh_hosts.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def far() -> Iterator[routed_hosts.Hosts]:
    mesh_hosts.require_wireguard()
    with routed_hosts.joined() as hosts:
        yield hosts


def enlist(inside: tuple[str, ...], *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [*inside, *real_platform.ENLIST, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=real_platform.clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_node_behind_translation_is_reached_and_follows_a_platform_that_moves(
    far: routed_hosts.Hosts, tmp_path: pathlib.Path
) -> None:
    far.translate_and_forget_after(60)
    far.lose_ipv6()  # its name has an address of it all the same, and the first one
    worker = machine.dialling_out(tmp_path)
    join = ("--data-dir", str(worker.data_dir), "worker", "join", "-")
    with real_platform.running(
        tmp_path / "platform",
        *("--mesh", "--gateway-port", "18445"),
        prefix=far.in_platform,
        enrollment_port=18444,
        addresses=(routed_hosts.PLATFORM_NAME,),
    ) as platform:
        enlist(far.in_machine, *join, stdin=machine.issue(platform, "w1"))
        agent = worker.start_agent(prefix=far.in_machine)
        try:
            machine.wait_for_state(platform, "w1", "ready", seconds=120)
            endpoints = peer_endpoints(far)
            assert routed_hosts.MACHINE_IPV4 not in endpoints  # the router's, as others see it
            far.move_platform()
            operators.wait_until(
                lambda: routed_hosts.MOVED_IPV4 in node_endpoints(far),
                what="the node sends to where the Platform is now",
                seconds=120,
            )
            machine.wait_for_state(platform, "w1", "ready", seconds=120)
            assert machine.node(platform, "w1")["mesh"]["state"] == "up"
        finally:
            agent.stop()


def peer_endpoints(far: routed_hosts.Hosts) -> str:
    """Where the Platform's interface last heard its peers."""
    return subprocess.check_output(
        [*far.in_platform, "wg", "show", "enlist0", "endpoints"], text=True, timeout=20
    )


def node_endpoints(far: routed_hosts.Hosts) -> str:
    """Where the node's interface sends to; its name is the first that was free."""
    links = json.loads(
        subprocess.check_output([*far.in_machine, "ip", "-j", "link"], text=True, timeout=20)
    )
    names = [one["ifname"] for one in links if "enlist mesh node" in one.get("ifalias", "")]
    return "".join(
        subprocess.check_output(
            [*far.in_machine, "wg", "show", name, "endpoints"], text=True, timeout=20
        )
        for name in names
    )


def test_a_node_that_listens_takes_part_and_learns_its_place_by_an_errand(
    tmp_path: pathlib.Path,
) -> None:
    mesh_hosts.require_wireguard()
    with mesh_hosts.around_a_hub(1) as (hub, (host,)):
        node = mesh_nodes.on(host, folder=tmp_path)
        listening = machine.Machine(data_dir=node.worker.data_dir, port=18443)
        with mesh_nodes.platform_on(hub, folder=tmp_path) as platform:
            node.join(platform, "--address", host.address, "--port", "18443")
            (listening.data_dir / "mesh.json").unlink()  # as one that joined before the mesh
            agent = listening.start_agent(prefix=host.inside)
            try:
                machine.wait_for_state(platform, node.name, "ready", seconds=120)
                assert machine.node(platform, node.name)["connectivity"] == "listen"
                assert mesh_hosts.hears(host, at=node.address(), sender=hub)
                agent.kill()
                enlist(host.inside, "--data-dir", str(listening.data_dir), "worker", "leave")
                assert host.interfaces() == []
                operators.wait_until(
                    lambda: mesh_nodes.peers_of(hub) == [], what="the peer is gone"
                )
            finally:
                agent.stop()


def test_a_platform_and_its_node_on_one_machine_do_not_take_each_others_interface(
    tmp_path: pathlib.Path,
) -> None:
    mesh_hosts.require_wireguard()
    with mesh_hosts.around_a_hub(1) as (hub, _):
        node = mesh_nodes.on(hub, folder=tmp_path)
        with mesh_nodes.platform_on(hub, folder=tmp_path) as platform:
            with node.agent_joined(platform):
                assert len(hub.interfaces()) == 2
            assert len(hub.interfaces()) == 1
        assert hub.interfaces() == []
