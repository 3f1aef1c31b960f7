"""The installer is killed at every named point, and the same command is run again."""

import json
import pathlib
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import changeover, install, switch, tree, uninstall
from runtime_kit import crash_points
from tests.support import installing, small_releases

KILLED = 137
# Points of a machine with systemd are walked on machines (tests/machines): a plain user has no
# units, and nothing to restart.
ON_MACHINES = {install.UNITS_MADE}
FIRST = [
    install.RECEIPT_WRITTEN,
    install.ACCOUNTS_MADE,
    install.FOLDERS_MADE,
    tree.ASIDE_MADE,
    install.RELEASE_MADE,
    switch.SWITCHED,
    install.IN_USE,
    install.DONE,
]
UPDATE = [
    install.RECEIPT_WRITTEN,
    tree.ASIDE_MADE,
    install.RELEASE_MADE,
    switch.PREVIOUS_SET,
    switch.SWITCHED,
    changeover.RESTARTED,
    install.DONE,
]
REMOVAL = [
    uninstall.LEFT,
    uninstall.STOPPED,
    uninstall.MACHINES_GONE,
    uninstall.DATA_GONE,
    uninstall.RELEASES_GONE,
]


@pytest.fixture(scope="module")
def key() -> ed25519.Ed25519PrivateKey:
    return small_releases.make_key()


@pytest.fixture(scope="module")
def place() -> Iterator[pathlib.Path]:
    with installing.open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def first(place: pathlib.Path, key: ed25519.Ed25519PrivateKey) -> small_releases.Small:
    return small_releases.make(place / "first", key=key)


@pytest.fixture(scope="module")
def second(place: pathlib.Path, key: ed25519.Ed25519PrivateKey) -> small_releases.Small:
    return small_releases.make(place / "second", key=key, version="0.2.0")


def run(
    small: small_releases.Small, prefix: pathlib.Path, *options: str, crash_at: str = ""
) -> installing.Ended:
    command = ["sh", str(small.install_sh), "--role", "worker", "--prefix", str(prefix), "--yes"]
    return installing.run(
        [*command, *options], environment={"ENLIST_CRASH_AT": crash_at} if crash_at else {}
    )


def assert_whole(prefix: pathlib.Path, small: small_releases.Small) -> None:
    root = prefix / "worker"
    assert (root / "current").readlink().name == small.release.id
    assert json.loads((root / "receipt.json").read_text())["release"] == small.release.id
    assert tree.faults(root / "releases" / small.release.id) == []
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    said = installing.run([prefix / "bin" / "enlist", "--version"])
    assert said.out == f"enlist {small.release.version}\n", said


def test_every_point_is_walked() -> None:

    named = {
        name for name in crash_points.declared() if name.startswith(("install.", "uninstall."))
    }
    assert named - ON_MACHINES == {*FIRST, *UPDATE, *REMOVAL}


@pytest.mark.parametrize("point", FIRST)
def test_a_first_installation_goes_on(
    point: str, first: small_releases.Small, place: pathlib.Path
) -> None:
    prefix = place / "own" / f"first-{point}"
    assert run(first, prefix, crash_at=point).code == KILLED
    done = run(first, prefix)
    assert done.code == 0, done
    assert_whole(prefix, first)
    assert run(first, prefix, "--uninstall").code == 0
    assert not prefix.exists()


@pytest.mark.parametrize("point", FIRST)
def test_a_half_made_installation_is_removed(
    point: str, first: small_releases.Small, place: pathlib.Path
) -> None:
    prefix = place / "own" / f"half-{point}"
    assert run(first, prefix, crash_at=point).code == KILLED
    done = run(first, prefix, "--uninstall")
    if done.code == 6:  # no release stands that could remove, so one must be named
        assert "Name a release: --from DIR" in done.err
        done = run(first, prefix, "--uninstall", "--from", str(first.folder))
    assert done.code == 0, done
    assert not prefix.exists()


@pytest.mark.parametrize("point", UPDATE)
def test_an_update_goes_on(
    point: str,
    first: small_releases.Small,
    second: small_releases.Small,
    place: pathlib.Path,
) -> None:
    prefix = place / "own" / f"update-{point}"
    assert run(first, prefix).code == 0
    assert run(second, prefix, crash_at=point).code == KILLED
    # Whatever was interrupted, a whole release is in use meanwhile.
    said = installing.run([prefix / "bin" / "enlist", "--version"])
    assert said.out in {"enlist 0.1.0\n", "enlist 0.2.0\n"}
    done = run(second, prefix)
    assert done.code == 0, done
    assert_whole(prefix, second)
    assert (prefix / "worker" / "previous").readlink().name == first.release.id
    assert run(second, prefix, "--uninstall").code == 0
    assert not prefix.exists()


@pytest.mark.parametrize("point", REMOVAL)
def test_a_removal_goes_on(point: str, first: small_releases.Small, place: pathlib.Path) -> None:
    prefix = place / "own" / f"removal-{point}"
    assert run(first, prefix).code == 0
    assert run(first, prefix, "--uninstall", crash_at=point).code == KILLED
    done = run(first, prefix, "--uninstall")
    assert done.code == 0, done
    assert not prefix.exists()


def test_after_a_half_made_removal_the_installation_is_made_anew(
    first: small_releases.Small, place: pathlib.Path
) -> None:
    prefix = place / "own" / "again"
    assert run(first, prefix).code == 0
    assert run(first, prefix, "--uninstall", crash_at=uninstall.RELEASES_GONE).code == KILLED
    assert run(first, prefix).code == 0
    assert_whole(prefix, first)
