"""Owners and modes from prefix to data directory: nobody else may change what root runs.

What is in a data directory belongs to the program that keeps it there; its own checkup judges that.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterator

from installer import layout as layout_kit
from installer import ownership, tree
from installer.checkup import account, installed
from installer.checkup import around as around_kit
from installer.checkup import seen as seen_kit
from runtime_kit import file_rules, mends
from wire_protocol import findings

_FOLDER = 0o755
_WRITABLE = 0o022  # for the group and for everybody

Found = tuple[findings.Finding, ...]


def owners(seen: seen_kit.Seen) -> Found:
    """Owners and modes of everything between the prefix and the data directory."""
    faults = list(examine(seen))
    if not faults:
        return (findings.ok("owners", "Owners and modes are right."),)
    first, *more = faults
    rest = f" And {len(more)} more." if more else ""
    return (
        findings.needs_operator(
            "owners",
            f"{first.text}{rest}",
            command=seen.fix() if first.mend else first.command,
            facts={"faults": [one.text for one in faults[:64]]},
        ),
    )


def mends_of(seen: seen_kit.Seen) -> list[mends.Mend]:
    """Owners and modes."""
    return [one.mend for one in examine(seen) if one.mend is not None]


def examine(seen: seen_kit.Seen) -> Iterator[file_rules.Fault]:
    """Every place in turn; what this account may not look into is passed over."""
    here, owner = seen.here, seen.owner
    names = [str(here.root.relative_to(here.prefix)), str(here.releases.relative_to(here.prefix))]
    rules = [
        _rule(".", _FOLDER, is_folder=True),
        *(_rule(name, _FOLDER, is_folder=True) for name in names),
        _rule(str(here.receipt.relative_to(here.prefix)), 0o644),
        _rule(str(here.release_key.relative_to(here.prefix)), 0o644),
    ]
    yield from file_rules.examine(here.prefix, rules, uid=owner)
    if seen.is_system:
        yield from _above(seen)
    for name in dict.fromkeys((seen.current.names, seen.previous.names)):
        if name is not None:
            yield from _of_release(here.release(name), owner=owner)
    if here.uninstaller.is_dir():
        yield from _of_uninstaller(here.uninstaller, owner=owner)
    yield from _of_data(seen)


def _above(seen: seen_kit.Seen) -> Iterator[file_rules.Fault]:
    """Whoever owns a folder above could put another one in the place of ours."""
    places = {*seen.layout.prefix.parents, *seen.layout.data_dir.parents}
    for place in sorted(places - {layout_kit.DEFAULT_DATA}):
        found = ownership.look(seen.under(place), uid=seen.owner)
        if found is not None:
            yield file_rules.Fault(
                path=found.path,
                text=dataclasses.replace(found, path=place).sentence,
                command=f"sudo chown root {place}; sudo chmod go-w {place}",
                mend=None,
            )


def _of_release(folder: pathlib.Path, *, owner: int) -> Iterator[file_rules.Fault]:
    try:
        listed = installed.read_list(folder)
    except around_kit.CannotLook:
        return
    places = {"."} | {
        str(parent) for one in listed for parent in pathlib.PurePath(one.path).parents
    }
    rules = [_rule(place, _FOLDER, is_folder=True) for place in sorted(places)]
    rules += [_rule(one.path, one.mode) for one in listed]
    yield from file_rules.examine(folder, [*rules, _rule(tree.FILES, 0o644)], uid=owner)


def _of_uninstaller(folder: pathlib.Path, *, owner: int) -> Iterator[file_rules.Fault]:
    """Root runs what is in it, so nobody else may have a hand in it."""
    for place, folders, files in os.walk(folder, followlinks=False):
        for name in (".", *files, *folders):
            path = pathlib.Path(place, name)
            info = path.lstat()
            kept = stat.S_IMODE(info.st_mode) & ~_WRITABLE
            rule = _rule(str(path.relative_to(folder)), kept, is_folder=stat.S_ISDIR(info.st_mode))
            yield from file_rules.examine(folder, [rule], uid=owner)


def _of_data(seen: seen_kit.Seen) -> Iterator[file_rules.Fault]:
    """The data directory itself, and the root helper's; what is in the former is the program's."""
    here = seen.here
    private = [file_rules.folder(".")]
    uid = _data_owner(seen)
    if uid is not None and here.data_dir.is_dir():
        yield from file_rules.examine(here.data_dir, private, uid=uid)
    if not seen.is_system:
        return
    above = seen.under(layout_kit.DEFAULT_DATA)
    if above.is_dir():
        rule = _rule(".", _FOLDER, is_folder=True)
        yield from file_rules.examine(above, [rule], uid=seen.owner)
    if here.helper is not None and here.helper.is_dir():
        yield from file_rules.examine(here.helper, private, uid=seen.owner)
        if os.access(here.helper, os.R_OK | os.X_OK):
            names = sorted(entry.name for entry in os.scandir(here.helper) if entry.is_file())
            rules = [file_rules.file(name) for name in names]
            yield from file_rules.examine(here.helper, rules, uid=seen.owner)


def _data_owner(seen: seen_kit.Seen) -> int | None:
    if seen.layout.account is None:
        return seen.owner
    found = account.find(seen.around, seen.layout.account)
    return None if found is None else found.uid


def _rule(path: str, mode: int, *, is_folder: bool = False) -> file_rules.Rule:
    return file_rules.Rule(path=pathlib.PurePath(path), mode=mode, is_folder=is_folder)
