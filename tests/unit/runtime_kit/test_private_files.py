"""Private files: final mode from the first byte, old or new content, nothing between (G14)."""

import fcntl
import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from runtime_kit import private_files


@pytest.fixture(autouse=True)
def _lax_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def mode_of(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("write", [private_files.write_private, private_files.create_private])
def test_a_file_is_private_from_its_first_byte(
    write: Callable[[pathlib.Path, bytes], object],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    real_write = os.write

    def watching(descriptor: int, content: bytes) -> int:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real_write(descriptor, content)

    monkeypatch.setattr(os, "write", watching)
    write(tmp_path / "key", b"secret")
    assert seen == [0o600]
    assert mode_of(tmp_path / "key") == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trust.json"
    private_files.write_private(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        private_files.write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["trust.json"]


def test_what_a_crash_left_aside_does_not_hinder_the_next_write(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".tmp-key").write_bytes(b"half")
    private_files.write_private(tmp_path / "key", b"whole")
    assert names(tmp_path) == ["key"]


def test_a_key_that_is_there_is_never_replaced(tmp_path: pathlib.Path) -> None:
    assert private_files.create_private(tmp_path / "key", b"first")
    assert not private_files.create_private(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"
    assert names(tmp_path) == ["key"]


WRITES = [private_files.write_private, private_files.create_private]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("left", [".tmp-key", ".tmp-key-0123abcd"])
def test_what_a_killed_writer_left_aside_is_removed_by_the_next_write(
    write: Callable[[pathlib.Path, bytes], object], left: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / left).write_bytes(b"half a key")
    write(tmp_path / "key", b"whole")
    assert names(tmp_path) == ["key"]


@pytest.mark.parametrize("write", WRITES)
def test_what_another_writer_is_at_work_on_is_left_to_it(
    write: Callable[[pathlib.Path, bytes], object], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "key"
    with private_files.written_aside(path, b"by the other") as aside:
        write(path, b"by this one")
        assert aside.read_bytes() == b"by the other"
    assert names(tmp_path) == ["key"]


def test_a_writer_whose_file_was_swept_before_it_held_its_lock_starts_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_lock = fcntl.flock
    swept: list[pathlib.Path] = []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        real_lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    private_files.write_private(tmp_path / "key", b"whole")
    assert len(swept) == 1
    assert (tmp_path / "key").read_bytes() == b"whole"
    assert names(tmp_path) == ["key"]


def test_the_second_name_of_a_key_whose_maker_was_killed_is_swept(tmp_path: pathlib.Path) -> None:
    private_files.create_private(tmp_path / "key", b"real")
    (tmp_path / ".tmp-key-0123abcd").hardlink_to(tmp_path / "key")
    private_files.sweep(tmp_path / "key")
    assert names(tmp_path) == ["key"]
    assert (tmp_path / "key").read_bytes() == b"real"


def test_sweeping_takes_nothing_that_is_another_files(tmp_path: pathlib.Path) -> None:
    others = [".tmp-other", ".tmp-key.old", "key", "key-0123abcd", ".tmp-"]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".tmp-key-89abcdef").mkdir()
    private_files.sweep(tmp_path / "key")
    assert names(tmp_path) == sorted([*others, ".tmp-key-89abcdef"])
    private_files.sweep(tmp_path / "nowhere" / "key")


def test_a_file_that_others_can_read_is_refused_with_the_command(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"secret")
    path.chmod(0o640)
    with pytest.raises(private_files.LaxMode, match=f"chmod 600 {path}"):
        private_files.read_private(path, max_bytes=100)


def test_a_file_larger_than_it_may_be_is_refused(tmp_path: pathlib.Path) -> None:
    private_files.write_private(tmp_path / "key", b"x" * 101)
    assert private_files.read_private(tmp_path / "key", max_bytes=101) == b"x" * 101
    with pytest.raises(private_files.FileTooLarge):
        private_files.read_private(tmp_path / "key", max_bytes=100)


def test_a_link_in_place_of_a_private_file_is_not_followed(tmp_path: pathlib.Path) -> None:
    private_files.write_private(tmp_path / "real", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic links"):
        private_files.read_private(tmp_path / "link", max_bytes=10)


def test_a_lax_folder_of_ours_is_tightened(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o777)
    private_files.ensure_private_folder(folder)
    private_files.ensure_private_folder(folder)
    assert mode_of(folder) == 0o700


def test_a_file_where_a_folder_belongs_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="in the way"):
        private_files.ensure_private_folder(tmp_path / "data")


@pytest.mark.parametrize("read", [private_files.read_private, private_files.read_regular])
def test_a_pipe_in_a_files_place_is_refused_and_not_waited_for(
    read: private_files.Reader, tmp_path: pathlib.Path
) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / "key", max_bytes=10)
