"""The process that holds one machine: builds its image where it must, boots it, boots it again.

`python -I -m provisioning.local.keeper --folder DIR --images DIR --bridge NAME`, started as root by
`host` through `launching`, and nobody's child afterwards. It says in `state.json` what it is doing.
SIGUSR1 reboots the machine, SIGTERM shuts it down; killed, it leaves a disk from which it is
started again.

Known limit: what the machine shows goes to a file of at most 4 MB, of which the end counts.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final, Protocol

from provisioning.local import bridge, disk, emulation, images, launching, machines, programs
from runtime_kit import private_files

STATE: Final = "state.json"
CONSOLE: Final = "console.log"
MOST_CONSOLE_BYTES: Final = 4_000_000
REBOOTED: Final = 133  # systemd-nspawn: the machine wants to be started again
REBOOT: Final = signal.SIGRTMIN + 5
POWER_OFF: Final = signal.SIGRTMIN + 4
ORDERLY_SECONDS: Final = 45.0
_PACE_SECONDS: Final = 0.5
_BACK_SECONDS: Final = 5.0  # a machine that ends sooner than this does not boot at all
_MOST_SHORT_BOOTS: Final = 3


class Phase:
    """What `state.json` says."""

    PREPARING = "preparing"
    RUNNING = "running"
    OFF = "off"
    FAILED = "failed"


class Runner(Protocol):
    """How one kind of machine is held while it runs."""

    @property
    def place(self) -> pathlib.Path:
        """Where what `command` gives is run."""
        ...

    @property
    def handed(self) -> Sequence[int]:
        """What it is handed open, once `command` was asked for."""
        ...

    def started(self) -> None:
        """It runs, and has what it was handed."""
        ...

    def prepare(self) -> None:
        """All that has to be there before it can be started; may be repeated."""
        ...

    def command(self) -> Sequence[str]:
        """What is run for one boot."""
        ...

    def ask(self, process: "subprocess.Popen[bytes]", *, again: bool) -> bool:
        """Has it end in order, to be started `again` or not; False where it cannot be asked."""
        ...


class Nspawn:
    """A container with systemd as process 1, whose root is nobody on this host."""

    def __init__(
        self, folder: pathlib.Path, *, machine: machines.Machine, image: pathlib.Path, bridge: str
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._image = image
        self._bridge = bridge

    @property
    def place(self) -> pathlib.Path:
        """Its folder."""
        return self._folder

    @property
    def handed(self) -> Sequence[int]:
        """Nothing."""
        return ()

    def started(self) -> None:
        """Nothing was handed over."""

    def prepare(self) -> None:
        """The disk."""
        disk.assemble(
            self._folder, machine=self._machine, image=self._image, owner=images.FIRST_UID
        )

    def command(self) -> Sequence[str]:
        """systemd-nspawn, inside the machine's own control groups."""
        groups = launching.groups_of(self._machine.name)
        for group in groups:
            launching.end_group(group)
            group.mkdir(parents=True)
        enter = "".join(f"echo $$ >'{group}/cgroup.procs'; " for group in groups)
        return [
            *("sh", "-c", f'{enter}exec "$@"', "sh", "systemd-nspawn", "--quiet", "--boot"),
            *(f"--directory={self._folder / disk.ROOT}", f"--machine={self._machine.name}"),
            *("--register=no", "--keep-unit", f"--network-bridge={self._bridge}"),
            f"--private-users={images.FIRST_UID}:{images.UIDS}",
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no"),
            "--console=read-only",
        ]

    def ask(self, process: "subprocess.Popen[bytes]", *, again: bool) -> bool:
        """By a signal to process 1 of the machine, which is a child of nspawn's."""
        leader = _leader(process.pid)
        if leader is None:
            return False
        os.kill(leader, REBOOT if again else POWER_OFF)
        return True


