"""The data directory: ours alone, one Platform at a time.

Made with mode 0700. One that is there already and holds other things is left as it is, so that a
mistyped `--data-dir /tmp` is not made private to one account. The lock is a flock on
run/host.lock: it goes with its process, so a killed Platform leaves none behind.
"""

import fcntl
import fnmatch
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import Final

from platform_server.app import failures
from platform_server.backup import under_way
from platform_server.sealing import key_file
from runtime_kit import private_files
from wire_protocol import problems

RUN: Final = "run"
BUNDLES: Final = "bundles"
# A bundle server with an account of its own sees the folder through a mount of its own.
_SHARED_FOLDER: Final = 0o755
LOCK: Final = "host.lock"
_MARKS: Final = (key_file.NAME, "enlist.db", f"{RUN}/{LOCK}")  # each of them only we make
_OWN: Final = (key_file.NAME, ".tmp-*", "enlist.db*", RUN, BUNDLES, "config*.toml", "lost+found")


def default(*, environ: Mapping[str, str]) -> pathlib.Path:
    """Where a Platform keeps its data unless told otherwise (interface.md, Files)."""
    if environ.get("ENLIST_DATA_DIR"):
        return pathlib.Path(environ["ENLIST_DATA_DIR"])
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/enlist/platform")
    state = environ.get("XDG_STATE_HOME") or str(pathlib.Path.home() / ".local/state")
    return pathlib.Path(state) / "enlist/platform"


def master_key_path(path: pathlib.Path, *, environ: Mapping[str, str]) -> pathlib.Path:
    """Where the master key lies: in the directory, or where a credential was put for us."""
    named = environ.get("ENLIST_MASTER_KEY_FILE")
    return pathlib.Path(named) if named else path / key_file.NAME


def require_ours(path: pathlib.Path) -> None:
    """Looks at the directory before anything in it is read; it need not exist yet.

    Raises `CannotStart` for one of somebody else's: otherwise the first file in it that we may
    not read would be blamed. And for one that holds other things and was never a Platform's;
    settings that were put there before the first start do not count as other things.
    """
    try:
        info = path.stat()
    except FileNotFoundError:
        return
    except OSError as fault:
        raise _unusable(path, reason=f"{fault}.") from None
    if not stat.S_ISDIR(info.st_mode):
        raise _unusable(path, reason="it is no directory.")
    if info.st_uid != os.geteuid():
        raise _unusable(path, reason=f"it belongs to uid {info.st_uid}, not to uid {os.geteuid()}.")
    try:
        foreign = _holds_other_things(path)
    except OSError as fault:
        raise _unusable(path, reason=f"{fault}.") from None
    if (path / under_way.NAME).exists():
        raise failures.CannotStart(
            f"A restore into {path} was interrupted, so what is there is not whole. Run the same "
            "command again to finish it: enlist backup restore FILE",
            exit_code=problems.Exit.NEEDS_OPERATOR,
        )
    if foreign:
        raise failures.CannotStart(
            f"{path} is not empty and no Platform's data directory. Nothing was changed. Name a "
            "directory of its own with --data-dir; it is made if it does not exist.",
            exit_code=problems.Exit.INVALID,
        )


def _holds_other_things(path: pathlib.Path) -> bool:
    if any((path / mark).exists() for mark in _MARKS):
        return False
    return any(
        not any(fnmatch.fnmatchcase(one.name, own) for own in _OWN) for one in path.iterdir()
    )


def ensure(path: pathlib.Path) -> pathlib.Path:
    """Makes the directory and its run/ folder; gives the latter. Raises `CannotStart`."""
    try:
        private_files.ensure_private_folder(path)
        private_files.ensure_private_folder(path / RUN)
        private_files.ensure_private_folder(path / RUN / "listener")
    except OSError as fault:
        raise _unusable(path, reason=str(fault)) from None
    return path / RUN


def ensure_bundles(path: pathlib.Path, *, shared: bool) -> None:
    """Makes the folder of bundles, for a bundle server's account too if `shared`; `CannotStart`."""
    try:
        for folder in (path / BUNDLES, path / BUNDLES / "sha256"):
            if shared:
                folder.mkdir(exist_ok=True)
                folder.chmod(_SHARED_FOLDER)
            else:
                private_files.ensure_private_folder(folder)
    except OSError as fault:
        raise _unusable(path, reason=str(fault)) from None


def lock(run: pathlib.Path) -> int:
    """Takes the directory for this process; gives the descriptor that holds it.

    Raises `CannotStart` when another Platform has it, or something else is in the file's place.
    """
    try:
        descriptor = os.open(
            run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600
        )
    except OSError as fault:
        raise _unusable(run.parent, reason=f"{fault}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise failures.CannotStart(
            f"Another Platform runs in {run.parent}. Stop it first, or give this one another "
            "--data-dir.",
            exit_code=problems.Exit.CONFLICT,
        ) from None
    return descriptor


def _unusable(path: pathlib.Path, *, reason: str) -> failures.CannotStart:
    return failures.CannotStart(
        f"The data directory {path} cannot be used: {reason} Start the Platform as its owner, "
        "or give another one with --data-dir.",
        exit_code=problems.Exit.INVALID,
    )
