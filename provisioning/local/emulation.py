"""Holds one machine that has a kernel of its own: QEMU without any help of the processor.

The disk is a file made once from the image, with the seed on it as in a container. QEMU is started
as an account of the machine's own, which is nobody on this host, can gain nothing and may start no
program: what only root can open (the tap device, the line to its monitor) is opened here and handed
over, and its folder belongs to root.

Known limit: minutes where a container takes seconds; a reset is a power cut, and so is a shutdown
that takes longer than the keeper waits.
"""

import contextlib
import fcntl
import ipaddress
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from typing import Final

from provisioning.local import disk, images, machines, programs

PLACE: Final = "emulator"
DISK: Final = "disk.img"
FIRST_UID: Final = images.FIRST_UID + images.UIDS
"""The first of 65,536 accounts after those of containers: one a machine, by its address."""
SANDBOX: Final = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_KERNEL_LINE: Final = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=1"
_TUN: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h, as are the three flags: TAP, NO_PI, VNET_HDR
_TAP: Final = 0x0002 | 0x1000 | 0x4000
_ASK_SECONDS: Final = 5.0


class Emulated:
    """A runner, see `keeper`."""

    def __init__(
        self, folder: pathlib.Path, *, machine: machines.Machine, image: pathlib.Path, bridge: str
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._image = image
        self._bridge = bridge
        self._size = machines.SIZES[machine.size]
        self._monitor: socket.socket | None = None
        self._handed: list[int] = []

    @property
    def place(self) -> pathlib.Path:
        """Where QEMU runs: root's, with the disk's file as all that the machine can change."""
        return self._folder / PLACE

    def prepare(self) -> None:
        """The disk's file, renamed when it is whole, with the kernel beside it."""
        finished = self.place / DISK
        if finished.exists():
            self._clear()  # of what was cut off between the two
            return
        disk.assemble(self._folder, machine=self._machine, image=self._image, owner=0)
        root = self._folder / disk.ROOT
        self.place.mkdir(mode=0o755, exist_ok=True)
        self.place.chmod(0o755)
        for wanted in ("vmlinuz", "initrd"):
            target = self.place / wanted
            shutil.copy(max((root / "boot").glob(f"{wanted}*")), target)
            target.chmod(0o644)
        aside = self.place / f".{DISK}"
        with aside.open("wb") as file:
            file.truncate(self._size.disk_gigabytes * 1_000_000_000)
        programs.run("mkfs.ext4", "-q", "-F", "-d", str(root), str(aside), seconds=600)
        account = account_of(self._machine)
        os.chown(aside, account, account)
        aside.chmod(0o600)
        aside.rename(finished)
        self._clear()

    def _clear(self) -> None:
        """What the disk was made from goes: it holds what first boot was given."""
        if disk.is_mounted(self._folder):
            programs.run("umount", "--lazy", str(self._folder / disk.ROOT))
        for left in (disk.ROOT, disk.UPPER, disk.WORK):
            programs.remove_tree(self._folder / left)

    def command(self) -> Sequence[str]:
        """QEMU of this host's own architecture, with a new cable and a new line to its monitor."""
        self.close()
        digits = self._machine.name[-6:]
        mac = ":".join(["02", "00", "00", *(digits[at : at + 2] for at in (0, 2, 4))])
        account = str(account_of(self._machine))
        cable = self._plug_in()
        self._monitor, theirs = socket.socketpair()
        self._handed.append(theirs.detach())
        return [
            *("setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups"),
            *("--inh-caps=-all", "--no-new-privs", "--"),
            *(f"qemu-system-{os.uname().machine}", "-accel", "tcg,thread=multi,tb-size=64"),
            *("-sandbox", SANDBOX),
            *("-smp", str(self._size.cores), "-m", str(self._size.memory_megabytes)),
            *("-nodefaults", "-display", "none", "-name", self._machine.name),
            *("-kernel", "vmlinuz", "-initrd", "initrd", "-append", _KERNEL_LINE),
            *("-serial", "stdio", "-chardev", f"socket,id=control,fd={self._handed[-1]}"),
            *("-mon", "chardev=control,mode=control"),
            *("-drive", f"file={DISK},if=virtio,format=raw"),
            *("-netdev", f"tap,id=cable,fd={cable}"),
            *("-device", f"virtio-net-pci,netdev=cable,mac={mac}"),
            *("-device", "virtio-rng-pci"),
        ]

    @property
    def monitor(self) -> socket.socket | None:
        """The line to the monitor of what was started last; its own words are on it."""
        return self._monitor

    @property
    def handed(self) -> Sequence[int]:
        """The cable's end and the monitor's; they are QEMU's alone once it runs."""
        return tuple(self._handed)

    def started(self) -> None:
        """Lets go of them, so that the cable ends with QEMU."""
        while self._handed:
            os.close(self._handed.pop())

    def close(self) -> None:
        """Lets go of all that a former boot had."""
        self.started()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def ask(self, process: "subprocess.Popen[bytes]", *, again: bool) -> bool:
        """As by its power button; whoever wants it again starts it again."""
        del process, again
        if self._monitor is None:
            return False
        self._monitor.settimeout(_ASK_SECONDS)
        try:
            for verb in ("qmp_capabilities", "system_powerdown"):
                self._monitor.sendall(json.dumps({"execute": verb}).encode())
        except OSError:
            return False
        return True

    def _plug_in(self) -> int:
        """A tap device in the bridge, which is there as long as somebody holds it open."""
        name = f"en{self._machine.name[-10:]}"
        with contextlib.ExitStack() as undo:
            cable = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, cable)
            fcntl.ioctl(cable, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP))
            programs.run("ip", "link", "set", name, "master", self._bridge, "up")
            undo.pop_all()
        self._handed.append(cable)
        return cable


def account_of(machine: machines.Machine) -> int:
    """The user that its QEMU runs as; no other machine of this host has it, by its address."""
    return FIRST_UID + (int(ipaddress.IPv4Address(machine.address)) & 0xFFFF)
