"""The folder of bundles: what is served follows from what lies there, wherever it was cut off."""

import datetime
import hashlib
import io
import os
import pathlib

import pytest

from installer import archive
from platform_server.bundles import places, shelf, uploads
from runtime_kit import crash_points
from tests.support import small_bundles

KEY = small_bundles.key()


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / places.ARCHIVES).mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    return tmp_path


def put(folder: pathlib.Path, small: small_bundles.Small) -> shelf.Shelf:
    upload = folder / "upload"
    upload.write_bytes(small.content)
    one = shelf.Shelf(folder)
    one.put(archive.read(io.BytesIO(small.content), verify=KEY.verify), upload=upload)
    return one


def latest(folder: pathlib.Path, arch: str = "x86_64") -> str:
    return (folder / places.latest(arch)).read_text()


def test_what_was_put_is_served_by_its_hash_with_its_installer(folder: pathlib.Path) -> None:
    small = small_bundles.make(KEY, install_sh=b"one")
    put(folder, small)
    assert (folder / "sha256" / small.sha256).read_bytes() == small.content
    assert latest(folder) == f"{small.sha256}  enlist-worker-0.1.0-x86_64.tar\n"
    assert (folder / places.INSTALLER).read_bytes() == b"one"
    assert places.has_something(folder)
    assert not (folder / "upload").exists()


def test_the_newest_version_is_the_latest_in_whatever_order_they_come(
    folder: pathlib.Path,
) -> None:
    new = small_bundles.make(KEY, version="0.10.0", install_sh=b"new")
    old = small_bundles.make(KEY, version="0.9.0", install_sh=b"old")
    put(folder, new)
    one = put(folder, old)
    assert latest(folder).startswith(new.sha256)
    assert (folder / places.INSTALLER).read_bytes() == b"new"
    assert [(found.release.version, found.is_latest) for found in one.all()] == [
        ("0.10.0", True),
        ("0.9.0", False),
    ]
    one.take_out(new.sha256)
    assert latest(folder).startswith(old.sha256)
    assert (folder / places.INSTALLER).read_bytes() == b"old"
    one.take_out(old.sha256)
    assert one.all() == []
    assert not places.has_something(folder)
    assert list((folder / "sha256").iterdir()) == []


def test_an_installer_that_is_none_is_neither_read_whole_nor_waited_for(
    folder: pathlib.Path,
) -> None:
    small = small_bundles.make(KEY)
    one = put(folder, small)
    beside = folder / "sha256" / f"{small.sha256}.install.sh"
    os.truncate(beside, 1 << 40)
    with pytest.raises(OSError, match="no installer"):
        one.refresh()
    beside.unlink()
    os.mkfifo(beside)
    with pytest.raises(OSError, match="install"):
        one.refresh()


def test_each_architecture_has_a_latest_of_its_own(folder: pathlib.Path) -> None:
    arm = small_bundles.make(KEY, arch="aarch64", version="0.2.0")
    put(folder, arm)
    one = put(folder, small_bundles.make(KEY))
    assert latest(folder, "aarch64").startswith(arm.sha256)
    assert one.latest("x86_64") is not None
    assert one.latest("riscv64") is None


@pytest.mark.parametrize("point", [shelf.BESIDE, shelf.NAMED])
def test_cut_off_anywhere_the_same_again_finishes(
    folder: pathlib.Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small_bundles.make(KEY, version="0.1.0")
    put(folder, first)
    second = small_bundles.make(KEY, version="0.2.0")

    def reach(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(crash_points, "reach", reach)
        with pytest.raises(KeyboardInterrupt):
            put(folder, second)
    assert latest(folder).startswith(first.sha256), "machines are still told of the former"
    assert not shelf.Shelf(folder).is_fresh(second.sha256)
    one = put(folder, second)
    assert latest(folder).startswith(second.sha256)
    assert one.is_fresh(second.sha256)
    assert one.is_fresh(first.sha256)


@pytest.mark.parametrize(("folders", "files"), [(0o700, 0o600), (0o755, 0o644)])
def test_files_are_for_others_only_where_the_folder_is(
    folder: pathlib.Path, folders: int, files: int
) -> None:
    folder.chmod(folders)
    put(folder, small_bundles.make(KEY))
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {files}


class Putting(uploads.Uploads):
    """With a time that can be moved."""

    now = datetime.datetime.now(datetime.UTC)

    def add(self, sha256: str, *, offset: int, size: int, piece: bytes) -> int:
        return self.put(sha256, offset=offset, size=size, piece=piece, now=self.now)


def test_an_upload_goes_on_where_it_stopped(folder: pathlib.Path) -> None:
    several = Putting(folder, most_bytes=100)
    name = "a" * 64
    assert several.add(name, offset=0, size=9, piece=b"abc") == 3
    with pytest.raises(uploads.Refused, match="3 bytes"):
        several.add(name, offset=6, size=9, piece=b"ghi")
    several.add(name, offset=3, size=9, piece=b"def")
    several.add(name, offset=3, size=9, piece=b"def")  # the answer was lost, the piece comes again
    assert several.add(name, offset=6, size=9, piece=b"ghi") == 9
    assert several.path(name).read_bytes() == b"abcdefghi"
    several.add(name, offset=0, size=9, piece=b"x")
    assert several.path(name).read_bytes() == b"x"


def test_uploads_are_bounded_in_size_and_number(folder: pathlib.Path) -> None:
    several = Putting(folder, most_bytes=100)
    with pytest.raises(uploads.Refused, match="most_bytes"):
        several.add("a" * 64, offset=0, size=101, piece=b"x")
    with pytest.raises(uploads.Refused, match="past"):
        several.add("a" * 64, offset=0, size=1, piece=b"xy")
    for letter in "abcd":
        several.add(letter * 64, offset=0, size=9, piece=b"x")
    with pytest.raises(uploads.Refused, match="already"):
        several.add("e" * 64, offset=0, size=9, piece=b"x")
    several.now += datetime.timedelta(days=2)  # what nobody finished makes room
    assert several.add("e" * 64, offset=0, size=9, piece=b"x") == 1
    assert several.size("a" * 64) == 0
    several.forget("e" * 64)
    assert several.add("e" * 64, offset=0, size=9, piece=b"x") == 1


def test_each_archive_names_the_installer_that_came_with_it(folder: pathlib.Path) -> None:
    for version, script in (("0.1.0", b"#!/bin/sh\n: 1\n"), ("0.2.0", b"#!/bin/sh\n: 2\n")):
        small = small_bundles.make(KEY, version=version, install_sh=script)
        one = put(folder, small)
        assert one.installer_hash(small.sha256) == hashlib.sha256(script).hexdigest()
        beside = places.file_of(f"/bundles/sha256/{small.sha256}/install.sh".encode())
        assert beside is not None
        assert (folder / beside).read_bytes() == script
    assert shelf.Shelf(folder).installer_hash("0" * 64) is None
