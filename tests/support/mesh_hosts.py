"""Hosts around one in the middle: network namespaces, each with a cable of its own to it.

For the mesh: the middle is the Platform's host, or WireGuard's hub. Needs root and iproute2;
everything is taken down at the end, processes that went into the background included.
"""

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import pytest

from runtime_kit.wireguard import programs

HUB_NAME = "p.enlist.test"

_CONTROL = pathlib.Path("/run/wireguard")
_OWN_CONTROL = f'mount --bind "$1" {_CONTROL} && shift && exec "$@"'
_HEAR_SECONDS = 3
_END_SECONDS = 20
_TRIES = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One namespace; `address` is its own on the cable, `hub` the middle's.

    wireguard-go's control sockets lie in one folder of the whole machine, where two hosts' would
    have one name: `control` is laid over it for every program of this host.
    """

    name: str
    address: str
    hub: str
    control: pathlib.Path

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command to run it there."""
        enter = ("ip", "netns", "exec", self.name)
        return (*enter, "sh", "-c", _OWN_CONTROL, "sh", str(self.control))

    def run(self, *command: str) -> str:
        """Runs a command there; it must succeed."""
        done = subprocess.run(
            [*self.inside, *command], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def interfaces(self) -> list[str]:
        """The names of its interfaces but for loopback and cables."""
        names = [
            line.split()[0].partition("@")[0] for line in self.run("ip", "-br", "link").splitlines()
        ]
        return [name for name in names if name != "lo" and not name.startswith("cable")]

    async def runner(self, *command: str, stdin: bytes = b"") -> bytes:
        """A `programs.Runner` for this host."""
        return await programs.run(*self.inside, *command, stdin=stdin)


@contextlib.contextmanager
def around_a_hub(machines: int) -> Iterator[tuple[Host, list[Host]]]:
    """The host in the middle, and as many machines; skips the test where they cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    with contextlib.ExitStack() as undo:
        hub = _new(f"enl-hub-{os.getpid()}", number=0, undo=undo)
        made = [
            _new(f"enl-h{number}-{os.getpid()}", number=number, undo=undo)
            for number in range(1, machines + 1)
        ]
        for number, machine in enumerate(made, start=1):
            cable = f"cable{number}"
            _run("ip", "link", "add", cable, "netns", hub.name, "type", "veth",
                 "peer", "name", "cable0", "netns", machine.name)  # fmt: skip
            hub.run("ip", "addr", "add", f"{machine.hub}/24", "dev", cable)
            machine.run("ip", "addr", "add", f"{machine.address}/24", "dev", "cable0")
            hub.run("ip", "link", "set", cable, "up")
            machine.run("ip", "link", "set", "cable0", "up")
        yield hub, made


def require_wireguard() -> None:
    """Skips where this machine has no WireGuard of any kind."""
    if programs.find("wg") is None:
        pytest.skip("wireguard-tools is not installed")
    if not has_kernel_kind() and programs.find("wireguard-go") is None:
        pytest.skip("the kernel has no WireGuard and wireguard-go is not installed")


def has_kernel_kind() -> bool:
    """Whether the kernel makes WireGuard interfaces; tried in a namespace that ends at once."""
    if os.geteuid() != 0:
        return False
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "dev", "wg-try", "type", "wireguard"],
        capture_output=True,
        check=False,
        timeout=20,
    )
    return tried.returncode == 0


def hears(listener: Host, *, at: str, sender: Host, source: str | None = None) -> bool:
    """Whether a datagram that the sender sends arrives at an address of the listener."""
    receiving = subprocess.Popen(
        [*listener.inside, sys.executable, "-c", _RECEIVE, at, str(_HEAR_SECONDS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert receiving.stdout is not None
        port = receiving.stdout.readline().strip()
        subprocess.run(
            [*sender.inside, sys.executable, "-c", _SEND, at, port, source or "", str(_TRIES)],
            check=False,
            timeout=30,
            capture_output=True,
        )
        said, _ = receiving.communicate(timeout=_HEAR_SECONDS * 3)
    finally:
        receiving.kill()
        receiving.wait()
    return said.strip() == "heard"


_RECEIVE = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as ear:
    ear.bind((sys.argv[1], 0))
    ear.settimeout(float(sys.argv[2]))
    print(ear.getsockname()[1], flush=True)
    try:
        ear.recvfrom(64)
        print("heard")
    except TimeoutError:
        print("nothing")
"""
_SEND = """
import contextlib, socket, sys, time
at, port, source, tries = sys.argv[1:]
family = socket.AF_INET6 if ":" in at else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as mouth:
    if source:
        mouth.bind((source, 0))
    for _ in range(int(tries)):
        with contextlib.suppress(OSError):
            mouth.sendto(b"x", (at, int(port)))
        time.sleep(0.1)
"""


def _new(name: str, *, number: int, undo: contextlib.ExitStack) -> Host:
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no network namespace can be made: {done.stderr.strip()}")
    undo.callback(_take_down, name)
    folder = pathlib.Path("/etc/netns") / name
    folder.mkdir(parents=True)
    undo.callback(shutil.rmtree, folder)
    _CONTROL.mkdir(mode=0o700, exist_ok=True)
    control = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
    undo.callback(shutil.rmtree, control)
    net = ipaddress.IPv4Network(f"10.98.{number}.0/24")
    host = Host(name=name, address=str(net[2]), hub=str(net[1]), control=control)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{host.hub} {HUB_NAME}\n")
    host.run("ip", "link", "set", "lo", "up")
    if number == 0:  # the middle reaches itself by its name, too
        host.run("ip", "addr", "add", f"{host.hub}/32", "dev", "lo")
    return host


def _take_down(name: str) -> None:
    found = subprocess.run(
        ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
    )
    for pid in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            _kill(int(pid))
    _run("ip", "netns", "del", name)


def _kill(pid: int) -> None:
    """Ends it and waits until it has ended, and lets go of its control socket and its name."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], _END_SECONDS)
    finally:
        os.close(process)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


def words_of(commands: Sequence[Sequence[str]]) -> str:
    """All arguments that were given to programs, in one text."""
    return "\n".join(" ".join(command) for command in commands)
