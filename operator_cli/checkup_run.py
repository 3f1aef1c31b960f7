"""A run of `enlist doctor`: what is here, all questions at once, mending, telling, packing."""

import asyncio
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from installer.checkup import checkup as installation
from operator_cli import checkup_lines, checkups, global_options, lazy, printing, support_archive
from runtime_kit import clock as clock_kit
from runtime_kit import mends, side_by_side
from wire_protocol import findings, problems, product

# What only the one or the other keeps in its data directory.
_MARKS = {
    "platform": ("master.key", "enlist.db", "run/host.lock"),
    "worker": ("agent.json", "join.json", "trust.json", "identity"),
}
_SYSTEM = pathlib.Path("/var/lib/enlist")
_MOST_ROUNDS = 3  # the release in use, what it says of files and units, and one to spare


class _NothingHere:
    """Neither a Platform nor a worker: that is a finding too."""

    place = "installation"

    def __init__(self, folders: Sequence[pathlib.Path], *, closed: bool) -> None:
        self.title = "this machine"
        shown = " nor ".join(str(folder) for folder in folders)
        self._finding = (
            findings.needs_operator(
                "data-dir",
                f"{folders[0]} cannot be looked into by this account.",
                command=f"sudo enlist doctor --data-dir {folders[0]}",
            )
            if closed
            else findings.needs_operator(
                "data-dir",
                f"Neither a Platform nor a worker keeps its data in {shown}."
                if len(folders) == 1
                else f"Neither a Platform nor a worker keeps its data here: not in {shown}.",
                command="enlist worker join -   (or enlist serve, or name the --data-dir)",
            )
        )

    def jobs(self) -> list[side_by_side.Job[checkups.Found]]:
        """One question whose answer is known."""

        async def answer() -> checkups.Found:
            return (self._finding,)

        return [side_by_side.Job(name="data-dir", work=answer, seconds=1.0)]

    def mends(self, found: Sequence[findings.Finding], /) -> list[mends.Mend]:
        """Nothing."""
        del found
        return []

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """Nothing."""
        return iter(())


def run(*, fix: bool, bundle: str | None, verbose: bool) -> int:
    """Looks, mends where asked, tells, packs; gives the exit code."""
    options = global_options.current()
    if options.platform is not None:
        raise click.UsageError(
            "enlist doctor looks at this machine: leave --platform away, and run it there."
        )
    found_here = _here(options)
    reports: Sequence[checkups.Report] = asyncio.run(checkups.run(found_here))
    more: dict[str, Any] = {}
    if fix:
        if options.check:
            possible = checkups.possible(found_here, reports)
            planned = [checkups.Done(mend=mend, failed=None) for mend in possible]
            more = {"check": True, "changes": [one.to_wire() for one in planned]}
        else:
            reports, done = _mended(found_here, reports)
            more = {"changes": [one.to_wire() for one in done]}
    every = [finding for report in reports for finding in report.found]
    document = {**findings.document(every, version=product.VERSION), **more}
    if bundle is not None:
        document["bundle"] = _pack(bundle, document=document, here=found_here, options=options)
    printing.show(document, lines=lambda: _lines(reports, document=document, verbose=verbose))
    return int(findings.exit_code(every))


def _mended(
    found_here: Sequence[checkups.Checkup], reports: Sequence[checkups.Report]
) -> tuple[Sequence[checkups.Report], list[checkups.Done]]:
    """Mends, and looks again: what is wrong behind a fault shows once that is mended."""
    done: list[checkups.Done] = []
    for _ in range(_MOST_ROUNDS):
        known = {(one.mend.action, one.mend.target) for one in done}
        possible = [
            mend
            for mend in checkups.possible(found_here, reports)
            if (mend.action, mend.target) not in known
        ]
        if not possible:
            break
        done += checkups.mend_all(possible, tell=_tell)
        reports = asyncio.run(checkups.run(found_here))
    return reports, done


