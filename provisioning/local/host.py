"""What is done with local machines as root: made, listed, rebooted, shown, deleted. Blocking.

Every call may be repeated, and whoever was killed in the middle is finished by the same call. The
driver calls it in its own process where that is root's, and else through the root helper, which
calls it too; both see the same folder.

Known limit: calls of one host take turns; each is short, since a keeper does what takes time.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from provisioning.local import bridge, disk, keeper, launching, machines, programs
from runtime_kit import private_files

MOST_CONSOLE_BYTES: Final = 16_384
WATCHERS: Final = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
WATCHERS_EACH: Final = 10
"""A container of Debian 12 has eight or nine open, this host itself some; all count together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where machines and images lie, and which bridge they are on."""

    folder: pathlib.Path = machines.FOLDER
    images: pathlib.Path = machines.IMAGES
    bridge: str = bridge.NAME


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A machine and what it is doing (`keeper.Phase`); `detail` is what it died of."""

    machine: machines.Machine
    phase: str
    detail: str = ""


class NoRoom(machines.Unusable):
    """This host has as many machines as it may."""


class Taken(machines.Unusable):
    """A machine of that name is there, and is another operation's."""


class Host:
    """The machines of this host."""

    def __init__(
        self,
        places: Places,
        *,
        launcher: launching.Launcher | None = None,
        network: bridge.Network | None = None,
    ) -> None:
        self._places = places
        self._launcher = launcher or launching.of_this_host()
        self._network = network or bridge.Bridge(places.bridge)

    def create(self, wish: machines.Wish, *, now: datetime.datetime) -> Seen:
        """Makes it and has it start; one that is there already is given as it is.

        Raises `Unusable`, `Failed`, and `OSError`.
        """
        machines.check(wish)
        with self._turn():
            folder = self._places.folder / wish.name
            found = machines.read(folder)
            if found is None:
                found = self._make(wish, now=now)
            elif found.owner != wish.owner:
                raise Taken(f"The machine {wish.name} of this host is another operation's.")
            if not found.is_deleting and not (folder / keeper.STATE).exists():
                self._start(folder, machine=found)
            return self._seen(found)

    def find(self, name: str) -> Seen | None:
        """One machine; None where there is none."""
        machine = machines.read(self._places.folder / machines.check_name(name))
        return None if machine is None else self._seen(machine)

    def all(self) -> list[Seen]:
        """All of them."""
        return [self._seen(machine) for machine in machines.all_in(self._places.folder)]

    def reboot(self, name: str) -> bool:
        """Restarts it, or starts it where it is off; False where there is none."""
        with self._turn():
            folder = self._places.folder / machines.check_name(name)
            machine = machines.read(folder)
            if machine is None or machine.is_deleting:
                return False
            pid = launching.keeper_of(folder)
            if pid is not None and self._launcher.is_alive(folder):
                os.kill(pid, signal.SIGUSR1)
            else:
                self._start(folder, machine=machine)
            return True

    def delete(self, name: str) -> bool:
        """Ends it and removes all of it; False where there was none."""
        with self._turn():
            folder = self._places.folder / machines.check_name(name)
            machine = machines.read(folder)
            self._forget_half_made(name)
            if machine is None:
                return False
            if not machine.is_deleting:
                machines.write(folder, dataclasses.replace(machine, is_deleting=True))
            self._launcher.end(folder)
            _remove(folder)
            if not machines.all_in(self._places.folder):
                self._network.remove_if_unused()
            return True

    def console(self, name: str) -> str | None:
        """The end of what it showed."""
        path = self._places.folder / machines.check_name(name) / keeper.CONSOLE
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - MOST_CONSOLE_BYTES))
                return file.read(MOST_CONSOLE_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return None

    def _make(self, wish: machines.Wish, *, now: datetime.datetime) -> machines.Machine:
        present = machines.all_in(self._places.folder)
        _require_room(wish.kind, present=present)
        network = machines.check_network(wish.network)
        self._network.ensure(network)
        self._forget_half_made(wish.name)
        machine = machines.Machine(
            kind=wish.kind,
            name=wish.name,
            owner=wish.owner,
            size=wish.size,
            image=wish.image,
            network=wish.network,
            address=machines.free_address(network, taken=frozenset(one.address for one in present)),
            created_at=now,
        )
        aside = self._places.folder / machines.aside_of(wish.name)
        aside.mkdir(0o700)
        private_files.write_private(aside / disk.USER_DATA, wish.first_boot.encode("ascii"))
        machines.write(aside, machine)
        aside.rename(self._places.folder / wish.name)  # fails where the name is taken
        private_files.sync_folder(self._places.folder)
        return machine

    def _start(self, folder: pathlib.Path, *, machine: machines.Machine) -> None:
        command = [
            # The disk is mounted for the keeper and its machine alone, and is gone with them.
            *("unshare", "--mount", "--propagation=private"),
            *(sys.executable, "-I", "-m", "provisioning.local.keeper", "--folder", str(folder)),
            *("--images", str(self._places.images), "--bridge", self._places.bridge),
        ]
        self._launcher.start(folder, command, size=machines.SIZES[machine.size])

    def _seen(self, machine: machines.Machine) -> Seen:
        folder = self._places.folder / machine.name
        phase, detail = keeper.Phase.PREPARING, ""
        with contextlib.suppress(FileNotFoundError, ValueError):
            said = json.loads(private_files.read_bounded(folder / keeper.STATE, max_bytes=8192))
            phase, detail = str(said["phase"]), str(said["detail"])
        is_held = phase in (keeper.Phase.PREPARING, keeper.Phase.RUNNING)
        if is_held and (folder / keeper.STATE).exists() and not self._launcher.is_alive(folder):
            phase = keeper.Phase.OFF  # its keeper was killed, or this host restarted
        return Seen(machine=machine, phase=phase, detail=detail)

    def _forget_half_made(self, name: str) -> None:
        shutil.rmtree(self._places.folder / machines.aside_of(name), ignore_errors=True)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        self._places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._places.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _remove(folder: pathlib.Path) -> None:
    """All but the file that says what it is, then that, then the folder."""
    for entry in list(folder.iterdir()):
        if entry.name == machines.RECORD:
            continue
        if entry.is_dir() and not entry.is_symlink():
            programs.remove_tree(entry)
        else:
            entry.unlink(missing_ok=True)
    (folder / machines.RECORD).unlink(missing_ok=True)
    folder.rmdir()


def room(kind: machines.Kind, *, present: Sequence[machines.Machine]) -> int:
    """How many more of that kind this host lets be, beside those that are here."""
    by_count = machines.MOST_MACHINES - len(present)
    if kind is not machines.Kind.NSPAWN:
        return by_count
    containers = sum(machine.kind is machines.Kind.NSPAWN for machine in present)
    return min(by_count, _most_containers() - containers)


def _most_containers() -> int:
    """What the kernel lets boot: its limit is one user's, and all containers are one to it.

    Beyond it systemd in a machine ends at its start: "Too many open files".
    """
    try:
        return int(WATCHERS.read_text()) // WATCHERS_EACH
    except (OSError, ValueError):  # a kernel that does not tell
        return machines.MOST_MACHINES


def _require_room(kind: machines.Kind, *, present: Sequence[machines.Machine]) -> None:
    if room(kind, present=present) > 0:
        return
    if len(present) >= machines.MOST_MACHINES:
        raise NoRoom(f"This host has {len(present)} machines, and no more are made.")
    raise NoRoom(
        f"This host's kernel lets {_most_containers()} containers run at once, and they are here. "
        "Raise its limit of inotify instances: sysctl -w fs.inotify.max_user_instances=1024"
    )


def missing_programs(kind: machines.Kind) -> tuple[str, ...]:
    """Packages that this host lacks for that kind of machine."""
    needed = programs.NEEDED if kind is machines.Kind.NSPAWN else programs.NEEDED_FOR_QEMU
    return programs.missing(needed)
