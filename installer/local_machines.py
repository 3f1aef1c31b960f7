"""The local machines of this host, which a removal of the Platform meets: counted, ended, removed.

They live in units of their own and outlive the Platform, so a removal takes none away unasked.
Everything may be repeated: a machine's record (machine.json) is the last of its files to go, so
that one whose removal was cut off is still counted. Known limits: machines in another folder
(`[local] directory`) are not seen; where no systemd runs, one that runs is named, not ended.
"""

import os
import pathlib
import re
import sys
from collections.abc import Iterator

from installer import programs, units

RECORD = "machine.json"
BRIDGE = "enlist-br0"
REMOVAL_SECONDS = 600.0
_NAME = re.compile(r"[a-z][a-z0-9-]{0,51}-[0-9a-f]{10}")
_MOST_NAMED = 5
_NETWORKS = pathlib.Path("/sys/class/net")


def names(folder: pathlib.Path) -> list[str]:
    """The machines whose disks are there."""
    try:
        found = sorted(one.name for one in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in found if _NAME.fullmatch(name) and (folder / name / RECORD).is_file()]


def shown(machines: list[str]) -> str:
    """How many, and the first names."""
    some = ", ".join(machines[:_MOST_NAMED])
    more = ", ..." if len(machines) > _MOST_NAMED else ""
    noun = "machine" if len(machines) == 1 else "machines"
    return f"{len(machines)} local {noun} ({some}{more})"


def end(folder: pathlib.Path) -> Iterator[str]:
    """Ends and removes them, one after the other; gives each name. Raises `ProgramFailed`."""
    for name in names(folder):
        _end(folder / name)
        for entry in sorted((folder / name).iterdir()):
            if entry.name != RECORD:
                remove(entry)
        remove(folder / name)
        yield name
    if units.is_running() and _is_idle(BRIDGE):
        programs.ask(["ip", "link", "delete", BRIDGE])


def remove(folder: pathlib.Path) -> None:
    """Removes all of it, however deep. A mount point is emptied and stays.

    Raises `ProgramFailed`.
    """
    if not os.path.lexists(folder):
        return
    if not os.path.ismount(folder):
        _remove(folder)
        return
    for entry in sorted(folder.iterdir()):
        _remove(entry)
    sys.stderr.write(f"enlist: {folder} is a mount point: emptied, and left\n")


def _remove(path: pathlib.Path) -> None:
    """By `rm`: root in a machine chooses how deep its tree is."""
    command = ["rm", "-rf", "--one-file-system", "--", str(path)]
    programs.run(command, seconds=REMOVAL_SECONDS)


def _end(folder: pathlib.Path) -> None:
    """At once, as by a power cut: its data goes with it."""
    unit = f"enlist-machine-{folder.name}.service"
    if units.is_running():
        for words in (["kill", "--signal=KILL"], ["stop"], ["reset-failed"]):
            programs.ask(["systemctl", *words, unit])  # it may be gone already
    pid = _keeper(folder)
    if pid is not None:
        raise programs.ProgramFailed(
            f"The machine {folder.name} runs on, held by process {pid}. End it: kill -9 {pid}"
        )


def _keeper(folder: pathlib.Path) -> int | None:
    """The process that holds it, if that very one lives: its file has id and start, as /proc."""
    try:
        pid, start = (folder / "keeper.pid").read_text().split()
        fields = pathlib.Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return int(pid) if fields[0] not in "ZX" and fields[19] == start else None


def _is_idle(bridge: str) -> bool:
    """Whether it is there and nothing is plugged in."""
    plugged = _NETWORKS / bridge / "brif"
    return plugged.is_dir() and not any(plugged.iterdir())
