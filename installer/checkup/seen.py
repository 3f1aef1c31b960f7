"""What is read of an installation before it is judged: its receipt, its links, its release.

Nothing is believed that was not read: a receipt that is gone or damaged leaves the places of the
default layout, so that everything else can still be looked at.
Known limit: an installation with a prefix of its own is found by the command that runs this, by
the link in the search path or by its units; one of which all three are gone is not found.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence

from installer import layout as layout_kit
from installer import receipt as receipt_kit
from installer import release as release_kit
from installer import tree
from installer.checkup import around as around_kit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to a release: `names` is the release's id, None where the link is no such link."""

    path: pathlib.Path
    is_there: bool
    names: str | None
    is_whole: bool  # the release has its two lists, and its id is the hash of what it says


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One role as it was found."""

    around: around_kit.Around
    environment: Mapping[str, str]
    layout: layout_kit.Layout
    receipt: receipt_kit.Receipt | None
    receipt_fault: str | None
    current: Link
    previous: Link
    entries: tuple[str, ...]  # of the role's folder
    releases: tuple[str, ...]  # every entry of the folder, whole or not
    release: release_kit.Release | None  # what the release in use says of itself

    @property
    def role(self) -> str:
        """`worker` or `platform`."""
        return self.layout.role.value

    @property
    def is_system(self) -> bool:
        """Whether root installed it for the machine; else a plain user did for himself."""
        return self.layout.account is not None

    @property
    def here(self) -> layout_kit.Layout:
        """The same places as they lie for us: what a mend works on."""
        layout = self.layout
        return dataclasses.replace(
            layout,
            prefix=self.under(layout.prefix),
            data_dir=self.under(layout.data_dir),
            link=self.under(layout.link),
            units=None if layout.units is None else self.under(layout.units),
            helper=None if layout.helper is None else self.under(layout.helper),
        )

    @property
    def owner(self) -> int:
        """Whose the installed files must be."""
        return self.around.root_uid if self.is_system else self.here.root.stat().st_uid

    @property
    def may_mend(self) -> bool:
        """Root mends what root installed; what a plain user installed, he himself alone."""
        return os.geteuid() == self.owner

    def fix(self) -> str:
        """The command that mends what is safe, by a program that starts as things are."""
        program = "enlist"
        if not (os.path.lexists(self.here.link) and self.current.is_whole):
            names = (self.current.names, self.previous.names, *self.releases)
            whole = (one for one in names if one and is_whole(self.around, self.layout, one))
            found = next(whole, None)
            if found is not None:
                program = str(self.layout.release(found) / "bin" / "enlist")
        return f"{'sudo ' if self.is_system else ''}{program} doctor --fix"

    @property
    def release_folder(self) -> pathlib.Path | None:
        """Where the release in use lies for us."""
        if self.current.names is None:
            return None
        return self.under(self.layout.release(self.current.names))

    def under(self, path: pathlib.PurePath) -> pathlib.Path:
        """Where a path of the machine lies for us."""
        return self.around.under(path)

    def reinstall(self) -> str:
        """The command that puts a release in its place again; data and identity stay."""
        script: pathlib.PurePath = self.layout.current / release_kit.INSTALL_SH
        sudo, place = ("sudo ", "") if self.is_system else ("", f" --prefix {self.layout.prefix}")
        if self.current.names is None or not self.under(script).is_file():
            script = pathlib.PurePath(release_kit.INSTALL_SH)
        return (
            f"{sudo}sh {script} --role {self.role}{place} --from FOLDER   "
            "(FOLDER: where the release lies, or its https address)"
        )


def find(
    around: around_kit.Around, *, prefixes: Sequence[pathlib.Path], environment: Mapping[str, str]
) -> list[Seen]:
    """Each role that lies below one of the prefixes; raises `PermissionError`."""
    return [
        look(around, prefix=prefix, role=role, environment=environment)
        for prefix in prefixes
        for role in layout_kit.Role
        if os.path.lexists(around.under(prefix / role)) or _has_units(around, prefix, role)
    ]


def _has_units(around: around_kit.Around, prefix: pathlib.Path, role: layout_kit.Role) -> bool:
    """Whether units stand there without an installation, as a removal that was cut off leaves."""
    main = layout_kit.UNITS_FOLDER / layout_kit.SERVICES[role][0]
    return prefix == layout_kit.DEFAULT_PREFIX and os.path.lexists(around.under(main))


def prefixes_of(
    around: around_kit.Around, *, running: pathlib.Path, environment: Mapping[str, str]
) -> list[pathlib.Path]:
    """Where installations may lie: the default, what runs this command, what the links lead to."""
    links = [layout_kit.SYSTEM_LINK]
    home = environment.get("HOME", "")
    if home.startswith("/") and home.strip("/"):
        links.append(pathlib.Path(home) / ".local" / "bin" / "enlist")
    found = [layout_kit.DEFAULT_PREFIX]
    # <prefix>/<role>/releases/<id> is the environment that runs, <prefix>/<role>/current/bin/enlist
    # what a link leads to.
    if running.parent.name == "releases":
        found.append(running.parents[2])
    for link in links:
        try:
            target = pathlib.Path(os.readlink(around.under(link)))  # noqa: PTH115 - as it is written
        except OSError:
            continue
        if target.is_absolute() and target.parts[-3:] == ("current", "bin", "enlist"):
            found.append(target.parents[3])
    return list(dict.fromkeys(found))


def look(
    around: around_kit.Around,
    *,
    prefix: pathlib.Path,
    role: layout_kit.Role,
    environment: Mapping[str, str],
) -> Seen:
    """Reads one role; raises `PermissionError` where this account may not look."""
    receipt, fault = None, None
    try:
        receipt = receipt_kit.find(around.under(prefix / role / "receipt.json"))
    except receipt_kit.Unreadable as error:
        fault = f"{error}"
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        fault = f"{prefix / role / 'receipt.json'} cannot be read: {error.strerror}"
    is_system = prefix == layout_kit.DEFAULT_PREFIX if receipt is None else bool(receipt.account)
    layout = _layout(receipt, prefix=prefix, role=role, system=is_system, environment=environment)
    current = _link(around, layout, layout.current)
    return Seen(
        around=around,
        environment=environment,
        layout=layout,
        receipt=receipt,
        receipt_fault=fault,
        current=current,
        previous=_link(around, layout, layout.previous),
        entries=_entries(around.under(layout.root)),
        releases=_entries(around.under(layout.releases)),
        release=_release(around, layout, current.names),
    )


def look_again(seen: Seen) -> Seen:
    """The same role as it is now, after something was mended."""
    return look(
        seen.around,
        prefix=seen.layout.prefix,
        role=seen.layout.role,
        environment=seen.environment,
    )


def _layout(
    receipt: receipt_kit.Receipt | None,
    *,
    prefix: pathlib.Path,
    role: layout_kit.Role,
    system: bool,
    environment: Mapping[str, str],
) -> layout_kit.Layout:
    if receipt is not None and (receipt.role, receipt.prefix) == (role, prefix):
        return receipt_kit.layout_of(receipt, system=system, environment=environment)
    if system:
        return layout_kit.system(role, prefix=prefix)
    return layout_kit.rootless(role, prefix=prefix, environment=environment)


def _entries(folder: pathlib.Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in os.scandir(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _link(around: around_kit.Around, layout: layout_kit.Layout, path: pathlib.Path) -> Link:
    try:
        target = pathlib.Path(os.readlink(around.under(path)))  # noqa: PTH115 - as it is written
    except (FileNotFoundError, NotADirectoryError):
        return Link(path=path, is_there=False, names=None, is_whole=False)
    except OSError:  # it is no link
        return Link(path=path, is_there=True, names=None, is_whole=False)
    name = target.name
    is_ours = target in (layout.release(name), layout.release(name).relative_to(layout.root))
    names = name if is_ours else None
    return Link(
        path=path,
        is_there=True,
        names=names,
        is_whole=names is not None and is_whole(around, layout, names),
    )


def is_whole(around: around_kit.Around, layout: layout_kit.Layout, release_id: str) -> bool:
    """Whether a release is one that was put there to its end, by its own two lists."""
    release = _release(around, layout, release_id)
    folder = around.under(layout.release(release_id))
    return (
        release is not None
        and (release.id, release.role) == (release_id, layout.role.value)
        and (folder / tree.FILES).is_file()
        and os.path.lexists(folder / "bin" / "python")
    )


def _release(
    around: around_kit.Around, layout: layout_kit.Layout, release_id: str | None
) -> release_kit.Release | None:
    if release_id is None:
        return None
    path = around.under(layout.release(release_id)) / release_kit.RELEASE
    try:
        content = around_kit.read(path, most=release_kit.MOST_BYTES[release_kit.RELEASE])
        return release_kit.parse_release(content)
    except (OSError, around_kit.CannotLook, release_kit.BadRelease):
        return None
