"""Two hosts of the test's own: network namespaces joined by a cable. Needs root and iproute2.

Each has IPv4 and IPv6, and a hosts file that knows the Platform by a name with both addresses.
Everything is taken down at the end; nothing leaves the two.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

PLATFORM_NAME = "p.enlist.test"
PLATFORM_IPV4, PLATFORM_IPV6 = "10.97.0.1", "fd97::1"
MACHINE_IPV4, MACHINE_IPV6 = "10.97.0.2", "fd97::2"
SECOND = {  # a further address of each family, where a test gives a host two of each
    "platform": ("10.97.1.1", "fd97:1::1"),
    "machine": ("10.97.1.2", "fd97:1::2"),
}
NOBODYS_MAC = "02:00:00:00:97:99"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The names of the two namespaces."""

    platform: str
    machine: str

    @property
    def in_platform(self) -> tuple[str, ...]:
        """What to put before a command to run it on the Platform's host."""
        return ("ip", "netns", "exec", self.platform)

    @property
    def in_machine(self) -> tuple[str, ...]:
        """What to put before a command to run it on the machine."""
        return ("ip", "netns", "exec", self.machine)

    def give_second_addresses(self) -> None:
        """From now on both hosts have two addresses of each family, and a route to anywhere."""
        for host, inside, gateways in (
            ("platform", self.in_platform, (MACHINE_IPV4, MACHINE_IPV6)),
            ("machine", self.in_machine, (PLATFORM_IPV4, PLATFORM_IPV6)),
        ):
            ipv4, ipv6 = SECOND[host]
            _run(*inside, "ip", "addr", "add", f"{ipv4}/24", "dev", "cable")
            _run(*inside, "ip", "addr", "add", f"{ipv6}/64", "dev", "cable", "nodad")
            for gateway in gateways:
                _run(*inside, "ip", "route", "add", "default", "via", gateway, "dev", "cable")

    def lose_everything_sent_by_ipv6(self) -> None:
        """From now on the machine's IPv6 packets go to nobody, and no error comes back."""
        _run(*self.in_machine, "ip", "-6", "neigh", "replace", PLATFORM_IPV6,
             "lladdr", NOBODYS_MAC, "dev", "cable", "nud", "permanent")  # fmt: skip

    def take_away(self, address: str) -> None:
        """The machine has no address of that family any more."""
        prefix = "64" if ":" in address else "24"
        _run(*self.in_machine, "ip", "addr", "del", f"{address}/{prefix}", "dev", "cable")


@contextlib.contextmanager
def joined() -> Iterator[Hosts]:
    """The two hosts for the length of a `with`; skips the test where they cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    hosts = Hosts(platform=f"enl-p-{os.getpid()}", machine=f"enl-m-{os.getpid()}")
    with contextlib.ExitStack() as undo:
        for name in (hosts.platform, hosts.machine):
            done = subprocess.run(
                ["ip", "netns", "add", name], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"no network namespace can be made: {done.stderr.strip()}")
            undo.callback(_run, "ip", "netns", "del", name)
            folder = pathlib.Path("/etc/netns") / name
            folder.mkdir(parents=True)
            undo.callback(shutil.rmtree, folder)
            (folder / "hosts").write_text(
                f"127.0.0.1 localhost\n{PLATFORM_IPV6} {PLATFORM_NAME}\n"
                f"{PLATFORM_IPV4} {PLATFORM_NAME}\n"
            )
        _run("ip", "link", "add", "cable", "netns", hosts.platform, "type", "veth",
             "peer", "name", "cable", "netns", hosts.machine)  # fmt: skip
        for prefix, ipv4, ipv6 in (
            (hosts.in_platform, PLATFORM_IPV4, PLATFORM_IPV6),
            (hosts.in_machine, MACHINE_IPV4, MACHINE_IPV6),
        ):
            _run(*prefix, "ip", "addr", "add", f"{ipv4}/24", "dev", "cable")
            _run(*prefix, "ip", "addr", "add", f"{ipv6}/64", "dev", "cable", "nodad")
            _run(*prefix, "ip", "link", "set", "lo", "up")
            _run(*prefix, "ip", "link", "set", "cable", "up")
        yield hosts


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)