class Keeper:
    """One machine, from its folder's file to its end."""

    def __init__(self, folder: pathlib.Path, *, runner: Runner, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._runner = runner
        self._clock = clock
        self._asked: set[int] = set()

    def ask(self, number: int, _frame: object = None) -> None:
        """A signal came."""
        self._asked.add(number)

    def run(self) -> int:
        """Boots it until it is switched off; the exit code says whether it ended well."""
        short = 0
        while True:
            self._runner.prepare()
            if signal.SIGTERM in self._asked:
                break
            self._say(Phase.RUNNING)
            began = self._clock()
            code = self._boot()
            if code != REBOOTED and signal.SIGUSR1 not in self._asked:
                break
            self._asked.discard(signal.SIGUSR1)
            short = short + 1 if self._clock() - began < _BACK_SECONDS else 0
            if short >= _MOST_SHORT_BOOTS:
                self._say(Phase.FAILED, "It reboots again and again without coming up.")
                return 1
        if self._clock() - began < _BACK_SECONDS and signal.SIGTERM not in self._asked:
            self._say(Phase.FAILED, f"It did not boot: {self._last_words()}")
            return 1
        self._say(Phase.OFF)
        return 0

    def _boot(self) -> int:
        with self._console() as console:
            command = self._runner.command()
            process = subprocess.Popen(
                command,
                cwd=self._runner.place,
                pass_fds=self._runner.handed,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={**programs.SURROUNDINGS, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )
            self._runner.started()
            deadline: float | None = None
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_PACE_SECONDS)
                if self._asked and deadline is None:
                    again = signal.SIGTERM not in self._asked
                    if self._runner.ask(process, again=again):
                        deadline = self._clock() + ORDERLY_SECONDS
                if deadline is not None and self._clock() > deadline:
                    for group in launching.groups_of(self._folder.name):
                        launching.end_group(group)
                    process.kill()
                self._cut(console)

    def _console(self) -> BinaryIO:
        descriptor = os.open(
            self._folder / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        return os.fdopen(descriptor, "wb", buffering=0)

    def _cut(self, console: BinaryIO) -> None:
        if os.fstat(console.fileno()).st_size > MOST_CONSOLE_BYTES:
            os.ftruncate(console.fileno(), 0)

    def _last_words(self) -> str:
        raw = (self._folder / CONSOLE).read_bytes()[-300:]
        return " ".join(raw.decode(errors="replace").split())

    def _say(self, phase: str, detail: str = "") -> None:
        say(self._folder, phase, detail)


def say(folder: pathlib.Path, phase: str, detail: str = "") -> None:
    """What `state.json` says from now on."""
    content = json.dumps({"phase": phase, "detail": detail})
    private_files.write_private(folder / STATE, content.encode())


def main(arguments: Sequence[str]) -> int:
    """Holds the machine of one folder."""
    parser = argparse.ArgumentParser(prog="python -I -m provisioning.local.keeper")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--images", type=pathlib.Path, required=True)
    parser.add_argument("--bridge", default=bridge.NAME)
    given = parser.parse_args(arguments)
    folder: pathlib.Path = given.folder
    pid = os.getpid()
    private_files.write_private(folder / launching.PID_FILE, launching.identity(pid).encode())
    machine = machines.read(folder)
    if machine is None or machine.is_deleting:
        return 0
    say(folder, Phase.PREPARING)
    try:
        image = images.ensure(machine.image, kind=machine.kind, images=given.images)
        bridge.Bridge(given.bridge).ensure(machines.check_network(machine.network))
        runner = _runner(folder, machine=machine, image=image, bridge_name=given.bridge)
        keeper = Keeper(folder, runner=runner, clock=time.monotonic)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, keeper.ask)
        return keeper.run()
    except (images.BuildFailed, programs.Failed, machines.Unusable, OSError) as error:
        say(folder, Phase.FAILED, str(error)[:1000])
        return 1


def _runner(
    folder: pathlib.Path, *, machine: machines.Machine, image: pathlib.Path, bridge_name: str
) -> Runner:
    if machine.kind is machines.Kind.NSPAWN:
        return Nspawn(folder, machine=machine, image=image, bridge=bridge_name)
    return emulation.Emulated(folder, machine=machine, image=image, bridge=bridge_name)


def _leader(pid: int) -> int | None:
    """Process 1 of the machine that this nspawn holds, as the host counts."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            status = pathlib.Path(f"/proc/{child}/status").read_text()
            inside = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
            if inside.split()[-1:] == ["1"]:
                return int(child)
    except OSError:
        return None
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
