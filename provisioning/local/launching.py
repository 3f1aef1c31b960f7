"""Starts a machine's keeper so that it outlives whoever asked, and ends all of a machine at once.

Where systemd runs this host, a keeper is a transient unit with the limits of the machine's size;
elsewhere (a container without systemd, a test) a process in a session of its own, and the machine
in control groups of its own, without limits. Either way the name is the machine's.

Known limit: transient units do not come back after this host was restarted; `reboot` starts them.
"""

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from provisioning.local import machines, programs

PREFIX: Final = "enlist-machine-"
PID_FILE: Final = "keeper.pid"
LOG: Final = "keeper.log"
END_SECONDS: Final = 20.0
_PACE_SECONDS: Final = 0.05
_TASKS: Final = 4096
_SYSTEMD: Final = pathlib.Path("/run/systemd/system")


class Launcher(Protocol):
    """How keepers are started and ended on this host."""

    def start(self, folder: pathlib.Path, command: Sequence[str], *, size: machines.Size) -> None:
        """Starts the keeper of that folder's machine; returns once it runs."""
        ...

    def is_alive(self, folder: pathlib.Path) -> bool:
        """Whether its keeper runs."""
        ...

    def end(self, folder: pathlib.Path) -> None:
        """Ends keeper and machine at once; may be repeated."""
        ...


def of_this_host() -> Launcher:
    """The one that fits."""
    return Units() if _SYSTEMD.is_dir() else Processes()


def unit_of(name: str) -> str:
    """The unit and control group of a machine."""
    return f"{PREFIX}{name}.service"


class Units:
    """Transient units of the service manager."""

    def start(self, folder: pathlib.Path, command: Sequence[str], *, size: machines.Size) -> None:
        """Starts it; a former one of that name has been collected."""
        limits = {
            "Delegate": "yes",
            "KillMode": "mixed",
            "TimeoutStopSec": "60",
            "TasksMax": str(_TASKS),
            "MemoryMax": f"{size.memory_megabytes + 256}M",  # the keeper and nspawn beside it
            "CPUQuota": f"{size.cores * 100}%",
        }
        properties = [f"--property={name}={value}" for name, value in limits.items()]
        programs.run(
            *("systemd-run", "--quiet", "--collect", f"--unit={unit_of(folder.name)}"),
            *("--service-type=exec", *properties, "--", *command),
        )

    def is_alive(self, folder: pathlib.Path) -> bool:
        """What the service manager says."""
        return programs.is_well("systemctl", "is-active", "--quiet", unit_of(folder.name))

    def end(self, folder: pathlib.Path) -> None:
        """Kills all of the unit, then has it forgotten."""
        unit = unit_of(folder.name)
        for words in (["kill", "--signal=KILL"], ["stop"], ["reset-failed"]):
            programs.is_well("systemctl", *words, unit)  # it may be gone already
        if self.is_alive(folder):
            raise programs.Failed(f"{unit} does not end.")


class Processes:
    """A session and control groups of its own, where no service manager is."""

    def start(self, folder: pathlib.Path, command: Sequence[str], *, size: machines.Size) -> None:
        """Starts it as nobody's child; it writes its process id itself."""
        del size  # no limits without a service manager
        (folder / PID_FILE).unlink(missing_ok=True)
        programs.detach(*command, log=folder / LOG)
        deadline = time.monotonic() + END_SECONDS
        while not self.is_alive(folder):
            if time.monotonic() > deadline:
                raise programs.Failed(f"The keeper of {folder.name} did not start.")
            time.sleep(_PACE_SECONDS)

    def is_alive(self, folder: pathlib.Path) -> bool:
        """Whether that very process lives."""
        return keeper_of(folder) is not None

    def end(self, folder: pathlib.Path) -> None:
        """Kills the keeper, which would start the machine anew, then the machine."""
        pid = keeper_of(folder)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # with what it runs to build an image
            _wait(lambda: keeper_of(folder) is None, what=f"The keeper of {folder.name}")
        for group in groups_of(folder.name):
            end_group(group)


def keeper_of(folder: pathlib.Path) -> int | None:
    """The process id of the machine's keeper, if that very process lives."""
    try:
        said = (folder / PID_FILE).read_text()
    except OSError:
        return None
    pid = int(said.split()[0]) if said.strip() else 0
    return pid if pid and identity(pid) == said.strip() else None


def identity(pid: int) -> str:
    """A process id with its start, since ids return; empty for none and for a dead one."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{pid} {fields[19]}"


def groups_of(name: str) -> list[pathlib.Path]:
    """The machine's control groups, one in each hierarchy that a systemd inside uses.

    Below the keeper's own unit where it has one, which delegates them.
    """
    own = unit_of(name)
    found = []
    for root, kind in _hierarchies():
        inside = _own_group(kind)
        found.append(root / inside / "machine" if inside.endswith(own) else root / own)
    return found


def end_group(group: pathlib.Path) -> None:
    """Ends every process of a control group at once and removes it; bounded, and repeatable."""
    if not group.is_dir():
        return
    folders = [*sorted(group.rglob("*/"), key=lambda found: -len(found.parts)), group]
    _wait(lambda: not _kill_all(folders), what=f"The control group {group.name}")
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()


def _kill_all(folders: Sequence[pathlib.Path]) -> bool:
    """Kills whoever is in there; whether there was anybody."""
    anybody = False
    for folder in folders:
        try:
            pids = (folder / "cgroup.procs").read_text().split()
        except OSError:
            continue
        for pid in pids:
            if identity(int(pid)):
                anybody = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    return anybody


def _wait(done: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise programs.Failed(f"{what} does not end.")
        time.sleep(_PACE_SECONDS)


def _hierarchies() -> list[tuple[pathlib.Path, str]]:
    """The mounted ones in which systemd keeps its units: version 2, and 1 by name."""
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.append((pathlib.Path(where), "0::"))
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            found.append((pathlib.Path(where), ":name=systemd:"))
    return found


def _own_group(kind: str) -> str:
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith(kind) or kind in line[:20]:
            return line.split(":", 2)[2].strip("/")
    return ""
