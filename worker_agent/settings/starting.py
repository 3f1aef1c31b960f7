"""Which command starts the Agent of a data directory: its unit's, where it is installed as one."""

import pathlib

from runtime_kit import private_files
from worker_agent.settings import paths

UNIT = pathlib.Path("/etc/systemd/system/enlist-agent.service")
_MOST_BYTES = 65_536


def is_a_unit(where: paths.Paths, *, unit: pathlib.Path = UNIT) -> bool:
    """Whether systemd starts the Agent of this very folder."""
    try:
        text = private_files.read_regular(unit, max_bytes=_MOST_BYTES).decode(errors="replace")
    except (OSError, private_files.FileTooLarge):
        return False
    return any(
        line.startswith("ExecStart=") and line.split()[-1] == str(where.folder)
        for line in text.splitlines()
    )


def command(where: paths.Paths, *, unit: pathlib.Path = UNIT) -> str:
    """As a person types it."""
    if is_a_unit(where, unit=unit):
        return f"sudo systemctl start {unit.name}"
    return f"enlist agent --data-dir {where.folder}"
