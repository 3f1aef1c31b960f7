"""What differs on a machine's disk from its image: for comparing before and after.

Read off the upper layer of the overlay, so that only what was written is looked at. What was
written and is the same as in the image counts as not written.
Known limit: modification times do not count, nor does what lies on a tmpfs (/run, /tmp).
"""

import dataclasses
import fnmatch
import hashlib
import os
import pathlib
import stat


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One path: what it is, whose, and a digest of what it holds."""

    kind: str
    mode: int
    uid: int
    gid: int
    holds: str


GONE = Entry(kind="gone", mode=0, uid=0, gid=0, holds="")


def differences(*, upper: pathlib.Path, image: pathlib.Path) -> dict[str, Entry]:
    """Every path that is not as in the image."""
    found: dict[str, Entry] = {}
    for folder, folders, files in os.walk(upper):
        for name in (*folders, *files):
            path = pathlib.Path(folder, name)
            inside = path.relative_to(upper)
            entry = _entry(path)
            below = image / inside
            if not (os.path.lexists(below) and _entry(below) == entry):
                found[f"/{inside}"] = entry
    return found


# What differs on a running machine by itself, and what a removal may leave.
MAY_DIFFER = (
    # The package database and its caches, should a package have been needed.
    "/var/lib/dpkg/*", "/var/lib/apt/*", "/var/cache/*",
    # Logs of the distribution.
    "/var/log/*",
    # Copies that useradd and userdel keep of the files before.
    "/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
    # What systemd keeps of the running time: random seed, timers, private folders of its services.
    "/var/lib/systemd/*", "/var/tmp/systemd-private-*",  # noqa: S108
    "/var/lib/cloud/*",
)  # fmt: skip


def notable(before: dict[str, Entry], after: dict[str, Entry]) -> dict[str, str]:
    """What differs and is not on the written list above."""
    return {
        path: change
        for path, change in changes(before, after).items()
        if not any(fnmatch.fnmatch(path, pattern) for pattern in MAY_DIFFER)
    }


def changes(before: dict[str, Entry], after: dict[str, Entry]) -> dict[str, str]:
    """What happened to each path that differs between two such listings."""
    told: dict[str, str] = {}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if new is None:
            told[path] = "as in the image again"
        elif new == GONE:
            told[path] = "removed"
        else:
            told[path] = "new" if old is None else "changed"
    return told


def _entry(path: pathlib.Path) -> Entry:
    about = path.lstat()
    mode, uid, gid = stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid
    if stat.S_ISCHR(about.st_mode) and about.st_rdev == 0:
        return GONE
    if stat.S_ISLNK(about.st_mode):
        kind, holds = "link", str(path.readlink())
    elif stat.S_ISDIR(about.st_mode):
        kind, holds = "folder", ""
    elif stat.S_ISREG(about.st_mode):
        kind, holds = "file", hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        kind, holds = "special", ""
    return Entry(kind=kind, mode=mode, uid=uid, gid=gid, holds=holds)
