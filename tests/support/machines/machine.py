"""One machine: a disk over the image, a cable, a power switch, and commands run as on its console.

The disk is an overlay on a tmpfs of its own, so it can be filled without filling the host's, and
is gone at once. The machine lives in control groups of its own: two systemd in one group would
take each other's services for theirs.

Known limits: see the package. Ordinary shutdown is `power_off`; `cut_power` is kill -9 of it all.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from tests.support.machines import images, tree
from tests.support.machines import site as sites

BOOT_SECONDS = 90.0
COMMAND_SECONDS = 60.0
PACE_SECONDS = 0.05
DISK_MEGABYTES = 1024
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command on the machine ended."""

    code: int
    out: str
    err: str


Placing = AbstractContextManager["Machine"]


class CommandFailed(AssertionError):
    """A command on a machine ended otherwise than the test says it does."""


class Machine:
    """A machine of a site; `placed` makes one and always takes it away."""

    def __init__(
        self,
        site: sites.Site,
        *,
        name: str,
        number: int,
        lower: Sequence[pathlib.Path],
        options: Sequence[str] = (),
        surroundings: Mapping[str, str] | None = None,
    ) -> None:
        self.site = site
        self.name = name
        self.number = number
        self.lower = tuple(lower)
        self.options = tuple(options)
        self.surroundings = dict(surroundings or {})
        self.folder = site.folder / name
        self.disk = self.folder / "disk"
        self.upper = self.disk / "upper"
        self.root = self.folder / "root"
        self.console = self.folder / "console.log"
        self.boots = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    @property
    def address(self) -> str:
        """Its IPv4 address on the switch."""
        return f"{sites.NETWORK_IPV4}.{self.number}"

    # --- its disk ----------------------------------------------------------------------------

    def assemble(self, *, megabytes: int = DISK_MEGABYTES) -> None:
        """Makes the disk, with the network's settings and an empty NoCloud seed on it."""
        for folder in (self.disk, self.root):
            folder.mkdir(parents=True)
        sites.run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "enlist-machine",
                  str(self.disk))  # fmt: skip
        for folder in (self.upper, self.disk / "work"):
            folder.mkdir()
        layers = ":".join(str(layer) for layer in self.lower)
        sites.run("mount", "-t", "overlay", "overlay", "-o",
                  f"lowerdir={layers},upperdir={self.upper},workdir={self.disk / 'work'}",
                  str(self.root))  # fmt: skip
        self.write("/etc/hostname", f"{self.name}\n")
        self.write(
            "/etc/systemd/network/10-host0.network",
            "[Match]\nName=host0 en*\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
            f"Address={self.address}/24\nAddress={sites.NETWORK_IPV6}:{self.number}/64\n"
            f"Gateway={sites.NETWORK_IPV4}.1\n",
        )
        self.seed("#cloud-config\n{}\n")

    def dismantle(self) -> None:
        """Cuts the power and gives the disk back."""
        self.cut_power()
        for mount in (self.root, self.disk):
            if mount.is_mount():
                sites.run("umount", "--lazy", str(mount))

    def seed(self, user_data: str, *, instance: str | None = None) -> None:
        """Lays the NoCloud seed that cloud-init reads at the next boot."""
        instance = instance or f"i-{self.name}"
        folder = "/var/lib/cloud/seed/nocloud"
        self.write(f"{folder}/user-data", user_data, mode=0o600)
        self.write(f"{folder}/meta-data", f"instance-id: {instance}\nlocal-hostname: {self.name}\n")

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644) -> None:
        """Lays a file on the disk, running or not; folders above it are made."""
        target = self._on_disk(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def read(self, path: str) -> str:
        """A file of the disk as text; not one on a tmpfs of the machine's."""
        return self._on_disk(path).read_text()

    def has(self, path: str) -> bool:
        """Whether the disk has something of that name."""
        return os.path.lexists(self._on_disk(path))

    def written(self) -> dict[str, tree.Entry]:
        """Everything on the disk that is not as in the image."""
        return tree.differences(upper=self.upper, image=self.lower[-1])

    def _on_disk(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")

    # --- power and cable ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the power is on."""
        return self._process is not None and self._process.poll() is None

    def start(self, *options: str, plugged: bool = True) -> None:
        """Presses the power button; returns at once. `options` go to systemd-nspawn."""
        assert self._process is None, f"{self.name} is running already"
        groups = self.site.control_groups(self.name)
        for group in groups:
            sites.end_group(group)
            group.mkdir()
        enter = "".join(f"echo $$ >{group}/cgroup.procs; " for group in groups)
        command = [
            *("setpriv", "--pdeathsig", "KILL", "sh", "-c", enter + 'exec "$@"', "sh"),
            *self.site.in_network,
            *("systemd-nspawn", "--quiet", f"--directory={self.root}", "--boot"),
            *("--register=no", "--keep-unit", "--network-veth", f"--machine={self.name}"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no"),
            *("--console=read-only", *self.options, *options),
        ]
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={
                    "PATH": PATH,
                    "LC_ALL": "C.UTF-8",
                    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
                    **self.surroundings,
                },
            )
        self.boots += 1
        self._leader = 0
        if plugged:
            self.plug()

    @property
    def process_id(self) -> int:
        """The process that holds the machine, as the host counts."""
        assert self._process is not None
        return self._process.pid

    def boot(self, *options: str, plugged: bool = True) -> str:
        """Starts it and waits until systemd has done all there was to do; returns its verdict."""
        self.start(*options, plugged=plugged)
        return self.wait_booted()

    def wait_booted(self, *, seconds: float = BOOT_SECONDS) -> str:
        """Waits until every start job is done; `running`, or `degraded` where a unit failed."""
        deadline = time.monotonic() + seconds
        while True:
            self._find_leader(deadline)
            left = max(1.0, deadline - time.monotonic())
            done = self.attempt("systemctl", "is-system-running", "--wait", seconds=left)
            verdict = done.out.strip()
            if verdict in {"running", "degraded"}:
                return verdict
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} was {verdict or done.err} after {seconds} s.")
            time.sleep(PACE_SECONDS)

    def let_run(self, seconds: float, *, since: float | None = None) -> None:
        """Leaves it alone for that long, where the time itself is what a test is about."""
        began = time.monotonic() if since is None else since
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def cut_power(self) -> None:
        """Ends all of it at once, as by a pulled plug; the disk stays. Repeatable."""
        for group in self.site.control_groups(self.name):
            kill_file = group / "cgroup.kill"
            if kill_file.exists():
                kill_file.write_text("1")
            sites.end_group(group)
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def power_off(self, *, seconds: float = 60) -> None:
        """Shuts it down in order."""
        assert self._process is not None
        self._find_leader(time.monotonic() + seconds)
        os.kill(self._leader, signal.SIGRTMIN + 4)  # systemd: poweroff.target
        self._process.wait(seconds)
        self.cut_power()

    def reboot(self, *options: str) -> str:
        """Shuts it down in order and boots it again over the same disk."""
        self.power_off()
        return self.boot(*options)

    def plug(self) -> None:
        """Puts the cable into the switch, as soon as there is a cable."""
        deadline = time.monotonic() + 20
        cable = f"ve-{self.name}"
        while not self._cable_exists(cable):
            if time.monotonic() > deadline or self._process is None or self._process.poll():
                raise TimeoutError(f"{self.name} did not start:\n{self.console_end()}")
            time.sleep(PACE_SECONDS)
        self.site.ip("link", "set", cable, "master", sites.SWITCH, "up")

    def unplug(self) -> None:
        """Pulls the network cable; the machine sees no carrier."""
        self.site.ip("link", "set", f"ve-{self.name}", "nomaster", "down")

    def _cable_exists(self, cable: str) -> bool:
        shown = sites.run("ip", "-n", self.site.name, "-o", "link", "show", "type", "veth")
        return f" {cable}@" in shown

    # --- commands ----------------------------------------------------------------------------

    def attempt(
        self,
        *command: str,
        stdin: str = "",
        seconds: float = COMMAND_SECONDS,
        environment: Mapping[str, str] | None = None,
        user: str = "root",
    ) -> Ended:
        """Runs a command as that user and tells how it ended, whatever that is."""
        with self.started(*command, environment=environment, user=user) as process:
            try:
                out, err = process.communicate(stdin.encode(), timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise CommandFailed(
                    f"{self.name}: {command} took over {seconds} s:\n{_ends(out, err)}"
                ) from None
        return Ended(
            code=process.returncode,
            out=out.decode(errors="replace"),
            err=err.decode(errors="replace"),
        )

    def run(
        self,
        *command: str,
        stdin: str = "",
        seconds: float = COMMAND_SECONDS,
        environment: Mapping[str, str] | None = None,
        user: str = "root",
        expect: int = 0,
    ) -> str:
        """Runs a command that must end with that code; returns its standard output."""
        done = self.attempt(
            *command, stdin=stdin, seconds=seconds, environment=environment, user=user
        )
        if done.code != expect:
            raise CommandFailed(
                f"{self.name}: {command} ended with {done.code}, not {expect}:\n"
                f"{_ends(done.out.encode(), done.err.encode())}"
            )
        return done.out

    def shell(self, script: str, **how: object) -> str:
        """Runs lines of shell that must all succeed; returns their standard output."""
        return self.run("sh", "-euc", script, **how)  # type: ignore[arg-type]

    def document(self, *command: str, seconds: float = COMMAND_SECONDS) -> dict[str, object]:
        """What a command prints as one JSON document."""
        found = json.loads(self.run(*command, seconds=seconds))
        assert isinstance(found, dict)
        return found

    @contextlib.contextmanager
    def started(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        user: str = "root",
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A running command of the machine's; gone at the end of the block."""
        self._find_leader(time.monotonic() + BOOT_SECONDS)
        home = {} if user == "root" else {"HOME": f"/home/{user}", "USER": user}
        surroundings = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **home}
        become = () if user == "root" else ("runuser", "-u", user, "--")
        with subprocess.Popen(
            ["nsenter", f"--target={self._leader}", "--all", "--wdns=/", *become, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**surroundings, **(environment or {})},
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def until(self, *command: str, seconds: float = COMMAND_SECONDS) -> float:
        """Runs a command again and again until it succeeds; returns the seconds it took."""
        started = time.monotonic()
        while (done := self.attempt(*command)).code != 0:
            if time.monotonic() - started > seconds:
                raise TimeoutError(
                    f"{self.name}: {command} did not succeed within {seconds} s:\n"
                    f"{_ends(done.out.encode(), done.err.encode())}"
                )
            time.sleep(PACE_SECONDS)
        return time.monotonic() - started

    def journal(self, unit: str = "", *, lines: int = 60) -> str:
        """The end of the machine's journal, of one unit or all."""
        only = ("--unit", unit) if unit else ()
        return self.attempt("journalctl", "--no-pager", "-q", "-n", str(lines), *only).out

    def console_end(self, *, most_bytes: int = 4000) -> str:
        """The end of what the console showed."""
        return self.console.read_bytes()[-most_bytes:].decode(errors="replace")

    def _find_leader(self, deadline: float) -> None:
        """The machine's process 1, as the host counts."""
        while not self._leader:
            if self._process is None or self._process.poll() is not None:
                raise CommandFailed(f"{self.name} is not running:\n{self.console_end()}")
            pid = self._process.pid
            for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(OSError):
                    status = pathlib.Path(f"/proc/{child}/status").read_text()
                    if "\nName:\tsystemd\n" in f"\n{status}" and "\t1\n" in status:
                        self._leader = int(child)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} has no process 1:\n{self.console_end()}")
            if not self._leader:
                time.sleep(PACE_SECONDS)


@contextlib.contextmanager
def placed(
    site: sites.Site,
    name: str,
    *,
    number: int,
    release: str = "bookworm",
    layers: Sequence[pathlib.Path] = (),
    options: Sequence[str] = (),
    megabytes: int = DISK_MEGABYTES,
    kernel: bool = False,
    surroundings: Mapping[str, str] | None = None,
) -> Iterator[Machine]:
    """A machine, off, for the length of a `with`; `layers` lie over the image, top first.

    `surroundings` are further variables of systemd-nspawn's own.
    """
    lower = [*layers, images.ensure_image(release, kernel=kernel)]
    machine = Machine(
        site, name=name, number=number, lower=lower, options=options, surroundings=surroundings
    )
    try:
        machine.assemble(megabytes=megabytes)
        yield machine
    finally:
        machine.dismantle()


def copy_owned(folder: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a folder with owners and modes."""
    sites.run("cp", "--archive", str(folder), str(target))


def _ends(out: bytes, err: bytes, *, most: int = 3000) -> str:
    return f"{out[-most:].decode(errors='replace')}\n--\n{err[-most:].decode(errors='replace')}"
