"""Whether root alone has a hand in a place: who else owns or may write a folder above it, or it.

For: what root installs, updates and removes, and what it runs from there. Whoever owns or may write
one folder on the way to a release could put another one in its place; a sticky folder as /tmp does
not help, since who made what is below it may rename that. Links are followed one at a time, so that
the folders which hold their targets are looked at as well.
Known limit: rights by access control lists are seen as far as they show in the group's bits.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterator

from installer import failures
from installer import layout as layout_kit

ROOT = 0
TOP = pathlib.Path("/")
_WRITABLE = 0o022  # for the group and for everybody
_MOST_LINKS = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A place in which others have a hand."""

    path: pathlib.Path
    uid: int
    mode: int

    @property
    def sentence(self) -> str:
        """What is wrong with it, without what helps."""
        return (
            f"{self.path} belongs to uid {self.uid} with mode {self.mode:04o}: others than root "
            "can put something else in the place of what is below it."
        )


def look(path: pathlib.Path, *, uid: int) -> Foreign | None:
    """This one place, links followed; None: it is this account's alone, or not there."""
    try:
        info = path.stat()
    except OSError:
        return None
    if info.st_uid == uid and not info.st_mode & _WRITABLE:
        return None
    return Foreign(path=path, uid=info.st_uid, mode=stat.S_IMODE(info.st_mode))


def above(path: pathlib.Path, *, uid: int, top: pathlib.Path = TOP) -> Iterator[Foreign]:
    """Every folder on the way from `top` to what the path leads to that is not this account's."""
    seen: set[pathlib.Path] = set()
    ends = {path}  # where the path itself leads to: not above it
    waiting = [path]
    while waiting and len(seen) <= _MOST_LINKS:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        for place in (here, *here.parents):
            if place.is_symlink():
                target = place.parent / os.readlink(place)  # noqa: PTH115 - one step
                waiting.append(target)
                if place in ends:
                    ends.add(target)
            elif place not in ends and place.is_relative_to(top):
                found = look(place, uid=uid)
                if found is not None:
                    yield found


def below(folder: pathlib.Path, *, uid: int) -> Iterator[Foreign]:
    """Everything in the folder, and itself, that is not this account's alone; links by owner."""
    places = [folder]
    for place, folders, files in os.walk(folder, followlinks=False):
        places += [pathlib.Path(place, name) for name in (*folders, *files)]
    for path in places:
        info = path.lstat()
        writable = 0 if stat.S_ISLNK(info.st_mode) else info.st_mode & _WRITABLE
        if info.st_uid != uid or writable:
            yield Foreign(path=path, uid=info.st_uid, mode=stat.S_IMODE(info.st_mode))


def require(layout: layout_kit.Layout, *, uid: int = ROOT, top: pathlib.Path = TOP) -> None:
    """Raises `NeedsOperator` where others have a hand in an installation of root's.

    A plain user's installation is his own affair, below folders of his own.
    """
    if layout.account is None:
        return
    found = [*above(layout.data_dir, uid=uid, top=top)]
    for place in (
        *(layout.releases, layout.uninstaller),
        *(layout.receipt, layout.release_key, layout.current, layout.previous),
    ):
        found += above(place, uid=uid, top=top)
        mine = look(place, uid=uid)
        if mine is not None:
            found.append(mine)
    if found:
        first = min(found, key=lambda one: len(one.path.parts))
        raise failures.NeedsOperator(
            f"{first.sentence} Choose another place with --prefix and --data-dir, or look at what "
            f"is there, then: chown root {first.path}; chmod go-w {first.path}"
        )
