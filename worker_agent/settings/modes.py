"""Finds files of the worker that others could read, and closes them with a warning.

Enlist itself creates every file 0600 from its first byte; a lax one was copied or changed by
somebody. Closing it is better than refusing to run, but the warning says that the secret may be
known. A file of another account is refused: it is not ours to change.
"""

import os
import pathlib
import stat
from collections.abc import Callable

from worker_agent.settings import failures, paths


def tighten(where: paths.Paths, *, warn: Callable[[str], None]) -> None:
    """Closes lax files of the data directory; raises `NeedsOperator` for one of another owner."""
    for folder in (where.folder, where.identity):
        _close(folder, wanted=0o700, warn=warn)
    for path in (*where.private_files(), *where.later_files()):
        _close(path, wanted=0o600, warn=warn)


def _close(path: pathlib.Path, *, wanted: int, warn: Callable[[str], None]) -> None:
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    except PermissionError:
        raise failures.NeedsOperator(
            f"{path} belongs to another account and cannot be read by this one.",
            hint=f"Run the command as its owner: sudo -u '#{_owner(path)}' enlist …",
        ) from None
    if stat.S_ISLNK(info.st_mode):
        raise failures.NeedsOperator(
            f"{path} is a symbolic link; Enlist does not follow one to a private file.",
            hint=f"Replace it by the file itself: rm {path}",
        )
    if info.st_uid != os.geteuid():
        raise failures.NeedsOperator(
            f"{path} belongs to uid {info.st_uid}, and this command runs as uid {os.geteuid()}.",
            hint=f"Run the command as its owner: sudo -u '#{info.st_uid}' enlist …",
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(wanted)
        advice = ""
        if not stat.S_ISDIR(info.st_mode):
            advice = " If somebody may have read it, remove the node and join again."
        warn(
            f"{path} had mode {stat.S_IMODE(info.st_mode):04o}, so that others could look into it; "
            f"it is {wanted:04o} now.{advice}"
        )


def _owner(path: pathlib.Path) -> int:
    for folder in path.parents:
        try:
            return folder.stat().st_uid
        except OSError:
            continue
    return 0
