"""A folder on a disk of its own that can be filled, for tests of a full disk. Needs root."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def mounted(folder: pathlib.Path, *, megabytes: int) -> Iterator[pathlib.Path]:
    """A small tmpfs for the length of a `with`; skips the test where it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a small disk failed: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def fill(folder: pathlib.Path) -> pathlib.Path:
    """Takes every free byte of the folder's disk; returns the file to remove to free them."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65_536)
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0")
    return ballast
