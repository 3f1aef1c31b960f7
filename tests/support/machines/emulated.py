"""A machine with a kernel of its own: the same disk and seed under QEMU, by software emulation.

The disk is a file made from a machine's folder, the seed a CD labelled `cidata`, as at providers
and on virtual machines at home; the cable goes into the same switch. It is slow (minutes, not
seconds) and for that reason belongs to the long tests.

Known limit: nothing can be run on it from outside; what it does is seen by its console and by the
Platform.
"""

import contextlib
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

from tests.support.machines import machine as machine_kit
from tests.support.machines import site as sites

PROGRAMS = ("qemu-system-x86_64", "genisoimage", "mkfs.ext4")
DISK_MEGABYTES = 3072
MEMORY_MEGABYTES = 1024
COMMAND_LINE = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=1"


def why_not() -> str | None:
    """Why no machine can be emulated here; None where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"emulation needs {', '.join(missing)}: apt-get install qemu-system-x86 genisoimage"
    if not pathlib.Path("/dev/net/tun").exists():
        return "emulation needs /dev/net/tun"
    return None


class Emulated:
    """One such machine, made from an assembled one whose image holds a kernel."""

    def __init__(self, origin: machine_kit.Machine, *, user_data: str) -> None:
        self.site = origin.site
        self.name = origin.name
        self.folder = origin.folder
        self.console = origin.folder / "emulated.log"
        self._number = origin.number
        self._process: subprocess.Popen[bytes] | None = None
        self._make_disk(origin)
        self._make_seed(user_data)

    def start(self) -> None:
        """Presses the power button; returns at once."""
        assert self._process is None
        cable = self._cable()
        command = [
            *("setpriv", "--pdeathsig", "KILL", *self.site.in_network),
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp", "2"),
            *("-m", str(MEMORY_MEGABYTES), "-nodefaults", "-no-reboot", "-display", "none"),
            *("-kernel", str(self.folder / "vmlinuz"), "-initrd", str(self.folder / "initrd")),
            *("-append", COMMAND_LINE, "-serial", f"file:{self.console}"),
            *("-drive", f"file={self.folder / 'disk.img'},if=virtio,format=raw"),
            *("-drive", f"file={self.folder / 'seed.iso'},if=virtio,format=raw,readonly=on"),
            *("-netdev", f"tap,id=cable,ifname={cable},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=cable,mac=02:00:00:00:98:{self._number:02x}"),
            *("-device", "virtio-rng-pci"),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": machine_kit.PATH},
        )

    def cut_power(self) -> None:
        """Ends it at once; what the guest had not synced is lost, as it would be. Repeatable."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def console_end(self, *, most_bytes: int = 4000) -> str:
        """The end of what the console showed."""
        return self.console.read_bytes()[-most_bytes:].decode(errors="replace")

    def _cable(self) -> str:
        name = f"tap{self._number}"
        shown = sites.run("ip", "-n", self.site.name, "-o", "link", "show")
        if f" {name}:" not in shown:
            self.site.ip("tuntap", "add", name, "mode", "tap")
            self.site.ip("link", "set", name, "master", sites.SWITCH, "up")
        return name

    def _make_disk(self, origin: machine_kit.Machine) -> None:
        for wanted in ("vmlinuz", "initrd"):
            found = sorted((origin.root / "boot").glob(f"{wanted}*"))
            shutil.copy(found[-1], self.folder / wanted)
        disk = self.folder / "disk.img"
        with disk.open("wb") as file:
            file.truncate(DISK_MEGABYTES * 1_000_000)
        sites.run("mkfs.ext4", "-q", "-F", "-d", str(origin.root), str(disk), seconds=300)

    def _make_seed(self, user_data: str) -> None:
        seed = self.folder / "seed"
        seed.mkdir()
        (seed / "user-data").write_text(user_data)
        (seed / "meta-data").write_text(
            f"instance-id: i-{self.name}\nlocal-hostname: {self.name}\n"
        )
        sites.run("genisoimage", "-quiet", "-volid", "cidata", "-joliet", "-rock",
                  "-output", str(self.folder / "seed.iso"), str(seed))  # fmt: skip


@contextlib.contextmanager
def made_from(origin: machine_kit.Machine, *, user_data: str) -> Iterator[Emulated]:
    """An emulated machine, off, for the length of a `with`."""
    shutil.rmtree(origin.root / "var/lib/cloud/seed")  # the CD is its seed
    emulated = Emulated(origin, user_data=user_data)
    try:
        yield emulated
    finally:
        emulated.cut_power()
