"""Who holds a lock is found on every file system, also where a file has two devices."""

import fcntl
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from runtime_kit import processes


@pytest.fixture
def overlay(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder on an overlay whose upper layer is on another file system than the lower."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    lower, disk, merged = (tmp_path / name for name in ("lower", "disk", "merged"))
    for folder in (lower, disk, merged):
        folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "test", str(disk)], check=True)
    try:
        for name in ("upper", "work"):
            (disk / name).mkdir()
        layers = f"lowerdir={lower},upperdir={disk / 'upper'},workdir={disk / 'work'}"
        done = subprocess.run(
            ["mount", "-t", "overlay", "test", "-o", layers, str(merged)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"no overlay can be mounted: {done.stderr.strip()}")
        yield merged
        subprocess.run(["umount", "--lazy", str(merged)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _holder(folder: pathlib.Path) -> int | None:
    path = folder / "lock"
    with path.open("w") as file:
        assert processes.holder_of_flock(path) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        return processes.holder_of_flock(path)


def test_the_holder_is_found_on_a_plain_disk(tmp_path: pathlib.Path) -> None:
    assert _holder(tmp_path) == os.getpid()


def test_the_holder_is_found_on_an_overlay(overlay: pathlib.Path) -> None:
    assert _holder(overlay) == os.getpid()
