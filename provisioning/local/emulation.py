"""Holds one machine that has a kernel of its own: QEMU without any help of the processor.

The disk is a file made once from the image, with the seed on it as in a container. The cable is a
tap device that QEMU makes and that ends with it; a script of ours puts it into the bridge.

Known limits: minutes where a container takes seconds, and a reset is a power cut; QEMU runs as root
and without a sandbox, so only a Platform that root runs holds one, and its root helper does not.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Final

from provisioning.local import disk, machines, programs

DISK: Final = "disk.img"
_PLUG: Final = "plug"
_CONTROL: Final = "control.sock"  # relative: the path of a socket is short
_KERNEL_LINE: Final = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=1"
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

    def prepare(self) -> None:
        """The disk's file, renamed when it is whole, and the script that plugs the cable in."""
        plug = self._folder / _PLUG
        plug.write_text(f'#!/bin/sh\nexec ip link set "$1" master {self._bridge} up\n')
        plug.chmod(0o700)
        finished = self._folder / DISK
        if finished.exists():
            return
        disk.assemble(self._folder, machine=self._machine, image=self._image, owner=0)
        root = self._folder / disk.ROOT
        for wanted in ("vmlinuz", "initrd"):
            shutil.copy(max((root / "boot").glob(f"{wanted}*")), self._folder / wanted)
        aside = self._folder / f".{DISK}"
        with aside.open("wb") as file:
            file.truncate(self._size.disk_gigabytes * 1_000_000_000)
        programs.run("mkfs.ext4", "-q", "-F", "-d", str(root), str(aside), seconds=600)
        aside.rename(finished)
        programs.run("umount", "--lazy", str(root))
        for left in (disk.UPPER, disk.WORK):
            shutil.rmtree(self._folder / left)

    def command(self) -> Sequence[str]:
        """QEMU of this host's own architecture."""
        digits = self._machine.name[-6:]
        mac = ":".join(["02", "00", "00", *(digits[at : at + 2] for at in (0, 2, 4))])
        (self._folder / _CONTROL).unlink(missing_ok=True)
        return [
            *(f"qemu-system-{os.uname().machine}", "-accel", "tcg,thread=multi"),
            *("-smp", str(self._size.cores), "-m", str(self._size.memory_megabytes)),
            *("-nodefaults", "-display", "none", "-name", self._machine.name),
            *("-kernel", "vmlinuz", "-initrd", "initrd", "-append", _KERNEL_LINE),
            *("-serial", "stdio", "-qmp", f"unix:{_CONTROL},server=on,wait=off"),
            *("-drive", f"file={DISK},if=virtio,format=raw"),
            *("-netdev", f"tap,id=cable,script={self._folder / _PLUG},downscript=no"),
            *("-device", f"virtio-net-pci,netdev=cable,mac={mac}"),
            *("-device", "virtio-rng-pci"),
        ]

    def ask(self, process: "subprocess.Popen[bytes]", *, again: bool) -> bool:
        """As by its power button; whoever wants it again starts it again."""
        del process, again
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
                asked.settimeout(_ASK_SECONDS)
                asked.connect(_CONTROL)
                asked.recv(4096)
                for verb in ("qmp_capabilities", "system_powerdown"):
                    asked.sendall(json.dumps({"execute": verb}).encode())
                    asked.recv(4096)
        except OSError:
            return False
        return True
