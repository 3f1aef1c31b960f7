"""The locked wheels for a Python and an architecture that need not be this machine's.

Downloaded once by pip into a cache and then found there, without a network. The cache is a folder
of wheels and, for each wanted set, a list of file names; the list is written last, each file is
renamed into its place whole, and every hash is compared with the lock's on each use, so that a run
that was killed anywhere, or a damaged file, costs a download and nothing else.
Known limit: glibc machines only (manylinux wheels up to 2.34, as in RHEL 9 and Debian 12).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from installer import release as release_format
from installer.build import locks
from runtime_kit import crash_points, private_files

_NEWEST_GLIBC: Final = 34
_OLDEST_GLIBC: Final = 17
_PIP_SECONDS: Final = 900
_LAST_LINES: Final = 15

DOWNLOADED = crash_points.declare(
    "build.wheels-downloaded",
    story="The wheels have been downloaded, and none is in the cache yet.",
)
POOLED = crash_points.declare(
    "build.wheels-pooled", story="The wheels are in the cache, and no list names them yet."
)


class WheelError(Exception):
    """The wheels could not be had; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel in the cache."""

    path: pathlib.Path
    sha256: str

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.name


def platforms(arch: release_format.Arch) -> list[str]:
    """The platform tags that fit; pip takes what fits the first, so the oldest glibc leads."""
    minors = range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1)
    return [f"manylinux2014_{arch}", *(f"manylinux_2_{minor}_{arch}" for minor in minors)]


def fetch(
    pins: Sequence[locks.Pin],
    *,
    python: str,
    arch: release_format.Arch,
    cache: pathlib.Path,
    say: Callable[[str], None],
) -> list[Wheel]:
    """The wheels for these pins, sorted by name: from the cache, else from the index.

    Raises:
        WheelError: the index could not be reached, or has no wheel with a locked hash.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache) as lock:
        for left in cache.glob("incoming-*"):  # from a run that was killed
            shutil.rmtree(left)
        found = _from_cache(pins, python=python, arch=arch, cache=cache)
        if found is None:
            say(f"Downloading {len(pins)} wheels for Python {python} on {arch}")
            _download(pins, python=python, arch=arch, cache=cache, lock=lock)
            found = _from_cache(pins, python=python, arch=arch, cache=cache)
    if found is None:
        raise WheelError(f"The wheels for Python {python} on {arch} did not stay in {cache}.")
    return found


def _list_of(
    pins: Sequence[locks.Pin], *, python: str, arch: release_format.Arch, cache: pathlib.Path
) -> pathlib.Path:
    wanted = "".join((python, "\n", *platforms(arch), "\n", *(pin.to_text() for pin in pins)))
    key = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    return cache / f"python{python}-{arch}-{key}.json"


def _from_cache(
    pins: Sequence[locks.Pin], *, python: str, arch: release_format.Arch, cache: pathlib.Path
) -> list[Wheel] | None:
    """The wheels, if the list is there and every file is what the lock says."""
    try:
        names = json.loads(_list_of(pins, python=python, arch=arch, cache=cache).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    wheels = []
    for name in sorted(names):
        try:
            data = (cache / name).read_bytes()
        except FileNotFoundError:
            return None
        wheels.append(Wheel(path=cache / name, sha256=hashlib.sha256(data).hexdigest()))
    return wheels if _fit(wheels, pins) else None


def _fit(wheels: Sequence[Wheel], pins: Sequence[locks.Pin]) -> bool:
    """Whether these are the pins' wheels, one each."""
    by_name = {locks.plain(wheel.name.partition("-")[0]): wheel for wheel in wheels}
    return len(wheels) == len(pins) and all(
        pin.name in by_name and by_name[pin.name].sha256 in pin.hashes for pin in pins
    )


def _download(
    pins: Sequence[locks.Pin],
    *,
    python: str,
    arch: release_format.Arch,
    cache: pathlib.Path,
    lock: int,
) -> None:
    incoming = pathlib.Path(tempfile.mkdtemp(prefix="incoming-", dir=cache))
    try:
        wanted = incoming / "wanted.txt"
        wanted.write_text("".join(pin.to_text() for pin in pins))
        _run_pip(_command(wanted, python=python, arch=arch, into=incoming), lock=lock)
        crash_points.reach(DOWNLOADED)
        names = sorted(path.name for path in incoming.glob("*.whl"))
        for name in names:
            (incoming / name).chmod(0o644)
            (incoming / name).replace(cache / name)
        crash_points.reach(POOLED)
        private_files.write_private(
            _list_of(pins, python=python, arch=arch, cache=cache),
            json.dumps(names).encode(),
            mode=0o644,
        )
    finally:
        shutil.rmtree(incoming)


def _command(
    wanted: pathlib.Path, *, python: str, arch: release_format.Arch, into: pathlib.Path
) -> list[str]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--implementation", "cp", "--python-version", python]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in platforms(arch):
        command += ["--platform", platform]
    return [*command, "--dest", os.fspath(into), "--requirement", os.fspath(wanted)]


def _run_pip(command: list[str], *, lock: int) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PIP_SECONDS,
            # A pip that outlives its killed builder keeps the lock, so that the next one waits
            # for its end before clearing up what it writes.
            pass_fds=(lock,),
        )
    except subprocess.CalledProcessError as error:
        said = "\n".join(error.output.decode(errors="replace").splitlines()[-_LAST_LINES:])
        raise WheelError(f"pip could not download the locked wheels:\n{said}") from None
    except subprocess.TimeoutExpired:
        raise WheelError(f"pip did not download the wheels within {_PIP_SECONDS} s.") from None


@contextlib.contextmanager
def _locked(cache: pathlib.Path) -> Iterator[int]:
    """One builder at a time: the wait is bounded, since pip's run is. Gives the lock."""
    descriptor = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
