"""The systemd units of a role: rendered, enabled, started, watched, and taken away again.

The unit files of a release name the default places; where others were chosen they are replaced
literally. A unit with an `[Install]` section is enabled and started; the rest are started by those.
Where systemd does not run, as in an image that is being built, units are enabled and start at the
next boot.
"""

import contextlib
import dataclasses
import pathlib
import re

from installer import layout as layout_kit
from installer import programs
from runtime_kit import private_files

_RUNNING = pathlib.Path("/run/systemd/system")
_NAME = re.compile(r"[a-z0-9@-]+\.(service|socket|path|timer|target)")
_INSTALL = re.compile(r"^\[Install\]", re.MULTILINE)
_MOST_BYTES = 64 * 1024
_STOP_SECONDS = 120.0
_MODE = 0o644


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit as it stands on this machine."""

    name: str
    text: str

    @property
    def enabled(self) -> bool:
        """Whether it is started at boot."""
        return _INSTALL.search(self.text) is not None


def of_release(layout: layout_kit.Layout, release_id: str) -> list[Unit]:
    """The units of a release, for the places of this machine."""
    folder = layout.release(release_id) / "systemd" / layout.role
    if layout.units is None or not folder.is_dir():
        return []
    return [
        Unit(name=path.name, text=render(_read(path), layout=layout))
        for path in sorted(folder.iterdir())
        if _NAME.fullmatch(path.name)
    ]


def render(text: str, *, layout: layout_kit.Layout) -> str:
    """The same unit with the places that were chosen."""
    default = layout_kit.DEFAULT_DATA / layout.role
    # The longer path first: it may stand below the shorter one.
    text = text.replace(str(default), "\0data\0")
    text = text.replace(str(layout_kit.DEFAULT_PREFIX), str(layout.prefix))
    return text.replace("\0data\0", str(layout.data_dir))


def write(layout: layout_kit.Layout, units: list[Unit]) -> list[str]:
    """Puts the units in their place; gives the names of those that were not there as they are."""
    changed = []
    for unit in units:
        path = path_of(layout, unit.name)
        if _present(path) != unit.text:
            private_files.write_private(path, unit.text.encode(), mode=_MODE)
            changed.append(unit.name)
    if changed:
        reload_manager()
    return changed


def enable(units: list[Unit]) -> None:
    """Has them started at boot."""
    names = [unit.name for unit in units if unit.enabled]
    if names:
        systemctl("enable", *names)


def start(units: list[Unit], *, again: list[str]) -> None:
    """Starts those that are enabled; sockets, paths and timers in `again` are started anew.

    A service that starts with one of its own is not waited for.
    """
    if not is_running():
        return
    for unit in sorted(units, key=lambda one: _last(one.name)):
        if not unit.enabled:
            continue
        if unit.name in again and not unit.name.endswith(".service"):
            systemctl("stop", unit.name)
        if unit.name.endswith(".service"):
            systemctl("start", "--no-block", unit.name)
        else:
            systemctl("start", unit.name)


def remove(layout: layout_kit.Layout, names: list[str]) -> None:
    """Stops and disables them and takes their files away; what is gone is passed over."""
    if not names or layout.units is None:
        return
    if programs.find("systemctl") is None:
        remove_links(layout.units, names)
        return
    if is_running():
        # In one command, so that no socket or path starts again what has just been stopped.
        programs.ask(["systemctl", "stop", *names], seconds=_STOP_SECONDS)
    present = [name for name in names if path_of(layout, name).exists()]
    if present:
        programs.ask(["systemctl", "disable", *present])
    for name in present:
        path_of(layout, name).unlink()
    remove_links(layout.units, names)
    if is_running():
        reload_manager()
        programs.ask(["systemctl", "reset-failed", *names])


def remove_links(folder: pathlib.Path, names: list[str]) -> None:
    """Disables units whose files are gone, which systemctl does not: the links below *.wants."""
    for wanting in (*folder.glob("*.wants"), *folder.glob("*.requires")):
        ours = [path for name in names if (path := wanting / name).is_symlink()]
        for path in ours:
            path.unlink()
        if ours:
            with contextlib.suppress(OSError):  # not empty: others want something there as well
                wanting.rmdir()


def is_running() -> bool:
    """Whether systemd manages this machine now."""
    return _RUNNING.is_dir() and programs.find("systemctl") is not None


def reload_manager() -> None:
    """Has systemd read the unit files again."""
    if is_running():
        systemctl("daemon-reload")


def systemctl(*arguments: str, seconds: float = _STOP_SECONDS) -> str:
    """Raises `ProgramFailed` with what systemctl said."""
    return programs.run(["systemctl", *arguments], seconds=seconds)


def path_of(layout: layout_kit.Layout, name: str) -> pathlib.Path:
    """Where the unit's file stands."""
    if layout.units is None:
        raise ValueError("Only an installation by root has units.")
    return layout.units / name


def _last(name: str) -> bool:
    """Services after their sockets and paths, which would start them again or hold their ports."""
    return name.endswith(".service")


def _read(path: pathlib.Path) -> str:
    return private_files.read_regular(path, max_bytes=_MOST_BYTES).decode()


def _present(path: pathlib.Path) -> str | None:
    try:
        return _read(path)
    except (FileNotFoundError, UnicodeDecodeError, private_files.FileTooLarge):
        return None
