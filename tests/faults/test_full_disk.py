"""A full disk on either side: refused clearly, nothing spent, and it goes on when there is room."""

import json
import pathlib

from tests.support import machine, real_platform, small_disk


def test_a_machine_without_room_is_told_before_its_token_leaves(tmp_path: pathlib.Path) -> None:
    with (
        real_platform.running(tmp_path / "platform") as platform,
        small_disk.mounted(tmp_path / "disk", megabytes=4) as disk,
    ):
        worker = machine.Machine(data_dir=disk / "worker", port=machine.free_port())
        token = machine.issue(platform, "full-1")
        ballast = small_disk.fill(disk)
        worker.join(token, expect=2)
        listed = json.loads(platform.enlist("nodes", "list", "-o", "json"))
        assert [entry["state"] for entry in listed["enrollments"]] == ["pending"]
        assert platform.enlist("nodes", "audit", "-o", "json").count('"outcome"') == 0
        ballast.unlink()
        worker.join(token)


def test_a_platform_without_room_answers_later_and_keeps_the_token(
    tmp_path: pathlib.Path,
) -> None:
    """Lesson D6."""
    with (
        small_disk.mounted(tmp_path / "disk", megabytes=48) as disk,
        real_platform.running(disk / "platform") as platform,
    ):
        worker = machine.in_folder(tmp_path)
        token = machine.issue(platform, "full-2")
        ballast = small_disk.fill(disk)
        worker.join(token, expect=75)
        ballast.unlink()
        worker.join(token)
        assert machine.node(platform, "full-2")["state"] == "enrolled"
