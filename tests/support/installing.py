"""Runs install.sh as a person would: as a plain user, who can spoil nothing, also under root.

A plain user's installation stands below a folder of the test's own; what only root does is tried on
machines (tests/machines).
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from tests.support import small_releases

NOBODY = 65534
SECONDS = 100.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the script ended."""

    code: int
    out: str
    err: str


def _in_memory() -> str | None:
    """A file system that a release can be written to and run from without waiting for a disk."""
    try:
        flags = os.statvfs("/dev/shm").f_flag  # noqa: S108 - a folder of a random name in it
    except FileNotFoundError:
        return None
    return None if flags & (os.ST_NOEXEC | os.ST_RDONLY) else "/dev/shm"  # noqa: S108


@contextlib.contextmanager
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that every user can reach and the plain one can write; pytest's own are closed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="enlist-test-install-", dir=_in_memory()))
    try:
        folder.chmod(0o755)
        own = folder / "own"
        own.mkdir()
        if os.getuid() == 0:
            os.chown(own, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    folder: pathlib.Path = pathlib.Path("/"),
    umask: int = 0o022,
    as_root: bool = False,
) -> Ended:
    """Runs it with nothing in its environment but what is given, and no terminal."""
    user = {} if as_root or os.getuid() != 0 else {"user": NOBODY, "group": NOBODY,
                                                   "extra_groups": []}  # fmt: skip
    done = subprocess.run(  # type: ignore[call-overload]
        [os.fspath(word) for word in command],
        input=stdin if stdin is not None else b"",
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "ENLIST_PYTHON": str(small_releases.SYSTEM_PYTHON),
            **(environment or {}),
        },
        cwd=folder,
        umask=umask,
        start_new_session=True,  # so that there is no terminal to ask on
        **user,
    )
    return Ended(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def files_below(folder: pathlib.Path) -> list[str]:
    """Every path below it, relative."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
