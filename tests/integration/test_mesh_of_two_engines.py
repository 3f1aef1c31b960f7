"""Two engines over one store, and one mesh: whoever leads has the interface."""

import contextlib
import pathlib
import shutil
from collections.abc import Callable

import pytest

from tests.support import machine, mesh_hosts, mesh_nodes, operators, postgres, real_platform

# Several real programs on a machine that may be busy; one at a time, as in mesh_hosts.
pytestmark = pytest.mark.timeout(300)


def marks(host: mesh_hosts.Host) -> list[str]:
    """The marks of the Platform's interfaces there: one of each engine that has one."""
    lines = host.run("ip", "-o", "link").splitlines()
    return [line.partition("alias ")[2].strip() for line in lines if "enlist mesh platform" in line]


def test_an_engine_takes_the_interface_of_a_killed_one_over_with_its_sessions(
    tmp_path: pathlib.Path,
    postgres_server: postgres.Server,
    new_database: Callable[[], str],
) -> None:
    mesh_hosts.require_wireguard()
    name = new_database().rpartition("/")[2]
    # by its socket, which is there whatever the network is
    url = (
        f"postgresql://postgres@/{name}"
        f"?host={postgres_server.socket_dir}&port={postgres_server.port}"
    )
    with mesh_hosts.around_a_hub(1) as (hub, (host,)), contextlib.ExitStack() as stack:
        node = mesh_nodes.on(host, folder=tmp_path)

        def start(folder: str) -> real_platform.RealPlatform:
            return real_platform.start(
                tmp_path / folder,
                "--mesh",
                prefix=hub.inside,
                addresses=(mesh_hosts.HUB_NAME,),
                database_url=url,
            )

        first = start("one")
        stack.callback(first.stop)
        stack.enter_context(node.agent_joined(first))
        (tmp_path / "two").mkdir(mode=0o700)
        shutil.copy2(tmp_path / "one" / "master.key", tmp_path / "two" / "master.key")
        second = start("two")
        stack.callback(second.stop)
        operators.wait_until(
            lambda: machine.node(second, node.name)["mesh"]["state"] == "up",
            what="the other engine sees the node in the mesh",
        )
        before = marks(hub)
        assert len(before) == 1
        peers = hub.run("wg", "show", hub.interfaces()[0], "endpoints")
        real_platform.kill_group(first.process)
        operators.wait_until(
            lambda: marks(hub) != before, what="the interface is the other engine's", seconds=60
        )
        assert len(marks(hub)) == 1
        assert hub.run("wg", "show", hub.interfaces()[0], "endpoints") == peers
        assert mesh_hosts.hears(host, at=node.address(), sender=hub)
        assert second.stop() == 0
        assert hub.interfaces() == []
