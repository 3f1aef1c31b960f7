"""The installed files against the list of the release in use: what is gone, changed or a stranger.

Known limit: the compiled copies (`__pycache__`) stand in no list; of them is
judged that each is beside a file of the list, and in `owners` whose they are.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator

from installer import tree
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from wire_protocol import findings

_MOST_LIST = 16 * 1024 * 1024
_MOST_FILE = 256 * 1024 * 1024
_MOST_ENTRIES = 100_000
_SHOWN = 5
_BY_HAND = ("bin/python", "bin/python3")  # links, and the list itself, which stand in no list

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file as the release put it there."""

    path: str
    sha256: str
    mode: int


def hashes(seen: seen_kit.Seen) -> Found:
    """Files that are gone, changed, or of nobody."""
    folder = seen.release_folder
    if folder is None or not seen.current.is_whole:
        return (findings.skipped("hashes", "There is no whole release in use; see release."),)
    try:
        listed = read_list(folder)
    except around_kit.CannotLook as error:
        return (findings.needs_operator("hashes", f"{error}", command=seen.reinstall()),)
    gone, changed, closed = _compare(folder, listed)
    added = list(_strangers(folder, {one.path for one in listed}))
    facts = {
        "files": len(listed),
        "gone": gone[:_SHOWN],
        "changed": changed[:_SHOWN],
        "added": added[:_SHOWN],
    }
    told = [
        f"{len(names)} {word} ({', '.join(names[:_SHOWN])}{', …' * (len(names) > _SHOWN)})"
        for names, word in ((changed, "changed"), (gone, "gone"), (added, "not of it"))
        if names
    ]
    if told:
        return (
            findings.needs_operator(
                "hashes",
                f"Of release {seen.current.names}: {'; '.join(told)}. If nobody you know did this, "
                "somebody was root here.",
                command=seen.reinstall(),
                facts=facts,
            ),
        )
    if closed:
        return (findings.skipped("hashes", f"{len(closed)} files are closed to this account."),)
    return (findings.ok("hashes", f"All {len(listed)} files are as installed.", facts=facts),)


def read_list(folder: pathlib.Path) -> list[Listed]:
    """`files.json` of a release; raises `CannotLook`."""
    path = folder / tree.FILES
    try:
        document = json.loads(around_kit.read(path, most=_MOST_LIST))
        return [
            Listed(path=one["path"], sha256=one["sha256"], mode=int(one["mode"], 8))
            for one in document["files"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise around_kit.CannotLook(f"{path} cannot be read, so no file can be judged.") from error


def _compare(folder: pathlib.Path, listed: list[Listed]) -> tuple[list[str], list[str], list[str]]:
    gone, changed, closed = [], [], []
    for one in listed:
        path = folder / one.path
        try:
            with around_kit.opened(path, most=_MOST_FILE, flags=os.O_NOFOLLOW) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except PermissionError:
            closed.append(one.path)
        except (FileNotFoundError, NotADirectoryError):
            gone.append(one.path)
        except (OSError, around_kit.CannotLook):  # a link, a pipe, or far too large
            changed.append(one.path)
        else:
            if digest != one.sha256:
                changed.append(one.path)
    return gone, changed, closed


def _strangers(folder: pathlib.Path, known: set[str]) -> Iterator[str]:
    """Entries that no list names."""
    count = 0
    for place, folders, files in os.walk(folder, followlinks=False):
        links = [name for name in folders if (pathlib.Path(place) / name).is_symlink()]
        for name in (*files, *links):
            count += 1
            if count > _MOST_ENTRIES:
                return
            path = pathlib.PurePath(place, name).relative_to(folder)
            if not (str(path) in known or _belongs(path, known)):
                yield str(path)


def _belongs(path: pathlib.PurePath, known: set[str]) -> bool:
    if str(path) in (*_BY_HAND, tree.FILES) or path.match("bin/python3.*"):
        return True
    if path.parent.name != "__pycache__" or path.suffix != ".pyc":
        return False
    source = path.parent.parent / f"{path.name.partition('.')[0]}.py"
    return str(source) in known
