"""Programs of the distribution that local machines are made with, run in bare surroundings.

Known limit: found in the system's folders alone, whatever `PATH` says.
"""

import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECONDS: Final = 60.0
REMOVAL_SECONDS: Final = 600.0
SURROUNDINGS: Final[Mapping[str, str]] = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
NEEDED: Final[Mapping[str, str]] = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "mount": "mount",
    "setsid": "util-linux",
    "unshare": "util-linux",
}
NEEDED_FOR_QEMU: Final[Mapping[str, str]] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "mount": "mount",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "unshare": "util-linux",
}


class Failed(Exception):
    """A program of the host ended badly; its own words are in the message."""


def is_well(*command: str) -> bool:
    """Whether it ends well."""
    try:
        run(*command)
    except Failed:
        return False
    return True


def run(*command: str, seconds: float = SECONDS) -> str:
    """Runs it; its standard output. Raises `Failed`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd="/",
            env=dict(SURROUNDINGS),
        )
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not on this host.") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} did not end within {seconds:.0f} s.") from None
    if done.returncode != 0:
        said = done.stderr.strip()[-500:]
        raise Failed(f"{' '.join(command[:4])} ended with {done.returncode}: {said}")
    return done.stdout


def remove_tree(folder: pathlib.Path) -> None:
    """Removes it with all that is in it; what is mounted there stays. Raises `Failed`.

    By `rm`, which goes down any depth: root in a machine chooses what its tree looks like, and
    thousands of folders in one another end a walk that calls itself or keeps each one open.
    """
    run("rm", "-rf", "--one-file-system", "--", str(folder), seconds=REMOVAL_SECONDS)


def detach(*command: str, log: pathlib.Path) -> None:
    """Starts it as nobody's child, in a session of its own; what it says goes to that file.

    Nothing of ours is left open in it: it would keep whoever reads there waiting.
    """
    detached = ["setsid", "--fork", *command]
    with log.open("ab") as said:
        subprocess.run(
            detached,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=SECONDS,
            check=True,
            cwd="/",
            env=dict(SURROUNDINGS),
        )


def missing(needed: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that this host lacks."""
    lacking = (package for name, package in needed.items() if shutil.which(name, path=PATH) is None)
    return tuple(dict.fromkeys(lacking))
