"""A full disk while a bundle is added: what is served stays whole, and the same again finishes."""

import io
import pathlib

import pytest

from installer import archive
from platform_server.bundles import places, shelf, uploads
from runtime_kit import clock
from tests.support import real_platform, small_bundles, small_disk

KEY = small_bundles.key()
OLD = small_bundles.make(KEY, version="0.1.0", install_sh=b"old")
NEW = small_bundles.make(KEY, version="0.2.0", install_sh=b"new", payload=bytes(2_000_000))


def _put(folder: pathlib.Path, small: small_bundles.Small, *, upload: pathlib.Path) -> None:
    found = archive.read(io.BytesIO(small.content), verify=KEY.verify)
    shelf.Shelf(folder).put(found, upload=upload)


def _served(folder: pathlib.Path) -> tuple[str, bytes]:
    line = (folder / places.latest("x86_64")).read_text()
    return line.split()[0], (folder / places.INSTALLER).read_bytes()


def test_a_piece_that_does_not_fit_leaves_what_was_there(tmp_path: pathlib.Path) -> None:
    now = clock.SystemClock().now()
    with small_disk.mounted(tmp_path / "small", megabytes=80) as folder:
        several = uploads.Uploads(folder, most_bytes=100_000_000)
        size, piece = 4_000_000, bytes(1_000_000)
        several.put("a" * 64, offset=0, size=size, piece=piece, now=now)
        ballast = small_disk.fill(folder)
        with pytest.raises(OSError, match="No space"):
            several.put("a" * 64, offset=1_000_000, size=size, piece=piece, now=now)
        assert several.size("a" * 64) == 1_000_000
        ballast.unlink()
        several.put("a" * 64, offset=1_000_000, size=size, piece=piece, now=now)
        assert several.size("a" * 64) == 2_000_000
        with pytest.raises(uploads.NoRoom, match="remove an old bundle"):
            several.put("b" * 64, offset=0, size=30_000_000, piece=piece, now=now)


def test_a_disk_that_is_full_at_the_last_step_changes_nothing_that_is_served(
    tmp_path: pathlib.Path,
) -> None:
    with small_disk.mounted(tmp_path / "small", megabytes=16) as folder:
        (folder / places.ARCHIVES).mkdir()
        for small in (OLD, NEW):
            (folder / small.sha256).write_bytes(small.content)
        _put(folder, OLD, upload=folder / OLD.sha256)
        ballast = small_disk.fill(folder)
        with pytest.raises(OSError, match="No space"):
            _put(folder, NEW, upload=folder / NEW.sha256)
        assert _served(folder) == (OLD.sha256, b"old")
        assert (folder / places.ARCHIVES / OLD.sha256).read_bytes() == OLD.content
        ballast.unlink()
        _put(folder, NEW, upload=folder / NEW.sha256)
        assert _served(folder) == (NEW.sha256, b"new")


def test_the_command_says_that_the_disk_is_full_and_that_it_may_pass(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "release.pub").write_bytes(KEY.public_pem)
    new = NEW.write(tmp_path)
    with (
        small_disk.mounted(tmp_path / "small", megabytes=40) as folder,
        real_platform.running(
            folder / "p",
            *("--bundle-port", "0"),
            environment={"ENLIST_BUNDLES__RELEASE_KEY_FILE": str(tmp_path / "release.pub")},
        ) as platform,
    ):
        real_platform.run_enlist(
            *("--data-dir", str(platform.data_dir), "platform", "bundles", "add", str(new)),
            expect=75,
        )
        assert not places.has_something(platform.data_dir / "bundles")
        assert platform.api("GET", "/platform/bundles")["bundles"] == []
