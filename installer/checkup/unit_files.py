"""The units: their files as the release in use renders them, and how systemd sees each.

Whether a unit may rightly be inactive is read from the unit itself: one that does its work and
ends, one that waits for a file, one that is started by its socket, or by nothing of its own.
"""

import functools
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from installer import layout as layout_kit
from installer import units as units_kit
from installer.checkup import around as around_kit
from installer.checkup import releases, services
from installer.checkup import seen as seen_kit
from runtime_kit import mends, private_files
from wire_protocol import findings

_MODE = 0o644
_MOST_BYTES = 65_536
_CHANGE_SECONDS = 30.0  # of a machine under load; a reload of systemd takes a second
_WAITS_FOR = re.compile(r"^ConditionPathExists=(/\S+)$", re.MULTILINE)

Found = tuple[findings.Finding, ...]


def files(seen: seen_kit.Seen) -> Found:
    """Whether each unit of the release is there as the release renders it, and no other of ours."""
    if seen.layout.units is None:
        return (findings.skipped("units", "Installed by a plain user, without units."),)
    wanted = of_release(seen)
    if not wanted:
        return (findings.skipped("units", "There is no whole release in use; see release."),)
    gone, changed = differing(seen, wanted)
    facts = {"units": [unit.name for unit in wanted], "gone": gone, "changed": changed}
    added = [] if seen.receipt is None else _left(seen, wanted)
    if gone or changed:
        told = [
            f"{', '.join(names)} {word}"
            for names, word in ((gone, "gone"), (changed, "not as this release has it"))
            if names
        ]
        return (
            findings.needs_operator(
                "units",
                f"In {seen.layout.units}: {'; '.join(told)}. What you want changed belongs into a "
                "drop-in (systemctl edit), which stays.",
                command=seen.fix(),
                facts=facts,
            ),
        )
    if added:
        return (
            findings.warning(
                "units",
                f"{', '.join(added)} came with an earlier release, and this one has none such.",
                command=seen.reinstall(),
                facts=facts,
            ),
        )
    return (
        findings.ok("units", f"{len(wanted)} units are as this release has them.", facts=facts),
    )


def of_release(seen: seen_kit.Seen) -> list[units_kit.Unit]:
    """The units as they should be on this machine."""
    if seen.layout.units is None or seen.current.names is None:
        return []
    return [
        units_kit.Unit(name=unit.name, text=_as_on_this_machine(seen, unit.text))
        for unit in units_kit.of_release(seen.here, seen.current.names)
    ]


def _as_on_this_machine(seen: seen_kit.Seen, text: str) -> str:
    """In another tree the places were rendered as they lie for us: put back as its machine's."""
    return text if seen.around.is_this_machine else text.replace(str(seen.around.root), "")


def differing(seen: seen_kit.Seen, wanted: Sequence[units_kit.Unit]) -> tuple[list[str], list[str]]:
    """The names of those that are gone, and of those that are different."""
    gone, changed = [], []
    for unit in wanted:
        path = services.unit_file(seen.around, unit.name)
        try:
            content = private_files.read_regular(path, max_bytes=_MOST_BYTES)
        except FileNotFoundError:
            gone.append(unit.name)
        except (OSError, private_files.FileTooLarge):  # a link to /dev/null: it is masked
            if os.path.realpath(path) != os.devnull:
                changed.append(unit.name)
        else:
            if content != unit.text.encode():
                changed.append(unit.name)
    return gone, changed


def _left(seen: seen_kit.Seen, wanted: Sequence[units_kit.Unit]) -> list[str]:
    names = {unit.name for unit in wanted}
    mine = () if seen.receipt is None else seen.receipt.units
    return [
        name
        for name in mine
        if name not in names and os.path.lexists(services.unit_file(seen.around, name))
    ]


def states(seen: seen_kit.Seen) -> Found:
    """One finding a unit: loaded, on, working, or why not."""
    if seen.layout.units is None:
        return ()
    wanted = of_release(seen)
    if not services.has_systemd(seen.around):
        return (
            findings.skipped(
                "unit", "systemd does not run this machine, so nothing is started by itself."
            ),
        )
    if not wanted:
        return ()
    try:
        found = services.ask(seen.around, [unit.name for unit in wanted])
    except around_kit.CannotLook as error:
        return (findings.transient("unit", f"{error}", command="systemctl status 'enlist-*'"),)
    names = {unit.name for unit in wanted}
    return tuple(
        services.judge(
            unit.name,
            found,
            wanted_on=unit.enabled,
            waits=_waits(seen, unit, names=names, states=found),
        )
        for unit in wanted
    )


def _waits(
    seen: seen_kit.Seen,
    unit: units_kit.Unit,
    *,
    names: set[str],
    states: Mapping[str, Mapping[str, str]],
) -> str | None:
    """Why this unit may be inactive; None where it should run."""
    stem, _, kind = unit.name.rpartition(".")
    for wanted in _WAITS_FOR.findall(unit.text):
        missing = _is_missing(seen.around.under(wanted))
        if missing or states.get(unit.name, {}).get("ConditionResult") == "no":
            return f"it waits for {wanted}"
    if kind != "service":
        return None
    if "\nType=oneshot" in unit.text:
        return "it does its work and ends"
    if unit.name == layout_kit.SERVICES[seen.layout.role][0]:
        return None
    if f"{stem}.socket" in names:
        return "its socket starts it when it is asked"
    return None if unit.enabled else "another unit starts it"


def _is_missing(path: pathlib.Path) -> bool:
    """Whether it is surely not there; of what this account may not see systemd knows more."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def mends_of(seen: seen_kit.Seen, found: Sequence[findings.Finding]) -> list[mends.Mend]:
    """Units put as the release has them, systemd told, and what is off turned on."""
    if seen.layout.units is None:
        return []
    wanted = of_release(seen)
    out_of_date = [name for names in differing(seen, wanted) for name in names]
    possible = [
        mends.Mend(
            action="write",
            target=str(seen.layout.units / unit.name),
            detail=f"as release {seen.current.names} has it",
            apply=functools.partial(_write, seen, unit),
        )
        for unit in wanted
        if unit.name in out_of_date
    ]
    if not services.has_systemd(seen.around):
        return possible
    told = {one.command for one in found}
    reload = "sudo systemctl daemon-reload"
    if possible or reload in told:
        possible.append(_systemctl(seen, "daemon-reload", detail="systemd reads its files anew"))
    for unit in wanted:
        states_of = next((one for one in found if one.name == f"unit.{unit.name}"), None)
        is_off = states_of is not None and "enable --now" in (states_of.command or "")
        if unit.enabled and (is_off or unit.name in out_of_date):
            possible.append(
                _systemctl(seen, "enable", unit.name, detail="so that it comes back at boot")
            )
    return possible


def _write(seen: seen_kit.Seen, unit: units_kit.Unit) -> None:
    path = services.unit_file(seen.around, unit.name)
    with releases.alone(seen):
        private_files.write_private(path, unit.text.encode(), mode=_MODE)


def _systemctl(seen: seen_kit.Seen, *arguments: str, detail: str) -> mends.Mend:
    def apply() -> None:
        try:
            said = seen.around.run("systemctl", *arguments, seconds=_CHANGE_SECONDS)
        except around_kit.CannotLook as error:
            raise mends.CannotMend(f"{error}") from error
        if said.code != 0:
            raise mends.CannotMend(said.err.strip()[:200] or f"it ended with {said.code}")

    return mends.Mend(
        action="run", target=f"systemctl {' '.join(arguments)}", detail=detail, apply=apply
    )
