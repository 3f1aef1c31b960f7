"""Takes a role away again: what the receipt names, in the reverse order of its making.

May be run again at any point, with pieces missing, and without the Platform: what is gone is passed
over, and what cannot be removed is told at the end while the rest goes. The receipt goes last.
Local machines are somebody's work and outlive the Platform, which alone knows their nodes: while
there are any nothing is removed, unless the operator says that they go as well.
Where it is gone before, our own names say what to look for. The installer's own code is removed by
whoever started it, since it runs from there (install.sh).
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from installer import (
    accounts,
    failures,
    firewall,
    install,
    joining,
    local_machines,
    ownership,
    programs,
    units,
    waiting,
)
from installer import layout as layout_kit
from installer import progress as progress_kit
from installer import receipt as receipt_kit
from runtime_kit import crash_points

LEAVE_SECONDS = 30.0
_MOST_SAID = 300
_LEFT_ASIDE = (".incoming-", ".making-", ".tmp-")  # by an update or a write that was killed

LEFT = crash_points.declare("uninstall.left", story="The Platform was told; all is still here.")
STOPPED = crash_points.declare("uninstall.units", story="The units are gone, the files are here.")
MACHINES_GONE = crash_points.declare(
    "uninstall.machines", story="Local machines and their images are gone."
)
DATA_GONE = crash_points.declare("uninstall.data", story="The data directory is gone.")
RELEASES_GONE = crash_points.declare(
    "uninstall.releases", story="Accounts and releases are gone; receipt and uninstaller are here."
)


def uninstall(
    layout: layout_kit.Layout,
    *,
    progress: progress_kit.Progress,
    waits: waiting.Waits,
    leave_seconds: float = LEAVE_SECONDS,
    top: pathlib.Path = ownership.TOP,
    with_machines: bool = False,
) -> list[str]:
    """Removes all of it; gives what could not be removed, a sentence each.

    As root it believes no receipt in which others have a hand, from `top` down. Raises
    `NeedsOperator`, with nothing removed, while there are local machines; `with_machines` ends and
    removes them.
    """
    ownership.require(layout, top=top)
    if not with_machines:
        _require_no_machines(layout)
    receipt = _receipt(layout)
    removal = _Removal(layout, receipt, waits=waits)
    with install.one_at_a_time(layout):
        if layout.role is layout_kit.Role.WORKER and joining.joined(layout):
            with progress.phase("leave", "Telling the Platform"):
                said = _leave(layout, seconds=leave_seconds)
                if said:
                    progress.say(said)
        crash_points.reach(LEFT)
        with progress.phase("units", f"Units: {', '.join(receipt.units) or 'none'}"):
            removal.units_and_ports()
        crash_points.reach(STOPPED)
        if layout.machines is not None:
            with progress.phase("machines", f"Local machines: {layout.machines}"):
                removal.machines(progress, with_machines=with_machines)
        crash_points.reach(MACHINES_GONE)
        with progress.phase("data", f"Data: {layout.data_dir}"):
            removal.data()
        crash_points.reach(DATA_GONE)
        with progress.phase("files", f"Files: {layout.root}"):
            removal.files_and_accounts()
        crash_points.reach(RELEASES_GONE)
        if not removal.problems:
            _remove_rest(layout, receipt)
    return removal.problems


class _Removal:
    """The steps, each of which goes on after something that cannot be removed."""

    def __init__(
        self, layout: layout_kit.Layout, receipt: receipt_kit.Receipt, *, waits: waiting.Waits
    ) -> None:
        self._layout = layout
        self._receipt = receipt
        self._waits = waits
        self.problems: list[str] = []

    def units_and_ports(self) -> None:
        self._step(units.remove, self._layout, list(self._receipt.units))
        for opened in self._receipt.firewall:
            self._step(firewall.close, opened)

    def machines(self, progress: progress_kit.Progress, *, with_machines: bool) -> None:
        """Last of all units: the helper, which is stopped by now, makes no more of them."""
        machines, images = self._layout.machines, self._layout.images
        if machines is None or images is None:
            return
        if with_machines:
            self._step(_end_machines, machines, progress)
        left = local_machines.names(machines)
        if left:
            self.problems.append(f"{local_machines.shown(left)} in {machines}.")
            return
        for folder in (machines, images):
            self._step(local_machines.remove, folder)
        with contextlib.suppress(OSError):  # gone, or not empty: somebody else's
            images.parent.rmdir()

    def data(self) -> None:
        for name in self._receipt.accounts:
            self._step(accounts.end_processes, name, waits=self._waits)
        self._step(_remove_tree, self._layout.data_dir)
        if self._layout.helper is not None:
            self._step(_remove_tree, self._layout.helper)

    def files_and_accounts(self) -> None:
        layout = self._layout
        self._step(_give_link, layout)
        for path in map(pathlib.Path, self._receipt.files):
            if path not in {layout.receipt, layout.link}:
                self._step(_remove_file, path)
        self._step(_remove_tree, layout.releases)
        for path in sorted(layout.root.glob(".*")):
            if path.name.startswith(_LEFT_ASIDE):
                self._step(_remove_tree if path.is_dir() else _remove_file, path)
        for name in self._receipt.accounts:
            self._step(accounts.remove, name)

    def _step(self, work: Callable[..., None], *arguments: Any, **named: Any) -> None:
        try:
            work(*arguments, **named)
        except (programs.ProgramFailed, OSError) as error:
            self.problems.append(str(error))


def _end_machines(folder: pathlib.Path, progress: progress_kit.Progress) -> None:
    for name in local_machines.end(folder):
        progress.say(f"Ended and removed the local machine {name}")


def _require_no_machines(layout: layout_kit.Layout) -> None:
    found = local_machines.names(layout.machines) if layout.machines is not None else []
    if found:
        raise failures.NeedsOperator(
            f"{local_machines.shown(found)} of this Platform's host are in {layout.machines}, and "
            "nothing was removed. Delete them first (enlist cloud machines list, enlist cloud "
            "machines delete NODE), or run the same command with --remove-machines, which ends "
            "them with all their data."
        )


def plan(layout: layout_kit.Layout, *, with_machines: bool = False) -> list[str]:
    """What a removal would do, a line each. Raises `NeedsOperator` as the removal does."""
    if not with_machines:
        _require_no_machines(layout)
    receipt = _receipt(layout)
    lines = []
    if layout.role is layout_kit.Role.WORKER and joining.joined(layout):
        lines.append("tell the Platform: enlist worker leave")
    lines += [f"stop and remove the unit {name}" for name in receipt.units]
    lines += [f"run: {' '.join(opened.undo)}" for opened in receipt.firewall]
    if layout.machines is not None:
        found = local_machines.names(layout.machines)
        lines += [f"end and remove the local machine {name}" for name in found]
    places = (layout.machines, layout.images, layout.data_dir, layout.helper, layout.root)
    lines += [f"remove {folder}" for folder in places if folder]
    lines.append(f"remove {layout.link}")
    lines += [f"remove the account {name}" for name in receipt.accounts]
    return lines


def _remove_rest(layout: layout_kit.Layout, receipt: receipt_kit.Receipt) -> None:
    """The folders that hold nothing else any more; install.sh takes the rest of its own."""
    known = {pathlib.Path(one) for one in receipt.folders}
    if layout.data_dir.parent == layout_kit.DEFAULT_DATA:
        known.add(layout.data_dir.parent)
    for folder in sorted(known, key=lambda one: len(one.parts), reverse=True):
        # Not empty: the other role's, or somebody else's.
        with contextlib.suppress(OSError):
            folder.rmdir()


def _receipt(layout: layout_kit.Layout) -> receipt_kit.Receipt:
    """The receipt; where it is gone or cannot be read, what is here by our names."""
    try:
        return receipt_kit.find(layout.receipt) or _by_our_names(layout)
    except receipt_kit.Unreadable as error:
        sys.stderr.write(f"enlist: {error} Removing what has our names.\n")
        return _by_our_names(layout)


def _by_our_names(layout: layout_kit.Layout) -> receipt_kit.Receipt:
    """What there is to remove where the receipt is gone."""
    names: list[str] = []
    if layout.units is not None and layout.units.is_dir():
        ours = f"{layout.root}/"
        for entry in sorted(layout.units.glob("enlist-*")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if entry.is_file() and ours in entry.read_text():
                    names.append(entry.name)
    made = [name for name in layout.accounts if accounts.find(name) is not None]
    files = [layout.current, layout.previous, layout.release_key]
    return receipt_kit.Receipt(
        role=layout.role,
        version="",
        release="",
        prefix=layout.prefix,
        data_dir=layout.data_dir,
        account=layout.account,
        link=layout.link,
        installed_at="",
        updated_at="",
        accounts=tuple(made),
        files=tuple(str(one) for one in files),
        units=tuple(names),
    )


def _leave(layout: layout_kit.Layout, *, seconds: float) -> str:
    """Empty when the Platform was told; what stood against it otherwise, for people."""
    command = [str(layout.command), "--data-dir", str(layout.data_dir), "--yes", "worker", "leave"]
    account = accounts.find(layout.account) if layout.account else None
    who = (
        {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        if account is not None and os.geteuid() == 0
        else {}
    )
    hint = "The Platform was not told: there, run enlist nodes remove ID --force."
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            cwd="/",
            env=programs.environment(HOME="/"),
            start_new_session=True,
            **who,
        )
    except subprocess.TimeoutExpired:
        return f"It did not answer within {seconds:.0f} s. {hint}"
    except OSError as error:
        return f"{layout.command} cannot be run: {error.strerror}. {hint}"
    if done.returncode == 0:
        return ""
    return f"{programs.printable(done.stderr.strip()[-_MOST_SAID:])} {hint}"


def _give_link(layout: layout_kit.Layout) -> None:
    """The link goes to the other role where that stands; else away, if it is ours."""
    try:
        target = os.readlink(layout.link)  # noqa: PTH115 - compared as text
    except OSError:  # gone, or a file of somebody else's
        return
    if target != str(layout.command):
        return
    for role in layout_kit.Role:
        other = layout.prefix / role / "current" / "bin" / "enlist"
        if role is not layout.role and other.exists():
            aside = layout.link.with_name(".tmp-enlist")
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
            aside.symlink_to(other)
            aside.rename(layout.link)
            return
    layout.link.unlink()


def _remove_file(path: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def _remove_tree(path: pathlib.Path) -> None:
    """A mount point is emptied and stays."""
    if path.is_symlink():
        path.unlink()
        return
    if not path.exists():
        return
    if not os.path.ismount(path):
        shutil.rmtree(path)
        return
    for entry in list(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    sys.stderr.write(f"enlist: {path} is a mount point: emptied, and left\n")
