"""A released folder: archives, install.sh, which archive is the latest, and one signed list of all.

What machines, mirrors and the Platform are given. A folder is added to by several runs (one role,
then the other); what earlier ones left stays listed only if it still is what this key signed.
Written so that the files which name others come after them.
"""

import hashlib
import os
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Final

from installer import archive
from installer import release as release_format
from installer.build import bundle as bundles
from installer.build import signing
from runtime_kit import private_files

_PUBLIC_FILE: Final = 0o644
_CHUNK: Final = 1024 * 1024


class FolderError(Exception):
    """The folder holds something that must not be signed; the message says what."""


def write(
    folder: pathlib.Path,
    built: Sequence[bundles.Built],
    *,
    artifacts: Sequence[pathlib.Path],
    key: signing.ReleaseKey,
    wrote: Callable[[pathlib.Path], None],
) -> None:
    """Add archives and other files to a folder, and sign the list of all that it holds.

    Raises:
        FolderError: it holds what another key signed, or what was changed since.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = _held(folder, key=key)
    for one in built:
        _put(folder / one.release.archive_name, one.data, hashes=hashes, wrote=wrote)
        _put(folder / release_format.INSTALL_SH, one.install_sh, hashes=hashes, wrote=wrote)
    for path in artifacts:
        _check_artifact(path)
        sha256 = hash_of(path)
        if hashes.get(path.name) != sha256:
            put_file(path, folder / path.name)
            wrote(folder / path.name)
        hashes[path.name] = sha256
    for one in built:
        latest = release_format.sums([(one.release.archive_name, one.sha256)])
        name = release_format.latest_name(one.release.role, one.release.arch)
        _put(folder / name, latest, hashes=hashes, wrote=wrote)
    listed = release_format.sums(sorted(hashes.items()))
    for name, data in (
        (release_format.SUMS, listed),
        (release_format.SUMS_SIGNATURE, key.sign(listed)),
    ):
        private_files.write_private(folder / name, data, mode=_PUBLIC_FILE)
        wrote(folder / name)


def _put(
    path: pathlib.Path,
    data: bytes,
    *,
    hashes: dict[str, str],
    wrote: Callable[[pathlib.Path], None],
) -> None:
    sha256 = hashlib.sha256(data).hexdigest()
    known = path.name in hashes and hashes[path.name] == sha256
    hashes[path.name] = sha256
    if not known:
        private_files.write_private(path, data, mode=_PUBLIC_FILE)
        wrote(path)


def _held(folder: pathlib.Path, *, key: signing.ReleaseKey) -> dict[str, str]:
    """What the folder's own list names and this key signed, file by file."""
    try:
        listed = (folder / release_format.SUMS).read_bytes()
        signature = (folder / release_format.SUMS_SIGNATURE).read_bytes()
    except FileNotFoundError:
        return {}
    if not key.verify(listed, signature):
        # A run that was killed between the two files leaves a list newer than its signature:
        # then only what is built now is listed, and archives are vouched for by themselves.
        return _archives(folder, key=key)
    found = {}
    for name, sha256 in release_format.parse_sums(listed).items():
        path = folder / name
        if not path.exists():
            continue
        if hash_of(path) != sha256:
            raise FolderError(f"{path} has been changed since it was signed: remove it.")
        found[name] = sha256
    return found


def _archives(folder: pathlib.Path, *, key: signing.ReleaseKey) -> dict[str, str]:
    found = {}
    for path in sorted(folder.iterdir()):
        if release_format.name_of(path.name) is None:
            continue
        try:
            with path.open("rb") as file:
                found[path.name] = archive.read(file, verify=key.verify).sha256
        except release_format.BadRelease as error:
            raise FolderError(
                f"{path} is not signed by this key ({error}): remove it, or take an empty folder."
            ) from error
    return found


def put_file(source: pathlib.Path, path: pathlib.Path) -> None:
    """Copy a file of any size in one step that a crash cannot split."""
    with private_files.written_aside(path, b"", mode=_PUBLIC_FILE) as aside:
        with source.open("rb") as read, aside.open("wb") as written:
            shutil.copyfileobj(read, written, _CHUNK)
            written.flush()
            os.fsync(written.fileno())
        aside.rename(path)
    private_files.sync_folder(path.parent)


def hash_of(path: pathlib.Path) -> str:
    """A file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return digest.hexdigest()


def _check_artifact(path: pathlib.Path) -> None:
    """An artifact must not take the name of a file that install.sh relies on."""
    taken = {release_format.INSTALL_SH, release_format.SUMS, release_format.SUMS_SIGNATURE}
    latest = {
        release_format.latest_name(role, arch)
        for role in release_format.ROLES
        for arch in release_format.ARCHES
    }
    if not path.is_file():
        raise FolderError(f"There is no file {path} to release.")
    if path.name in taken | latest or release_format.name_of(path.name) is not None:
        raise FolderError(f"{path} has a name that belongs to the release itself: rename it.")
    release_format.sums([(path.name, "0" * 64)])
