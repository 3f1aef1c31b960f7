"""Archives for tests that install: built by the real builder, once for the same source.

Kept in `.cache/bundles`, in a folder named by what went into it, so that several tests, test
processes and runs share one building (some seconds) while nothing has changed. All are signed by
one key of the tests' own.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from installer import archive
from installer import release as release_format
from installer.build import bundle_command, folder, locks, making, signing, sources
from installer.release import Arch, Role
from runtime_kit import private_files

ROOT = bundle_command.ROOT
WHEELS = ROOT / ".cache" / "wheels"
_MOST_KEPT = 12  # of 10 to 20 MB each
RUNNING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A released folder with one archive of one role, as `install.sh --from` takes it."""

    folder: pathlib.Path
    archive: pathlib.Path
    release: release_format.Release
    sha256: str
    key: signing.ReleaseKey
    public_key: pathlib.Path  # PEM, for `--release-key`


@functools.cache
def _kept() -> pathlib.Path:
    """Where they are kept; for an account that may not write here, a folder of its own."""
    path = ROOT / ".cache" / "bundles"
    with contextlib.suppress(PermissionError):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        path = pathlib.Path(tempfile.gettempdir(), f"enlist-test-bundles-{os.geteuid()}")
        private_files.ensure_private_folder(path)
    return path


def this_arch() -> Arch:
    """This machine's architecture, as releases call it."""
    return next(arch for arch in release_format.ARCHES if arch == platform.machine())


def newer(source: sources.Source, *, version: str) -> sources.Source:
    """The same source under another version."""
    text = source.read(sources.VERSION_FILE).decode()
    changed = text.replace(f'"{source.version}"', f'"{version}"')
    return source.replacing({sources.VERSION_FILE: changed.encode()})


def released(
    role: Role = "worker",
    *,
    version: str | None = None,
    replaced: Mapping[str, bytes] | None = None,
    pythons: Sequence[str] = (RUNNING_PYTHON,),
) -> Released:
    """The checkout's archive for this machine; other versions and broken ones by `replaced`."""
    source = sources.read(ROOT)
    if version is not None:
        source = newer(source, version=version)
    if replaced:
        source = source.replacing(replaced)
    with _locked():
        key = _key()
        place = _kept() / _name(source, role=role, pythons=pythons, key=key)
        if not place.exists():
            _build(source, role=role, pythons=pythons, key=key, place=place)
        os.utime(place)
        _forget_the_oldest()
    latest = place / release_format.latest_name(role, this_arch())
    sha256, name = release_format.parse_latest(latest.read_bytes())
    with (place / name).open("rb") as file:
        release = archive.read(file, verify=key.verify).release
    return Released(
        folder=place,
        archive=place / name,
        release=release,
        sha256=sha256,
        key=key,
        public_key=_kept() / "release.pub",
    )


def _name(
    source: sources.Source, *, role: Role, pythons: Sequence[str], key: signing.ReleaseKey
) -> str:
    """A name for all that goes into an archive."""
    digest = hashlib.sha256()
    went_in = (
        *source.code(role),
        *source.units(role),
        sources.INSTALL_SH,
        locks.LOCKS[role],
        *(name for name in source.files if name.startswith("installer/build/")),
    )
    for name in went_in:
        data = source.read(name)
        digest.update(f"{name} {len(data)}\n".encode() + data)
    # Not the commit: most commits change nothing that is shipped.
    digest.update(f"{key.public_text} {' '.join(pythons)}".encode())
    return f"{role}-{source.version}-{digest.hexdigest()[:16]}"


def _build(
    source: sources.Source,
    *,
    role: Role,
    pythons: Sequence[str],
    key: signing.ReleaseKey,
    place: pathlib.Path,
) -> None:
    aside = place.with_name("unfinished")
    shutil.rmtree(aside, ignore_errors=True)
    built = making.make(
        source,
        roles=[role],
        arches=[this_arch()],
        pythons=pythons,
        cache=WHEELS,
        key=key,
        say=bundle_command.say,
    )
    folder.write(aside, list(built), artifacts=(), key=key, wrote=lambda _path: None)
    aside.rename(place)


def _key() -> signing.ReleaseKey:
    path = _kept() / "release.key"
    key = signing.load(path) if path.exists() else signing.make(path)
    private_files.write_private(_kept() / "release.pub", key.public_pem, mode=0o644)
    return key


def _forget_the_oldest() -> None:
    """Long unused folders go; the limit is far above what one run of tests uses at once."""
    built = [path for path in _kept().iterdir() if path.is_dir()]
    for old in sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)[_MOST_KEPT:]:
        shutil.rmtree(old)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One test process builds, the others find what it built."""
    descriptor = os.open(_kept(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
