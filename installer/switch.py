"""Which release is in use: two links, replaced in one step each.

`current` leads to the release in use, `previous` to the one before. A power cut leaves the old or
the new, never none. Older releases are removed only after the present one has been seen to work.
"""

import contextlib
import os
import pathlib
import shutil

from installer import layout as layout_kit
from installer import tree
from runtime_kit import crash_points, private_files

PREVIOUS_SET = crash_points.declare(
    "install.previous-set", story="The way back is laid, and the old release still in use."
)
SWITCHED = crash_points.declare(
    "install.switched", story="The new release is in use, and nothing has been restarted."
)
_IN_ROLE = pathlib.Path("releases")  # from the links, so that the folder may be moved


def current(layout: layout_kit.Layout) -> str | None:
    """The id of the release in use; None where there is none."""
    return _target(layout.current)


def previous(layout: layout_kit.Layout) -> str | None:
    """The id of the release to go back to; None where there is none that still stands."""
    name = _target(layout.previous)
    return name if name and layout.release(name).is_dir() else None


def to_release(layout: layout_kit.Layout, release_id: str) -> None:
    """Makes this release the one in use, and the one that was the one to go back to."""
    before = current(layout)
    if before == release_id:
        return
    if before is not None:
        point(layout.previous, _IN_ROLE / before)
        crash_points.reach(PREVIOUS_SET)
    point(layout.current, _IN_ROLE / release_id)
    crash_points.reach(SWITCHED)


def back_to(layout: layout_kit.Layout, release_id: str) -> None:
    """Makes this release the one in use again; nothing is left to go back to."""
    point(layout.current, _IN_ROLE / release_id)
    with contextlib.suppress(FileNotFoundError):
        layout.previous.unlink()


def remove_others(layout: layout_kit.Layout) -> None:
    """Removes all releases but the one in use and the one to go back to."""
    kept = {current(layout), previous(layout)}
    tree.sweep(layout)
    for entry in list(os.scandir(layout.releases)):
        if entry.name not in kept:
            shutil.rmtree(entry.path)


def point(link: pathlib.Path, target: pathlib.Path) -> None:
    """Has the link lead there, in one step that a crash cannot split."""
    aside = link.with_name(f".tmp-{link.name}")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    aside.symlink_to(target)
    aside.rename(link)
    private_files.sync_folder(link.parent)


def _target(link: pathlib.Path) -> str | None:
    try:
        return os.path.basename(os.readlink(link)) or None  # noqa: PTH115, PTH119 - a name, not a path
    except (FileNotFoundError, NotADirectoryError):
        return None
