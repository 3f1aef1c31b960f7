"""The place where the machines of one test run stand, and the removal of whatever was left behind.

A site is a folder under /run/enlist-machines with a network namespace of the same name, in which a
switch joins the machines. The folder names its owner (process id and start time), so that a later
run finds what a killed one left, and removes it: processes, mounts, control groups, namespace.

Known limit: one switch, IPv4 and IPv6, no way out; nothing on a machine reaches the host's network.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import psutil

BASE = pathlib.Path("/run/enlist-machines")
NETWORK_IPV4, NETWORK_IPV6 = "10.98.0", "fd98:"
SWITCH = "switch"
PREFIX = "enlm-"


class Site:
    """A folder, a namespace and a switch; `opened` makes it and always takes it down."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.name = folder.name

    @property
    def in_network(self) -> tuple[str, ...]:
        """What to put before a command of the host to run it on the switch's network."""
        return ("nsenter", f"--net=/run/netns/{self.name}")

    def ip(self, *words: str) -> None:
        """Runs `ip` in the site's namespace."""
        run("ip", "-n", self.name, *words)

    def control_groups(self, machine: str) -> list[pathlib.Path]:
        """The machine's own groups, one in each hierarchy that a systemd inside will use."""
        return [root / f"{self.name}.{machine}" for root in _group_roots()]


@contextlib.contextmanager
def opened() -> Iterator[Site]:
    """A site for the length of a `with`; first removes what earlier runs left."""
    remove_leftovers()
    BASE.mkdir(mode=0o755, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=BASE))
    (folder / "owner").write_text(_identity(os.getpid()))
    site = Site(folder)
    try:
        run("ip", "netns", "add", site.name)
        site.ip("link", "set", "lo", "up")
        site.ip("link", "add", SWITCH, "type", "bridge", "forward_delay", "0")
        site.ip("addr", "add", f"{NETWORK_IPV4}.1/24", "dev", SWITCH)
        site.ip("addr", "add", f"{NETWORK_IPV6}:1/64", "dev", SWITCH, "nodad")
        site.ip("link", "set", SWITCH, "up")
        yield site
    finally:
        _remove(folder)


def remove_leftovers() -> None:
    """Removes the sites whose owner is gone."""
    for folder in BASE.glob(f"{PREFIX}*"):
        owner = folder / "owner"
        said = owner.read_text() if owner.exists() else ""
        if not said or _identity(int(said.split()[0])) != said:
            _remove(folder)


def run(*command: str, seconds: float = 30) -> str:
    """Runs a program of the host; its own words are in the error when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def end_group(group: pathlib.Path) -> None:
    """Ends every process of a control group at once and removes it; bounded, and repeatable."""
    if not group.is_dir():
        return
    for folder in [*sorted(group.rglob("*/"), key=lambda found: -len(found.parts)), group]:
        pids = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait_gone(pids)
        folder.rmdir()


def _wait_gone(pids: list[int]) -> None:
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=10)
    ghosts = [process for process in alive if _is_alive(process)]
    if ghosts:
        raise TimeoutError(f"{ghosts} did not end within 10 s of being killed.")


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _remove(folder: pathlib.Path) -> None:
    for root in _group_roots():
        for group in root.glob(f"{folder.name}.*"):
            end_group(group)
    mounts = [
        line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
    ]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        run("umount", "--lazy", mount)
    if pathlib.Path("/run/netns", folder.name).exists():
        run("ip", "netns", "del", folder.name)
    shutil.rmtree(folder)


def _group_roots() -> list[pathlib.Path]:
    """The mounted hierarchies in which systemd keeps its units: version 2, and 1 by name."""
    roots = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            roots.append(pathlib.Path(where))
    return roots


def _identity(pid: int) -> str:
    """A process id with its start time, since ids return; empty for none."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{pid} {stat.rpartition(')')[2].split()[19]}"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One run with machines at a time on this host: the second waits for the first."""
    BASE.mkdir(mode=0o755, exist_ok=True)
    with (BASE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