def _lines(
    reports: Sequence[checkups.Report], *, document: Mapping[str, Any], verbose: bool
) -> Iterator[str]:
    yield from checkup_lines.of(reports, verbose=verbose)
    if document.get("check"):
        yield from printing.changes(document, check=True)


def _tell(done: checkups.Done) -> None:
    wire = done.to_wire()
    printing.say(f"{wire['action']} {wire['target']}: {wire['detail']}")


def _pack(
    file: str,
    *,
    document: Mapping[str, Any],
    here: Sequence[checkups.Checkup],
    options: global_options.Options,
) -> str | None:
    path = pathlib.Path(file).absolute()
    if options.check:
        printing.say(f"Would write {path}; nothing has been written.")
        return None

    def parts() -> Iterator[tuple[str, bytes]]:
        yield "findings.json", json.dumps(document, indent=2).encode()
        yield from support_archive.of_machine(options.environment)
        for one in here:
            for name, content in one.parts():
                yield f"{one.place}/{name}", content

    try:
        count = support_archive.write(path, parts(), now=clock_kit.SystemClock().now())
    except OSError as error:
        raise CannotPack(f"The archive {path} cannot be written: {error.strerror}.") from error
    printing.say(
        f"Wrote {path} ({count} files, mode 0600). It holds no secret; it does hold addresses and "
        "names, so look at it before you hand it on."
    )
    return str(path)


class CannotPack(click.ClickException):
    """The archive cannot be written there: name another file."""

    exit_code = int(problems.Exit.INVALID)


def _here(options: global_options.Options) -> list[checkups.Checkup]:
    """The checkups of what is installed here, and of whatever keeps its data here."""
    named = options.data_dir or options.environment.get("ENLIST_DATA_DIR")
    installed = installation.find(running=pathlib.Path(sys.prefix), environment=options.environment)
    if named:
        given = pathlib.Path(named).expanduser().absolute()
        folders = dict.fromkeys(_MARKS, given)
        installed = [one for one in installed if one.data_dir == given]
    else:
        base = _SYSTEM if os.geteuid() == 0 else _of_user(options.environment)
        folders = {place: base / place for place in _MARKS}
        folders.update({one.role: one.data_dir for one in installed})
    found = [
        _load(
            place,
            folder,
            options,
            start_command=next((one.start_command for one in installed if one.role == place), None),
        )
        for place, folder in folders.items()
        if any(os.path.lexists(folder / mark) for mark in _MARKS[place])
        or (not named and _is_closed(folder))
    ]
    if installed or found:
        return [*installed, *found]
    unique = list(dict.fromkeys(folders.values()))
    return [_NothingHere(unique, closed=_is_closed(unique[0]))]


def _of_user(environment: Mapping[str, str]) -> pathlib.Path:
    state = environment.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = f"{environment.get('HOME', '/')}/.local/state"
    return pathlib.Path(state) / "enlist"


def _is_closed(folder: pathlib.Path) -> bool:
    """Whether it is there, and this account may not look into it or not even come there."""
    try:
        folder.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(folder, os.R_OK | os.X_OK)


def _load(
    place: str,
    folder: pathlib.Path,
    options: global_options.Options,
    *,
    start_command: str | None,
) -> checkups.Checkup:
    if place == "worker":
        legs = importlib.import_module("worker_agent.doctor.legs")
        around = legs.Around(clock=clock_kit.SystemClock(), environment=dict(options.environment))
        made: checkups.Checkup = importlib.import_module("worker_agent.doctor.checkup").of(
            folder, around=around
        )
        return made
    try:
        of = importlib.import_module("platform_server.app.doctoring").of
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise lazy.MissingPackages(missing) from error
    platform: checkups.Checkup = of(
        folder,
        clock=clock_kit.SystemClock(),
        environment=dict(options.environment),
        start_command=start_command,
    )
    return platform
