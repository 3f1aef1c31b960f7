"""A machine's disk: an overlay over its image, with the seed that cloud-init reads at each boot.

The seed (NoCloud) lies on the disk itself and stays for the machine's life. Where the host's file
system takes no overlay the image is copied. Everything is made anew from the machine's file and the
seed's folder, so whoever was killed in between does it again.

Known limit: no quota; a machine can fill the file system that its folder lies on.
"""

import contextlib
import os
import pathlib
from typing import Final

from provisioning.local import machines, programs
from runtime_kit import private_files

ROOT: Final = "root"
UPPER: Final = "upper"
WORK: Final = "work"
USER_DATA: Final = "user-data"
_SEEDED: Final = "seeded"
_SEED: Final = "var/lib/cloud/seed/nocloud"
_NETWORK: Final = "etc/systemd/network/10-enlist.network"


def is_mounted(folder: pathlib.Path) -> bool:
    """Whether the disk is put together."""
    return (folder / ROOT).is_mount()


def assemble(
    folder: pathlib.Path, *, machine: machines.Machine, image: pathlib.Path, owner: int
) -> None:
    """Puts the disk together; may be repeated. Raises `Failed`.

    `owner` is the machine's root as the host counts.
    """
    root, upper, work = (folder / name for name in (ROOT, UPPER, WORK))
    for place in (root, upper, work):
        place.mkdir(exist_ok=True)
    is_new = not (folder / _SEEDED).exists()
    if not is_mounted(folder) and is_new:
        os.chown(upper, owner, owner)
        upper.chmod(0o755)
        if any(root.iterdir()):  # a copy that was cut off
            programs.remove_tree(root)
            root.mkdir()
    if not is_mounted(folder) and not any(root.iterdir()):
        _mount(root, upper=upper, work=work, image=image, may_copy=is_new)
    if is_new:
        user_data = private_files.read_bounded(folder / USER_DATA, max_bytes=65_536)
        lay_seed(root, machine=machine, user_data=user_data, owner=owner)
        (folder / _SEEDED).touch()
        (folder / USER_DATA).unlink()  # the machine's own disk has it now, and wipes it


def lay_seed(
    root: pathlib.Path, *, machine: machines.Machine, user_data: bytes, owner: int
) -> None:
    """The name, the network and the seed; the files belong to the machine's root."""
    prefix = machine.network.partition("/")[2]
    _write(root, "etc/hostname", f"{machine.name}\n".encode(), owner=owner)
    _write(
        root,
        _NETWORK,
        (
            "[Match]\nName=host0 en*\n[Network]\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n"
            f"Address={machine.address}/{prefix}\nGateway={machine.gateway}\n"
        ).encode(),
        owner=owner,
    )
    meta = f"instance-id: {machine.instance_id}\nlocal-hostname: {machine.name}\n"
    _write(root, f"{_SEED}/meta-data", meta.encode(), owner=owner)
    _write(root, f"{_SEED}/user-data", user_data, owner=owner, mode=0o600)


def _mount(
    root: pathlib.Path,
    *,
    upper: pathlib.Path,
    work: pathlib.Path,
    image: pathlib.Path,
    may_copy: bool,
) -> None:
    """A machine that has booted over an overlay has its data there: it never gets a bare copy."""
    layers = f"lowerdir={image},upperdir={upper},workdir={work}"
    try:
        programs.run("mount", "-t", "overlay", "enlist-machine", "-o", layers, str(root))
    except programs.Failed:
        if not may_copy:
            raise
        programs.run("cp", "--archive", "--reflink=auto", f"{image}/.", str(root), seconds=600)


def _write(root: pathlib.Path, name: str, content: bytes, *, owner: int, mode: int = 0o644) -> None:
    """A file of the image's own tree, which nobody but the builder has written: no link is met."""
    path = root / name
    missing = [parent for parent in path.parents if parent != root and not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in missing:
        os.chown(parent, owner, owner)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.chown(path, owner, owner)
    path.chmod(mode)
