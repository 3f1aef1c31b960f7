"""What a heartbeat tells of this machine, read from the kernel in microseconds.

All of it is shown and compared and decides nothing. What a kernel does not tell is zero. Known
limit: the limits of a container are not looked at, but for the processors it may use.
"""

import os
import pathlib
import sys

from wire_protocol import heartbeats, updates

_MEMORY = pathlib.Path("/proc/meminfo")
_MOST_BYTES = 16_384


def capacity(folder: pathlib.Path, *, memory: dict[str, int]) -> heartbeats.Capacity:
    """Processors, memory, and the disk on which the folder is."""
    return heartbeats.Capacity(
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=memory.get("MemTotal", 0),
        disk_bytes=disk(folder)[0],
    )


def disk(folder: pathlib.Path) -> tuple[int, int]:
    """Size and free space of the file system, in bytes."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def release(prefix: str = sys.prefix) -> str:
    """The id of the installed release that this program is of; empty where it was not installed.

    An installation keeps each release in a folder of its own, `releases/<release id>`, with the
    Python that runs it (docs/install.md).
    """
    folder = pathlib.Path(prefix).resolve()  # it may be reached by `current`
    if folder.parent.name != "releases":
        return ""
    try:
        updates.version_of_release(folder.name)
    except ValueError:
        return ""
    return folder.name


def architecture() -> str:
    """The processor's, as the kernel names it."""
    return os.uname().machine[:32]


def load_milli() -> tuple[int, int, int]:
    """The load over 1, 5 and 15 minutes, in thousandths."""
    try:
        one, five, fifteen = os.getloadavg()
    except OSError:
        return 0, 0, 0
    return int(one * 1000), int(five * 1000), int(fifteen * 1000)


def memory(source: pathlib.Path = _MEMORY) -> dict[str, int]:
    """The kernel's figures by their names, in bytes."""
    try:
        with source.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode("ascii", "replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found
