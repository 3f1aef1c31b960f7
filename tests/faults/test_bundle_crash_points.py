"""An engine killed while it adds or removes a bundle: the same command finishes afterwards."""

import json
import pathlib
import subprocess
from contextlib import AbstractContextManager

import pytest

from platform_server.bundles import places, shelf
from runtime_kit import crash_points
from tests.support import operators, real_platform, small_bundles

KEY = small_bundles.key()
OLD = small_bundles.make(KEY, version="0.1.0", install_sh=b"old")
NEW = small_bundles.make(KEY, version="0.2.0", install_sh=b"new")
ADDING = (shelf.BESIDE, shelf.NAMED)
REMOVING = (shelf.UNCOUNTED,)
CRASHED = '"exit_code": -9'


def test_every_point_is_walked() -> None:
    own = {name for name in crash_points.declared() if name.startswith("bundles.")}
    assert own == {*ADDING, *REMOVING}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a Platform has one bundle."""
    (tmp_path / "release.pub").write_bytes(KEY.public_pem)
    with running(tmp_path) as platform:
        enlist(platform, "add", str(OLD.write(tmp_path)))
    return tmp_path


def running(folder: pathlib.Path) -> AbstractContextManager[real_platform.RealPlatform]:
    key = str(folder / "release.pub")
    return real_platform.running(
        folder / "p",
        *("--bundle-port", "0"),
        environment={"ENLIST_BUNDLES__RELEASE_KEY_FILE": key},
    )


def enlist(platform: real_platform.RealPlatform, *arguments: str) -> str:
    return platform.enlist("platform", "bundles", *arguments, "--yes")


def killed_at(point: str, folder: pathlib.Path, *arguments: str) -> None:
    """Runs the command against an engine that is killed at the point; then all of it ends."""
    key = str(folder / "release.pub")
    platform = real_platform.start(
        folder / "p",
        *("--bundle-port", "0"),
        environment={"ENLIST_BUNDLES__RELEASE_KEY_FILE": key, "ENLIST_CRASH_AT": point},
    )
    command = [
        *(*real_platform.ENLIST, "--data-dir", str(platform.data_dir), "--yes"),
        *("platform", "bundles", *arguments),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=real_platform.clean_environment(),
    ) as asking:
        try:
            operators.wait_until(
                lambda: CRASHED in platform.log.read_text(), what=f"the engine reached {point}"
            )
        finally:
            asking.kill()
            real_platform.kill_group(platform.process)


def served(platform: real_platform.RealPlatform) -> tuple[str, bytes, list[str]]:
    place = platform.data_dir / "bundles"
    listed = json.loads(enlist(platform, "list", "-o", "json"))["bundles"]
    return (
        (place / places.latest("x86_64")).read_text().split()[0],
        (place / places.INSTALLER).read_bytes(),
        [one["version"] for one in listed],
    )


@pytest.mark.parametrize("point", ADDING)
def test_a_bundle_whose_adding_was_killed_is_added_by_the_same_command(
    point: str, folder: pathlib.Path
) -> None:
    new = str(NEW.write(folder))
    killed_at(point, folder, "add", new)
    with running(folder) as platform:
        sha256, installer, _ = served(platform)
        assert (sha256, installer) == (OLD.sha256, b"old"), "machines find what was whole before"
        enlist(platform, "add", new)
        assert served(platform) == (NEW.sha256, b"new", ["0.2.0", "0.1.0"])
        assert json.loads(platform.enlist("audit", "verify", "-o", "json"))["intact"] is True


@pytest.mark.parametrize("point", REMOVING)
def test_a_bundle_whose_removal_was_killed_is_removed_by_the_same_command(
    point: str, folder: pathlib.Path
) -> None:
    with running(folder) as platform:
        enlist(platform, "add", str(NEW.write(folder)))
    killed_at(point, folder, "remove", NEW.sha256)
    with running(folder) as platform:
        assert served(platform) == (OLD.sha256, b"old", ["0.1.0"])
        enlist(platform, "remove", NEW.sha256)
        names = {one.name[:64] for one in (platform.data_dir / "bundles" / "sha256").iterdir()}
        assert names == {OLD.sha256}
