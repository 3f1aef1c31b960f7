"""The worker's files: owners, modes, damage, what killed programs left; and what may be mended."""

import os
import stat

from runtime_kit import file_rules, mends, private_files
from wire_protocol import findings
from worker_agent.doctor import seen as seen_kit
from worker_agent.settings import paths

_MOST_NAMED = 5


def rules_of(where: paths.Paths) -> list[file_rules.Rule]:
    """Owner and mode of everything a worker keeps."""
    files = (*where.private_files(), *where.later_files(), where.lock, where.agent_lock)
    return [
        file_rules.folder("."),
        file_rules.folder(str(where.identity.relative_to(where.folder))),
        *(file_rules.file(str(path.relative_to(where.folder))) for path in files),
    ]


def files(seen: seen_kit.Seen) -> tuple[findings.Finding, ...]:
    """Owners, modes, damage, and what does not belong here."""
    where = seen.where
    command = f"enlist doctor --fix --data-dir {where.folder}"
    faults = file_rules.examine(where.folder, rules_of(where), uid=seen.uid)
    if seen.faults:
        return (
            findings.needs_operator(
                "files",
                " ".join(seen.faults[:_MOST_NAMED]),
                command="enlist worker join -   (with a new token for the same node)",
            ),
        )
    if faults:
        first, *more = faults
        rest = f" And {len(more)} more." if more else ""
        exposed = (
            " If somebody may have read it, remove the node and join again."
            if any(one.exposed for one in faults)
            else ""
        )
        return (
            findings.needs_operator(
                "files",
                f"{first.text}{rest}{exposed}",
                command=command if first.mend else first.command,
                facts={"faults": [one.text for one in faults]},
            ),
        )
    aside = stale(where)
    if aside:
        return (
            findings.warning(
                "files",
                f"{len(aside)} files were left by programs that were killed while they wrote.",
                command=command,
                facts={"left": aside},
            ),
        )
    foreign = _foreign(where)
    if foreign:
        return (
            findings.warning(
                "files",
                f"{where.folder} holds what is not Enlist's: {', '.join(foreign[:_MOST_NAMED])}.",
                command=f"ls -la {where.folder}",
            ),
        )
    return (findings.ok("files", f"Owners and modes are right in {where.folder}."),)


def mends_of(seen: seen_kit.Seen) -> list[mends.Mend]:
    """Owners and modes, and what killed programs left."""
    where = seen.where
    found = file_rules.examine(where.folder, rules_of(where), uid=seen.uid)
    possible = [one.mend for one in found if one.mend is not None]
    if stale(where):
        possible.append(
            mends.Mend(
                action="remove",
                target=str(where.folder / ".tmp-*"),
                detail="files that killed programs left",
                apply=lambda: _sweep(where),
            )
        )
    return possible


def stale(where: paths.Paths) -> list[str]:
    """What writers that are no more left aside; one that still writes holds a lock."""
    found: list[str] = []
    for folder in (where.folder, where.identity):
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
        except OSError:
            continue
        found += [
            str(folder / name)
            for name in names
            if private_files.aside_of(name) not in (None, where.session.name)  # that has no lock
            and private_files.is_left(folder / name)
        ]
    return found


def _sweep(where: paths.Paths) -> None:
    for path in (*where.private_files(), *where.later_files()):
        private_files.sweep(path)


def _foreign(where: paths.Paths) -> list[str]:
    known = {path.name for path in where.entries()}
    return sorted(
        entry.name
        for entry in where.folder.iterdir()
        if entry.name not in known
        and private_files.aside_of(entry.name) is None
        and entry.name != "lost+found"
    )


def is_visible(where: paths.Paths) -> bool:
    """Whether this account may look into the folder."""
    info = where.folder.stat()
    return os.geteuid() in (0, info.st_uid) or bool(stat.S_IMODE(info.st_mode) & 0o005 == 0o005)
