"""Three hosts of the test's own: a Platform, a machine, and a router between that misbehaves.

Network namespaces joined by cables; the router loses, shrinks, translates and cuts by rules of
nftables. Needs root, iproute2 and nft. The ends send packets one by one (no segmentation offload),
so that the router sees what a real one would. Everything is taken down at the end.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

PLATFORM_NAME = "far.enlist.test"
PLATFORM_IPV4, PLATFORM_IPV6 = "10.98.1.1", "fd98:1::1"
MOVED_IPV4 = "10.98.1.9"
MACHINE_IPV4, MACHINE_IPV6 = "10.98.2.2", "fd98:2::2"
_SECONDS = 20.0
_PAUSE_SECONDS = 0.05


_RELAY = """
import asyncio, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    to_reader, to_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer), return_exceptions=True)
async def main():
    async with await asyncio.start_server(serve, ["0.0.0.0", "::"], int(sys.argv[1])) as server:
        print("ready", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The names of the three namespaces."""

    platform: str
    router: str
    machine: str

    @property
    def in_platform(self) -> tuple[str, ...]:
        """What to put before a command to run it on the Platform's host."""
        return ("ip", "netns", "exec", self.platform)

    @property
    def in_machine(self) -> tuple[str, ...]:
        """What to put before a command to run it on the machine."""
        return ("ip", "netns", "exec", self.machine)

    def _nft(self, rules: str) -> None:
        run("ip", "netns", "exec", self.router, "nft", rules)

    def lose_larger_than(self, size: int) -> None:
        """Packets of more bytes vanish, both ways, and no word of it comes back."""
        self._nft(f"add rule inet way forward meta length > {size} drop")

    def lose(self, percent: int) -> None:
        """So many packets of a hundred vanish, both ways."""
        self._nft(f"add rule inet way forward numgen random mod 100 < {percent} drop")

    def lose_ipv6(self) -> None:
        """Every packet of IPv6 vanishes; the machine has addresses and routes all the same."""
        self._nft("add rule inet way forward meta nfproto ipv6 drop")

    def cut(self) -> None:
        """Nothing gets through any more, and nobody is told."""
        self._nft("add rule inet way forward drop")

    def heal(self) -> None:
        """Everything gets through again; what was translated stays so."""
        self._nft("flush chain inet way forward")

    def translate_and_forget_after(self, seconds: int) -> None:
        """The machine is behind a translation that forgets a connection idle for that long.

        From then on its packets belong to no connection and vanish, as at a provider's gateway.
        """
        for name, value in (
            ("nf_conntrack_tcp_timeout_established", seconds),
            ("nf_conntrack_tcp_loose", 0),
        ):
            run("ip", "netns", "exec", self.router, "sysctl", "-qw",
                f"net.netfilter.{name}={value}")  # fmt: skip
        self._nft("add table ip translated")
        self._nft("add chain ip translated after { type nat hook postrouting priority 100; }")
        self._nft('add rule ip translated after oifname "top" masquerade')
        self._nft("add rule inet way forward ct state invalid drop")

    @contextlib.contextmanager
    def serving_as_others_do(self, url: str) -> Iterator[None]:
        """Until the end, whoever connects to that port reaches a relay whose packets are full.

        As a balancer of somebody else's in front of the Platform would be.
        """
        port, relay = int(url.rpartition(":")[2]), 18_444
        rules = (
            "add table inet other; "
            "add chain inet other before { type nat hook prerouting priority -100; }; "
            f"add rule inet other before tcp dport {port} redirect to :{relay}"
        )
        process = subprocess.Popen(
            [*self.in_platform, sys.executable, "-c", _RELAY, str(relay), str(port)],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            run(*self.in_platform, "nft", rules)
            yield
        finally:
            process.kill()
            process.communicate()

    def move_platform(self) -> None:
        """The Platform has another address, and its name leads there."""
        run(*self.in_platform, "ip", "addr", "del", f"{PLATFORM_IPV4}/24", "dev", "cable")
        run(*self.in_platform, "ip", "addr", "add", f"{MOVED_IPV4}/24", "dev", "cable")
        run(*self.in_platform, "ip", "route", "replace", "default", "via", "10.98.1.254")
        for host in (self.platform, self.machine):
            _write_names(host, ipv4=MOVED_IPV4, ipv6=None)


@contextlib.contextmanager
def joined() -> Iterator[Hosts]:
    """The three hosts for the length of a `with`; skips the test where they cannot be made."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "nft", "sysctl")):
        pytest.skip("network namespaces with a router need root, iproute2 and nft")
    number = os.getpid()
    hosts = Hosts(
        platform=f"enl-rp-{number}", router=f"enl-rr-{number}", machine=f"enl-rm-{number}"
    )
    with contextlib.ExitStack() as undo:
        for name in (hosts.platform, hosts.router, hosts.machine):
            done = subprocess.run(
                ["ip", "netns", "add", name], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"no network namespace can be made: {done.stderr.strip()}")
            undo.callback(run, "ip", "netns", "del", name)
            run("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
        for name in (hosts.platform, hosts.machine):
            folder = pathlib.Path("/etc/netns") / name
            folder.mkdir(parents=True)
            undo.callback(shutil.rmtree, folder)
            _write_names(name, ipv4=PLATFORM_IPV4, ipv6=PLATFORM_IPV6)
        _cable(hosts.router, "top", hosts.platform, network="1", end=PLATFORM_IPV4)
        _cable(hosts.router, "bottom", hosts.machine, network="2", end=MACHINE_IPV4)
        for setting in ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"):
            run("ip", "netns", "exec", hosts.router, "sysctl", "-qw", setting)
        rules = (
            "add table inet way; "
            "add chain inet way forward { type filter hook forward priority 0; }"
        )
        done = subprocess.run(
            ["ip", "netns", "exec", hosts.router, "nft", rules],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"nftables cannot be used: {done.stderr.strip()}")
        yield hosts


def _cable(router: str, port: str, host: str, *, network: str, end: str) -> None:
    run("ip", "link", "add", port, "netns", router, "type", "veth",
        "peer", "name", "cable", "netns", host)  # fmt: skip
    ends = (
        (router, port, f"10.98.{network}.254", f"fd98:{network}::fe"),
        (host, "cable", end, f"fd98:{network}::{end.rpartition('.')[2]}"),
    )
    for name, device, ipv4, ipv6 in ends:
        inside = ("ip", "netns", "exec", name, "ip")
        run(*inside, "addr", "add", f"{ipv4}/24", "dev", device)
        run(*inside, "addr", "add", f"{ipv6}/64", "dev", device, "nodad")
        run(*inside, "link", "set", "dev", device, "gso_max_segs", "1", "up")
    inside = ("ip", "netns", "exec", host, "ip")
    run(*inside, "route", "add", "default", "via", f"10.98.{network}.254")
    run(*inside, "-6", "route", "add", "default", "via", f"fd98:{network}::fe")


def _write_names(host: str, *, ipv4: str, ipv6: str | None) -> None:
    """In place: a program that runs there sees this very file."""
    lines = ["127.0.0.1 localhost", *([f"{ipv6} {PLATFORM_NAME}"] if ipv6 else [])]
    lines.append(f"{ipv4} {PLATFORM_NAME}")
    (pathlib.Path("/etc/netns") / host / "hosts").write_text("\n".join([*lines, ""]))


def until(true: Callable[[], bool], *, seconds: float, said: Callable[[], object]) -> float:
    """Looks again and again; gives how long it took, and fails with what `said` gives."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, said()
        time.sleep(_PAUSE_SECONDS)
    return time.monotonic() - began


def run(*command: str) -> None:
    """Runs one tool; it must succeed."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, (command, done.stderr)
