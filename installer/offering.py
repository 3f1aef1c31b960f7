"""Has a new Platform offer the worker bundles that lie beside its own archive.

So that machines need nothing but the Platform: what it was installed from holds the workers'
archives too. The Platform itself checks their signature before it serves them.
"""

import os
import pathlib
import subprocess
import sys

from installer import layout as layout_kit
from installer import programs
from installer import release as release_format

_SECONDS = 120.0


def lies_beside(folder: pathlib.Path) -> bool:
    """Whether a released folder names a worker's archive for any architecture."""
    names = [release_format.latest_name("worker", arch) for arch in release_format.ARCHES]
    return any((folder / name).is_file() for name in names)


def command(layout: layout_kit.Layout, folder: pathlib.Path) -> list[str]:
    """What offers them, also by hand."""
    where = ["--data-dir", str(layout.data_dir)]
    return [str(layout.command), *where, "--yes", "platform", "bundles", "add", str(folder)]


def offer(layout: layout_kit.Layout, folder: pathlib.Path) -> bool:
    """Offers them; says whether that went well."""
    try:
        done = subprocess.run(
            command(layout, folder),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=_SECONDS,
            check=False,
            cwd="/",
            env=programs.environment(HOME=os.environ.get("HOME", "/")),
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
