"""Installs a role, or updates it: the same command, which goes on wherever an earlier one ended.

Each step looks at what is there before it makes anything, and the receipt names a thing before it
is made. Where no release is in use yet, the new one becomes it; otherwise the change is watched
and taken back when the new one does not live (`changeover`).
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator

from installer import (
    accounts,
    changeover,
    failures,
    ownership,
    programs,
    selinux,
    switch,
    tree,
    units,
    waiting,
)
from installer import layout as layout_kit
from installer import progress as progress_kit
from installer import receipt as receipt_kit
from installer import release as release_format
from runtime_kit import crash_points, private_files

_FOLDER_MODE = 0o755
_PRIVATE_MODE = 0o700
_KEY_MODE = 0o644
_UNINSTALLER = ("installer", "runtime_kit", "wire_protocol")

RECEIPT_WRITTEN = crash_points.declare(
    "install.receipt", story="The receipt says what is to be made, and nothing is made."
)
ACCOUNTS_MADE = crash_points.declare(
    "install.accounts", story="The accounts are there, and no folder."
)
FOLDERS_MADE = crash_points.declare(
    "install.folders", story="The folders are there, and no release."
)
RELEASE_MADE = crash_points.declare(
    "install.release", story="The release stands in its place, and is not in use."
)
IN_USE = crash_points.declare(
    "install.in-use", story="The first release is in use; no unit is there."
)
UNITS_MADE = crash_points.declare(
    "install.units", story="The units stand in their place and are enabled; none is started."
)
DONE = crash_points.declare("install.done", story="All is made, and the receipt does not say so.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A release whose signature and hashes have been checked: three files of one folder."""

    release: release_format.Release
    install_sh: bytes
    payload: pathlib.Path

    @classmethod
    def in_folder(cls, folder: pathlib.Path) -> "Source":
        """Reads the small ones. Raises `BadRelease`."""
        most = release_format.MOST_BYTES
        release_json = private_files.read_regular(
            folder / release_format.RELEASE, max_bytes=most[release_format.RELEASE]
        )
        return cls(
            release=release_format.parse_release(release_json),
            install_sh=private_files.read_regular(
                folder / release_format.INSTALL_SH, max_bytes=most[release_format.INSTALL_SH]
            ),
            payload=folder / release_format.PAYLOAD,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be installed where."""

    layout: layout_kit.Layout
    source: Source
    release_key: bytes  # PEM
    replace_key: bool = False
    older_allowed: bool = False
    version: str = ""  # the one that was asked for; none: whatever the release says
    archive_name: str = ""  # as it was fetched or found
    packages: tuple[str, ...] = ()


def install(
    wish: Wish,
    *,
    progress: progress_kit.Progress,
    waits: waiting.Waits,
    top: pathlib.Path = ownership.TOP,
) -> changeover.Outcome:
    """Makes it so. Raises `Failure`; run again, it goes on.

    From `top` down nobody but root may have a hand in what root installs.
    """
    layout = wish.layout
    ownership.require(layout, top=top)
    with one_at_a_time(layout):
        before = receipt_kit.find(layout.receipt)
        check(wish, before=before)
        receipt = _plan(wish, before=before)
        receipt_kit.write(receipt, layout=layout)
        crash_points.reach(RECEIPT_WRITTEN)
        if layout.accounts:
            with progress.phase("accounts", f"Accounts: {', '.join(layout.accounts)}"):
                for name in layout.accounts:
                    accounts.ensure(name)
        crash_points.reach(ACCOUNTS_MADE)
        _make_folders(layout)
        crash_points.reach(FOLDERS_MADE)
        with progress.phase("release", f"Release: {wish.source.release.id} to {layout.releases}"):
            _lay_out(wish)
        crash_points.reach(RELEASE_MADE)
        outcome = _put_in_use(wish, before=before, progress=progress, waits=waits)
        _link(layout)
        crash_points.reach(DONE)
        finished = dataclasses.replace(
            receipt_kit.find(layout.receipt) or receipt,  # with the units that were noted since
            release=outcome.release,
            version=outcome.release.partition("-")[0],
            updated_at=receipt_kit.now(),
        )
        receipt_kit.write(finished, layout=layout)
        if outcome.end is changeover.End.CHANGED:
            switch.remove_others(layout)
        return outcome


def check(wish: Wish, *, before: receipt_kit.Receipt | None) -> None:
    """What stands against it, before anything is made. Raises `Failure`."""
    layout, release = wish.layout, wish.source.release
    if release.role != layout.role:
        raise failures.Conflict(f"This archive is for the role {release.role}, not {layout.role}.")
    if release.arch != os.uname().machine:
        raise failures.Conflict(f"This archive is for {release.arch}, not {os.uname().machine}.")
    _require_named(wish)
    known = _known_key(layout)
    if known is not None and known.split() != wish.release_key.split() and not wish.replace_key:
        raise failures.NeedsOperator(
            f"This release is signed by another key than those before it ({layout.release_key}). "
            "If that is meant, name the new key: --release-key FILE"
        )
    if before is None:
        return
    if before.data_dir != layout.data_dir:
        raise failures.Conflict(
            f"The data directory is {before.data_dir}, and does not move: leave --data-dir out."
        )
    if _numbers(release.version) < _numbers(before.version) and not wish.older_allowed:
        raise failures.Conflict(
            f"{before.version} is installed and {release.version} is older. "
            f"If that is meant: --version {release.version}"
        )


def _require_named(wish: Wish) -> None:
    """A signature says who made a release, not which one was asked for: the names must agree."""
    release = wish.source.release
    if wish.version and wish.version != release.version:
        raise failures.Refused(
            f"Version {wish.version} was asked for, and what came is {release.version}: refused."
        )
    named = release_format.name_of(wish.archive_name)
    if named is not None and named != (release.role, release.version, release.arch):
        raise failures.Refused(f"{wish.archive_name} holds {release.archive_name}: refused.")


@contextlib.contextmanager
def one_at_a_time(layout: layout_kit.Layout) -> Iterator[None]:
    """Only one installation or removal of a role at a time. Raises `Temporary`."""
    _make_folder(layout.prefix)
    _make_folder(layout.root)
    descriptor = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise failures.Temporary(
            f"Another installation or removal is at work in {layout.root}."
        ) from None
    finally:
        os.close(descriptor)


def _plan(wish: Wish, *, before: receipt_kit.Receipt | None) -> receipt_kit.Receipt:
    """The receipt of all that there will be; what was there before us is not in it."""
    layout = wish.layout
    now = receipt_kit.now()
    start = before or receipt_kit.Receipt(
        role=layout.role,
        version=wish.source.release.version,
        release=wish.source.release.id,
        prefix=layout.prefix,
        data_dir=layout.data_dir,
        account=layout.account,
        link=layout.link,
        installed_at=now,
        updated_at=now,
    )
    own = [layout.release_key, layout.receipt, layout.current, layout.previous]
    folders = [layout.data_dir, layout.releases, layout.uninstaller, layout.root, layout.prefix]
    return start.adding(
        accounts=[name for name in layout.accounts if accounts.find(name) is None],
        files=own if _others_link(layout) else [*own, layout.link],
        folders=[*([layout.helper] if layout.helper else []), *folders, *_new_parents(layout)],
        packages=wish.packages,
    )


def _new_parents(layout: layout_kit.Layout) -> list[pathlib.Path]:
    """Folders above ours that are not there yet: removed again when they are empty."""
    found = []
    for place in (layout.link, layout.data_dir, layout.prefix):
        found += [parent for parent in place.parents if not parent.exists()]
    return found


def _make_folders(layout: layout_kit.Layout) -> None:
    _make_folder(layout.releases)
    if layout.helper is not None:
        _make_folder(layout.helper.parent)
        _make_folder(layout.helper, mode=_PRIVATE_MODE)
    _make_folder(layout.data_dir.parent)
    _make_folder(layout.data_dir, mode=_PRIVATE_MODE)
    account = accounts.find(layout.account) if layout.account else None
    if account is not None:
        os.chown(layout.data_dir, account.pw_uid, account.pw_gid)


def _make_folder(path: pathlib.Path, *, mode: int = _FOLDER_MODE) -> None:
    """Made with its final mode; one of ours that is there gets it back."""
    if not path.parent.is_dir():
        _make_folder(path.parent)
    try:
        os.mkdir(path, mode)  # noqa: PTH102 - the umask was set, so this is the final mode
    except FileExistsError:
        if not path.is_dir():
            raise failures.Conflict(f"{path} is in the way: a folder is needed there.") from None
        if mode == _PRIVATE_MODE and path.stat().st_mode & 0o077:
            path.chmod(mode)
    except PermissionError as error:
        raise failures.NeedsOperator(
            f"{path} cannot be made: {error.strerror}. Run this as root, or name another --prefix."
        ) from error
    except OSError as error:
        raise failures.NeedsOperator(
            f"{path} cannot be made: {error.strerror}. Choose another place: --prefix, --data-dir."
        ) from error


def _lay_out(wish: Wish) -> None:
    layout, source = wish.layout, wish.source
    with source.payload.open("rb") as payload:
        release_id = tree.lay_out(
            layout,
            release=source.release,
            install_sh=source.install_sh,
            payload=payload,
            python=tree.this_python(),
        )
    private_files.write_private(layout.release_key, wish.release_key, mode=_KEY_MODE)
    version = tree.this_python().version
    site = layout.release(release_id) / "lib" / f"python{version}" / "site-packages"
    aside = layout.root / ".making-uninstaller"
    for folder in (aside, layout.uninstaller):
        shutil.rmtree(folder, ignore_errors=True)
    aside.mkdir(_FOLDER_MODE)
    for name in _UNINSTALLER:
        shutil.copytree(site / name, aside / name, ignore=shutil.ignore_patterns("__pycache__"))
    aside.rename(layout.uninstaller)


def _put_in_use(
    wish: Wish,
    *,
    before: receipt_kit.Receipt | None,
    progress: progress_kit.Progress,
    waits: waiting.Waits,
) -> changeover.Outcome:
    layout, release_id = wish.layout, wish.source.release.id
    _require_start(layout, release_id)
    proven = before.release if before and switch.current(layout) else None
    new_units = units.of_release(layout, release_id)
    _note_units(layout, [unit.name for unit in new_units])
    if proven and (proven != release_id or switch.current(layout) != release_id):
        with progress.phase("change", f"Changing to {release_id}, and watching it"):
            outcome = changeover.change(
                layout, to=release_id, services=changeover.Systemd(), waits=waits
            )
        selinux.relabel(layout)
        return outcome
    switch.to_release(layout, release_id)
    crash_points.reach(IN_USE)
    selinux.relabel(layout)
    if new_units:
        with progress.phase("units", f"Units: {', '.join(unit.name for unit in new_units)}"):
            changed = units.write(layout, new_units)
            units.enable(new_units)
            crash_points.reach(UNITS_MADE)
            units.start(new_units, again=changed)
            reason = _come_up(layout, new_units, waits=waits)
        if reason:
            return changeover.Outcome(end=changeover.End.STUCK, release=release_id, reason=reason)
    return changeover.Outcome(end=changeover.End.CHANGED, release=release_id)


def _come_up(layout: layout_kit.Layout, made: list[units.Unit], *, waits: waiting.Waits) -> str:
    """Waits for the services of a Platform; an Agent starts when its machine has joined."""
    if layout.role is not layout_kit.Role.PLATFORM or not units.is_running():
        return ""
    enabled = {unit.name for unit in made if unit.enabled}
    names = tuple(name for name in layout_kit.SERVICES[layout.role] if name in enabled)
    services = changeover.Systemd()
    return changeover.Watch(services=services, waits=waits, steady_seconds=0).lives(names)


def _require_start(layout: layout_kit.Layout, release_id: str) -> None:
    """A release that cannot even say its version is not put in use."""
    command = layout.release(release_id) / "bin" / "enlist"
    try:
        programs.run([str(command), "--version"])
    except programs.ProgramFailed as error:
        raise failures.Refused(f"The new release does not run on this machine: {error}") from error


def _note_units(layout: layout_kit.Layout, names: list[str]) -> None:
    receipt = receipt_kit.find(layout.receipt)
    if receipt is not None and names:
        paths = [units.path_of(layout, name) for name in names]
        receipt_kit.write(receipt.adding(units=names, files=paths), layout=layout)


def _link(layout: layout_kit.Layout) -> None:
    """The command's name for people; a Platform's stands before a worker's."""
    if _others_link(layout):
        return
    with contextlib.suppress(FileExistsError):
        layout.link.parent.mkdir(mode=_FOLDER_MODE, parents=True)
    aside = layout.link.with_name(".tmp-enlist")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    aside.symlink_to(layout.command)
    aside.rename(layout.link)


def has_link(layout: layout_kit.Layout) -> bool:
    """Whether `enlist`, typed by a person, is one of ours: this role's, or the Platform's."""
    try:
        target = os.readlink(layout.link)  # noqa: PTH115 - compared as text
    except OSError:
        return False
    commands = [layout.prefix / role / "current" / "bin" / "enlist" for role in layout_kit.Role]
    others = layout_kit.system(layout_kit.Role.PLATFORM).command
    return target in {str(one) for one in (*commands, others)}


def _others_link(layout: layout_kit.Layout) -> bool:
    """Whether the link is, or must stay, another's."""
    try:
        target = os.readlink(layout.link)  # noqa: PTH115 - compared as text
    except FileNotFoundError:
        return False
    except OSError:  # a file of somebody else's
        return True
    if target == str(layout.command):
        return False
    platform = layout.prefix / layout_kit.Role.PLATFORM
    ours = target.startswith(f"{layout.prefix}/")
    return not ours or (layout.role is layout_kit.Role.WORKER and platform.is_dir()
                        and target.startswith(f"{platform}/"))  # fmt: skip


def _known_key(layout: layout_kit.Layout) -> bytes | None:
    try:
        return private_files.read_regular(layout.release_key, max_bytes=4096)
    except FileNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
