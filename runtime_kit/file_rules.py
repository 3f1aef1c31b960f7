"""Whether private files and folders have the owner and the mode they must have, and mending them.

For: a program that looks at a folder which another account owns, and may look as root. Nothing is
followed: each step from the folder down is opened by name without links, so that the folder's owner
cannot lead a mend by root to a file outside of it; a file with a second name elsewhere is left
alone for the same reason.
Not for: what the files hold.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence

from runtime_kit import mends, private_files

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LISTED = 500
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry below the folder; an entry that is not there breaks no rule."""

    path: pathlib.PurePath
    mode: int
    is_folder: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule that is broken: the sentence, and the mend where one is safe."""

    path: pathlib.Path
    text: str
    command: str
    mend: mends.Mend | None
    exposed: bool = False  # others could have read a secret


def file(path: str) -> Rule:
    """A private file."""
    return Rule(path=pathlib.PurePath(path), mode=private_files.PRIVATE_FILE)


def folder(path: str) -> Rule:
    """A private folder; `.` is the folder itself."""
    return Rule(path=pathlib.PurePath(path), mode=private_files.PRIVATE_FOLDER, is_folder=True)


def examine(root: pathlib.Path, rules: Sequence[Rule], *, uid: int) -> list[Fault]:
    """Every broken rule, in the order of the rules; raises `OSError` where root cannot be seen."""
    found: list[Fault] = []
    for rule in rules:
        path = root / rule.path
        try:
            info = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += _judge(root, rule=rule, path=path, info=info, uid=uid)
    return found


def listing(folder: pathlib.Path, *, flat: bool = False) -> str:
    """Every entry with mode, owner, size and time, as `ls -la` would; links are not followed.

    `flat` gives the folder's own entries alone.
    """
    lines: list[str] = []
    for place, folders, files in os.walk(folder, followlinks=False):
        names = sorted((*folders, *files))
        if flat:
            folders.clear()
        for name in names:
            path = pathlib.Path(place) / name
            try:
                info = path.lstat()
            except OSError as error:
                lines.append(f"?  {path}  ({error.strerror})")
                continue
            lines.append(
                f"{info.st_mode:07o} {info.st_uid}:{info.st_gid} {info.st_nlink} "
                f"{info.st_size:>10} {int(info.st_mtime)} {path}"
            )
            if len(lines) >= _MOST_LISTED:
                return "\n".join([*lines, "… and more", ""])
    return "\n".join([*lines, ""])


def _judge(
    root: pathlib.Path, *, rule: Rule, path: pathlib.Path, info: os.stat_result, uid: int
) -> Iterator[Fault]:
    right_kind = stat.S_ISDIR if rule.is_folder else stat.S_ISREG
    if not right_kind(info.st_mode):
        yield Fault(
            path=path,
            text=f"{path} is {_kind(info.st_mode)}, and must be "
            f"{'a folder' if rule.is_folder else 'a file'}.",
            command=f"ls -ld {path}",
            mend=None,
        )
        return
    if info.st_uid != uid:
        single = rule.is_folder or info.st_nlink == 1
        yield Fault(
            path=path,
            text=f"{path} belongs to uid {info.st_uid}, and its folder to uid {uid}.",
            command=f"chown {uid} {path}",
            mend=_mend(root, rule=rule, uid=uid, action="chown", detail=f"to uid {uid}")
            if os.geteuid() == 0 and single
            else None,
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode != rule.mode:
        may = os.geteuid() in (0, info.st_uid)
        yield Fault(
            path=path,
            text=f"{path} has mode {mode:04o}, and must have {rule.mode:04o}.",
            command=f"chmod {rule.mode:o} {path}",
            mend=_mend(root, rule=rule, uid=None, action="chmod", detail=f"to {rule.mode:04o}")
            if may
            else None,
            exposed=bool(mode & 0o077) and not rule.is_folder,
        )


def _mend(
    root: pathlib.Path, *, rule: Rule, uid: int | None, action: str, detail: str
) -> mends.Mend:
    return mends.Mend(
        action=action,
        target=str(root / rule.path),
        detail=detail,
        apply=functools.partial(_apply, root, rule, uid),
    )


def _apply(root: pathlib.Path, rule: Rule, uid: int | None) -> None:
    try:
        with _opened(root, rule) as descriptor:
            info = os.fstat(descriptor)
            if not rule.is_folder and (not stat.S_ISREG(info.st_mode) or info.st_nlink != 1):
                raise mends.CannotMend("it is no plain file of one name: look at it yourself")
            if uid is not None:
                os.fchown(descriptor, uid, -1)
            else:
                os.fchmod(descriptor, rule.mode)
    except OSError as error:
        raise mends.CannotMend(f"{error.strerror}") from error


@contextlib.contextmanager
def _opened(root: pathlib.Path, rule: Rule) -> Iterator[int]:
    """The entry itself, reached from the root by names that are no links."""
    with contextlib.ExitStack() as stack:
        here = os.open(root, _FOLDER)
        stack.callback(os.close, here)
        *above, last = rule.path.parts or (".",)
        for name in above:
            here = os.open(name, _FOLDER, dir_fd=here)
            stack.callback(os.close, here)
        found = os.open(last, _FOLDER if rule.is_folder else _FILE, dir_fd=here)
        stack.callback(os.close, found)
        yield found


def _kind(mode: int) -> str:
    for matches, word in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISFIFO, "a pipe"),
    ):
        if matches(mode):
            return word
    return "a device"
