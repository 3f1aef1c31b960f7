"""Real nodes on hosts of their own, for trials of the mesh between a real Platform and them."""

import contextlib
import dataclasses
import pathlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from tests.support import machine, mesh_hosts, operators, real_platform
from wire_protocol import mesh
from worker_agent.mesh import grant_file

WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
BLOCKED = ("ipproto", "udp", "dport", "51820", "blackhole")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine on its host."""

    name: str
    host: mesh_hosts.Host
    worker: machine.Machine

    def join(self, platform: real_platform.RealPlatform, *more: str) -> mesh.Grant | None:
        """Joins for real, and gives its place in the mesh."""
        join = ("--data-dir", str(self.worker.data_dir), "worker", "join", "-", *more)
        done = subprocess.run(
            [*self.host.inside, *real_platform.ENLIST, *join],
            input=machine.issue(platform, self.name),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=real_platform.clean_environment(),
        )
        assert done.returncode == 0, done.stderr
        return self.grant()

    def grant(self) -> mesh.Grant | None:
        """Its place, as it stands on its disk."""
        return grant_file.read(self.worker.data_dir / "mesh.json")

    def address(self) -> str:
        """Its address in the mesh."""
        grant = self.grant()
        assert grant is not None
        return str(grant.address)

    @contextlib.contextmanager
    def agent(self, *, prefix: Sequence[str] = ()) -> Iterator[machine.Agent]:
        """Its Agent for the length of a `with`."""
        running = self.worker.start_agent(prefix=[*self.host.inside, *prefix])
        try:
            yield running
        finally:
            running.stop()

    @contextlib.contextmanager
    def agent_joined(self, platform: real_platform.RealPlatform) -> Iterator[machine.Agent]:
        """Joins, and is ready with its Agent for the length of a `with`."""
        self.join(platform)
        with self.agent() as running:
            machine.wait_for_state(platform, self.name, "ready", seconds=60)
            yield running

    def block(self) -> None:
        """Drops what it sends to the mesh's port, as a firewall on the way would."""
        self.host.run("ip", "rule", "add", "pref", "10", *BLOCKED)

    def unblock(self) -> None:
        """Lets it through again."""
        self.host.run("ip", "rule", "del", "pref", "10", *BLOCKED)


def on(host: mesh_hosts.Host, *, folder: pathlib.Path) -> Node:
    """A machine-to-be on this host."""
    name = host.name.split("-")[1]
    return Node(name=name, host=host, worker=machine.dialling_out(folder, name=name))


@contextlib.contextmanager
def platform_on(
    hub: mesh_hosts.Host,
    *,
    folder: pathlib.Path,
    environment: Mapping[str, str] | None = None,
    more: Sequence[str] = ("--mesh",),
    enrollment_port: int = 0,
) -> Iterator[real_platform.RealPlatform]:
    """A Platform with a mesh on this host."""
    with real_platform.running(
        folder / "platform",
        *more,
        prefix=hub.inside,
        addresses=(mesh_hosts.HUB_NAME,),
        environment=environment,
        enrollment_port=enrollment_port,
    ) as platform:
        yield platform


def peers_of(host: mesh_hosts.Host) -> list[str]:
    """The public keys that its interface knows; none where there is no interface."""
    names = host.interfaces()
    return host.run("wg", "show", names[0], "peers").split() if names else []


def wait_for_reason(platform: real_platform.RealPlatform, name: str, reason: str | None) -> None:
    """Waits until the node list gives that reason."""
    operators.wait_until(
        lambda: machine.node(platform, name)["reason"] == reason,
        what=f"{name} has the reason {reason}",
        seconds=60,
    )


def check(platform: real_platform.RealPlatform) -> dict[str, Any]:
    """What `/readyz` says of the mesh."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(platform.socket))) as client:
        document = client.get("http://platform/readyz", timeout=30).json()
    found: dict[str, Any] = next(one for one in document["checks"] if one["name"] == "mesh")
    return found
