"""What a checkup has around it: the root folder, the programs, and how long each may take.

For: looking at `/` and at any other tree alike, with every read sized and every program ended in
time. A program is looked for in the folders named here alone, never in the caller's `PATH`: the
caller may be root.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import shutil
import stat
import subprocess
from collections.abc import Iterator

MOST_BYTES = 1_048_576
PROGRAM_SECONDS = 4.0  # systemctl of a healthy machine answers within 0.1 s
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_OUTPUT = 16 * 1024 * 1024  # `nft -j list ruleset` of a machine with large sets


class CannotLook(Exception):
    """A file or a program gave nothing that can be judged; the sentence says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a program ended and what it printed."""

    code: int
    out: str
    err: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The surroundings of one look."""

    root: pathlib.Path = pathlib.Path("/")
    programs: str = _SYSTEM_PATH
    root_uid: int = 0  # whose the system's files are; another one in a tree that a user made
    program_seconds: float = PROGRAM_SECONDS

    def under(self, path: pathlib.PurePath | str) -> pathlib.Path:
        """Where an absolute path of the machine lies for us."""
        return self.root / pathlib.PurePath(path).relative_to("/")

    @property
    def is_this_machine(self) -> bool:
        """Whether the tree is the one that runs here."""
        return self.root == pathlib.Path("/")

    def find_program(self, name: str) -> str | None:
        """The program's place, or None where it is not installed."""
        return shutil.which(name, path=self.programs)

    def run(self, *command: str, seconds: float | None = None) -> Said:
        """Runs a program that only reads; raises `CannotLook` where it does not end by itself."""
        program = self.find_program(command[0])
        if program is None:
            raise CannotLook(f"{command[0]} is not installed.")
        return run_program(program, *command[1:], seconds=seconds or self.program_seconds)


def run_program(program: str, *arguments: str, seconds: float) -> Said:
    """Runs a program by its place, without a terminal and in the language we can read."""
    shown = " ".join((pathlib.Path(program).name, *arguments))
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={"PATH": _SYSTEM_PATH, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
        )
    except subprocess.TimeoutExpired:
        raise CannotLook(f"{shown} gave no answer within {seconds:g} s.") from None
    except OSError as error:
        raise CannotLook(f"{shown} cannot be run: {error.strerror}.") from error
    return Said(
        code=done.returncode,
        out=printable(done.stdout[:_MOST_OUTPUT].decode(errors="replace")),
        err=printable(done.stderr[:MOST_BYTES].decode(errors="replace")),
    )


def read(path: pathlib.Path, *, most: int = MOST_BYTES) -> bytes:
    """A plain file's content, at most so much; raises `OSError` and `CannotLook`."""
    with opened(path, most=most) as file:
        return file.read(most)


@contextlib.contextmanager
def opened(
    path: pathlib.Path, *, most: int = MOST_BYTES, flags: int = 0
) -> Iterator[io.BufferedReader]:
    """A plain file of at most so many bytes; nobody waits for a pipe or a device in its place.

    Raises `OSError` and `CannotLook`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise CannotLook(f"{path} is no plain file.")
        if info.st_size > most:
            raise CannotLook(f"{path} has {info.st_size} bytes, more than the {most} expected.")
        yield file


def printable(text: str) -> str:
    """Without what a terminal would take for a command; line ends stay."""
    return "".join(one if one.isprintable() or one == "\n" else " " for one in text)
