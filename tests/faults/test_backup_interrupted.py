"""Backups and restores that are killed, cut off and run out of room: nothing half is left.

A backup that was interrupted leaves no file; a restore that was interrupted is finished by the same
command, and until then no Platform starts there.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from operator_cli import new_file
from operator_cli.commands import backup_create
from platform_server.backup import restore, under_way
from runtime_kit import crash_points
from tests.support import backups, machine, operators, real_platform, small_disk

pytestmark = pytest.mark.timeout(180)

CREATE_POINTS = (backup_create.BEGUN, new_file.NAMELESS)
REPLACE_POINTS = (*CREATE_POINTS, new_file.ASIDE)
RESTORE_POINTS = (restore.MARKED, restore.BEFORE_COMMIT, restore.FILLED, restore.KEY_KEPT)


def test_every_point_of_backup_and_restore_is_walked() -> None:
    found = {
        name
        for name in crash_points.declared()
        if name.startswith(("backup.", "new-file.", "restore."))
    }
    assert found == {*REPLACE_POINTS, *RESTORE_POINTS}


class Rig:
    """A Platform that runs, with a node, a pending enrollment and a backup of both."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.pair = backups.new_pair()
        self.identity = self.pair.write(folder)
        self.platform = real_platform.start(folder / "platform")
        worker = machine.in_folder(folder)
        worker.join(machine.issue(self.platform, "old-1"))
        machine.issue(self.platform, "waiting-1")

    def create(self, file: pathlib.Path, *more: str) -> list[str]:
        """The command that makes a backup."""
        return [
            *("--data-dir", str(self.platform.data_dir), "backup", "create", str(file)),
            *("--recipient", self.pair.recipient, *more),
        ]

    def restore(self, file: pathlib.Path, *, to: pathlib.Path, url: str | None) -> list[str]:
        """The command that restores it."""
        return [
            *("backup", "restore", str(file), "--data-dir", str(to), "-o", "json"),
            *("--identity-file", str(self.identity)),
            *(() if url is None else ("--database-url", url)),
        ]

    def verify(self, file: pathlib.Path) -> None:
        real_platform.run_enlist(
            "backup", "verify", str(file), "--identity-file", str(self.identity)
        )


