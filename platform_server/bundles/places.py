"""Where things lie in the folder of bundles, and which addresses name them.

A file is named by its own hash or by a fixed word, so that no part of an address ever becomes part
of a path: what does not match one of the four forms below is not served.
"""

import re
from pathlib import Path
from typing import Final

ARCHITECTURES: Final = ("x86_64", "aarch64")
ARCHIVES: Final = "sha256"
INSTALLER: Final = "install.sh"
INSTALLER_SUFFIX: Final = ".install.sh"  # of the script that lies beside each archive
ARCHIVE_PREFIX: Final = "/bundles/sha256/"
_TARGET: Final = re.compile(
    rb"/(?:(?P<installer>install\.sh)"
    rb"|worker-(?P<latest>" + b"|".join(one.encode() for one in ARCHITECTURES) + rb")"
    rb"|bundles/sha256/(?P<archive>[0-9a-f]{64})(?P<script>/install\.sh)?)"
)


def file_of(target: bytes) -> Path | None:
    """The file that a raw request target names, within the folder; None for everything else."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    if match["archive"] is not None:
        suffix = "" if match["script"] is None else INSTALLER_SUFFIX
        return Path(ARCHIVES, match["archive"].decode("ascii") + suffix)
    if match["latest"] is not None:
        return Path(latest(match["latest"].decode("ascii")))
    return Path(INSTALLER)


def latest(arch: str) -> str:
    """The file that names the latest archive for an architecture: its hash and its name."""
    return f"worker-{arch}"


def has_something(folder: Path) -> bool:
    """Whether a machine that comes finds an installer and an archive to install."""
    return (folder / INSTALLER).is_file() and any(
        (folder / latest(arch)).is_file() for arch in ARCHITECTURES
    )