@pytest.fixture
def rig(tmp_path: pathlib.Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    try:
        yield made
    finally:
        made.platform.stop()


def _killed_at(point: str, command: list[str]) -> None:
    done = subprocess.run(
        [*real_platform.ENLIST, *command],
        capture_output=True,
        check=False,
        timeout=60,
        env=real_platform.clean_environment({"ENLIST_CRASH_AT": point}),
    )
    assert done.returncode == -signal.SIGKILL, (point, done.stderr)


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_backup_killed_at_the_point_leaves_nothing(rig: Rig, point: str) -> None:
    folder = rig.folder / "kept"
    folder.mkdir()
    _killed_at(point, rig.create(folder / "nightly.enlist"))
    assert list(folder.iterdir()) == []
    real_platform.run_enlist(*rig.create(folder / "nightly.enlist"))
    rig.verify(folder / "nightly.enlist")
    assert [one.name for one in folder.iterdir()] == ["nightly.enlist"]


@pytest.mark.parametrize("point", REPLACE_POINTS)
def test_a_backup_that_is_replaced_stands_until_the_new_one_is_whole(rig: Rig, point: str) -> None:
    file = rig.folder / "kept" / "nightly.enlist"
    file.parent.mkdir()
    real_platform.run_enlist(*rig.create(file))
    before = file.read_bytes()
    _killed_at(point, rig.create(file, "--force"))
    assert file.read_bytes() == before
    # what is left beside it is no backup by its name
    assert all(one.name.startswith(".tmp-") or one == file for one in file.parent.iterdir())
    real_platform.run_enlist(*rig.create(file, "--force"))
    assert file.read_bytes() != before
    rig.verify(file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_backup_cut_off_on_its_way_leaves_no_file_and_says_try_again(rig: Rig) -> None:
    with _cutting_relay(rig.platform.socket, rig.folder / "relay.sock", after=3000) as relay:
        file = rig.folder / "nightly.enlist"
        done = subprocess.run(
            [
                *real_platform.ENLIST,
                *("--platform", f"unix://{relay}", "backup", "create", str(file)),
                *("--recipient", rig.pair.recipient),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=real_platform.clean_environment(),
        )
    assert done.returncode == 75, done.stderr
    assert "broke the connection off" in done.stderr
    assert not file.exists()
    # the engine is free for the next one
    operators.wait_until(
        lambda: _tries(rig.create(file, "--force")) == 0, what="the next backup is made"
    )
    rig.verify(file)


def _tries(command: list[str]) -> int:
    return subprocess.run(
        [*real_platform.ENLIST, *command],
        capture_output=True,
        check=False,
        timeout=60,
        env=real_platform.clean_environment(),
    ).returncode


class _cutting_relay:  # noqa: N801 - used as a `with`
    """A local socket that passes one question on and cuts its answer off."""

    def __init__(self, target: pathlib.Path, at: pathlib.Path, *, after: int) -> None:
        self._target, self._at, self._after = target, at, after
        self._server = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> pathlib.Path:
        self._server.bind(str(self._at))
        self._server.listen(1)
        self._server.settimeout(30)
        self._thread.start()
        return self._at

    def __exit__(self, *_error: object) -> None:
        self._server.close()
        self._thread.join(30)

    def _serve(self) -> None:
        near, _ = self._server.accept()
        with near, socket.socket(socket.AF_UNIX) as far:
            far.settimeout(30)
            far.connect(str(self._target))
            asking = threading.Thread(target=_pass_on, args=(near, far), daemon=True)
            asking.start()
            left = self._after
            while left > 0 and (piece := far.recv(left)):
                near.sendall(piece)
                left -= len(piece)
            near.shutdown(socket.SHUT_RDWR)
            asking.join(30)


def _pass_on(near: socket.socket, far: socket.socket) -> None:
    while piece := near.recv(65_536):
        far.sendall(piece)


@pytest.mark.parametrize(
    ("point", "store_kind"),
    [
        *((point, "sqlite") for point in RESTORE_POINTS),
        *((point, "postgresql") for point in (restore.BEFORE_COMMIT, restore.FILLED)),
    ],
)
def test_a_restore_killed_at_the_point_is_finished_by_the_same_command(
    rig: Rig, point: str, store_kind: str, request: pytest.FixtureRequest
) -> None:
    url = None
    if store_kind == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("new_database")
        url = make()
    file, to = rig.folder / "nightly.enlist", rig.folder / "elsewhere"
    real_platform.run_enlist(*rig.create(file))
    rig.platform.stop()
    _killed_at(point, rig.restore(file, to=to, url=url))
    assert (to / under_way.NAME).exists()
    refused = subprocess.run(
        [*real_platform.ENLIST, "serve", "--data-dir", str(to)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=real_platform.clean_environment(),
    )
    assert refused.returncode == 6
    assert "enlist backup restore FILE" in refused.stderr
    said = json.loads(real_platform.run_enlist(*rig.restore(file, to=to, url=url)))
    assert said["backup_id"]
    assert not (to / under_way.NAME).exists()
    rig.platform = real_platform.start(to, database_url=url)
    with operators.local(rig.platform) as client:
        assert [node["node_id"] for node in operators.nodes(client)] == ["old-1"]
        assert len(operators.actions(client, action="backup.restore")) == 1
        assert [one["state"] for one in operators.enrollments(client)].count("revoked") == 1
    assert operators.is_intact(rig.platform)
    assert [one.name for one in to.iterdir() if one.name.startswith(".tmp-")] == []


def test_another_backup_does_not_go_on_where_one_was_interrupted(rig: Rig) -> None:
    first, second, to = rig.folder / "first", rig.folder / "second", rig.folder / "elsewhere"
    real_platform.run_enlist(*rig.create(first))
    real_platform.run_enlist(*rig.create(second))
    _killed_at(restore.FILLED, rig.restore(first, to=to, url=None))
    real_platform.run_enlist(*rig.restore(second, to=to, url=None), expect=4)
    real_platform.run_enlist(*rig.restore(first, to=to, url=None))


def test_a_backup_for_which_there_is_no_room_leaves_nothing(rig: Rig) -> None:
    with small_disk.mounted(rig.folder / "disk", megabytes=4) as disk:
        ballast = small_disk.fill(disk)
        real_platform.run_enlist(*rig.create(disk / "nightly.enlist"), expect=75)
        assert [one.name for one in disk.iterdir()] == [ballast.name]
        ballast.unlink()
        real_platform.run_enlist(*rig.create(disk / "nightly.enlist"))
        rig.verify(disk / "nightly.enlist")


def test_a_restore_for_which_there_is_no_room_goes_on_when_there_is(rig: Rig) -> None:
    file = rig.folder / "nightly.enlist"
    real_platform.run_enlist(*rig.create(file))
    rig.platform.stop()
    with small_disk.mounted(rig.folder / "disk", megabytes=4) as disk:
        ballast = small_disk.fill(disk)
        os.truncate(ballast, ballast.stat().st_size - 131_072)  # for the mark, not for the store
        to = disk / "elsewhere"
        real_platform.run_enlist(*rig.restore(file, to=to, url=None), expect=75)
        ballast.unlink()
        real_platform.run_enlist(*rig.restore(file, to=to, url=None))
        assert (to / "master.key").exists()
        assert not (to / under_way.NAME).exists()


def test_a_file_that_was_cut_or_changed_changes_nothing(rig: Rig) -> None:
    file, to = rig.folder / "nightly.enlist", rig.folder / "elsewhere"
    real_platform.run_enlist(*rig.create(file))
    whole = file.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], whole[:300], whole + b"x"):
        file.write_bytes(content)
        for command in (
            rig.restore(file, to=to, url=None),
            ["backup", "verify", str(file), "--identity-file", str(rig.identity)],
        ):
            done = subprocess.run(
                [*real_platform.ENLIST, *command],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env=real_platform.clean_environment(),
            )
            assert done.returncode == 3, done.stderr
            assert re.search("damaged|cut off|too early|after its end", done.stderr)
        assert not to.exists()
