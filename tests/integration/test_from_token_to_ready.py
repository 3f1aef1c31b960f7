"""The whole way, with the product's own commands: token, join, Agent, ready."""

import json
import os
import pathlib
import stat
from collections.abc import Iterator

import pytest

from tests.support import machine, real_platform

QUICK_PROBES = {"ENLIST_PROBE__INTERVAL_SECONDS": "1"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("whole-way") / "platform"
    with real_platform.running(folder, environment=QUICK_PROBES) as running:
        yield running


def test_two_data_directories_on_one_machine_become_two_ready_nodes(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    first = machine.in_folder(tmp_path, name="first")
    second = machine.in_folder(tmp_path, name="second")
    first.join(machine.issue(platform, "pair-1"))
    second.join(machine.issue(platform, "pair-2"))
    with first.agent(), second.agent():
        shown = [machine.wait_for_state(platform, name, "ready") for name in ("pair-1", "pair-2")]
    assert [entry["compatibility"] for entry in shown] == ["current", "current"]
    assert all(abs(entry["clock_offset_ms"]) < 2000 for entry in shown)
    assert all(entry["last_seen_at"] for entry in shown)
    assert shown[0]["pin"] != shown[1]["pin"]


def test_a_node_is_not_ready_before_its_agent_has_answered(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "silent-1"))
    assert machine.node(platform, "silent-1")["state"] == "enrolled"


def test_a_ready_node_whose_agent_ends_becomes_unreachable_and_comes_back(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "coming-1"))
    with worker.agent():
        machine.wait_for_state(platform, "coming-1", "ready")
    gone = machine.wait_for_state(platform, "coming-1", "unreachable")
    assert gone["reason"]
    with worker.agent():
        machine.wait_for_state(platform, "coming-1", "ready")


def test_an_agent_killed_right_after_the_join_comes_up_without_a_token(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Lesson D10."""
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "killed-1"))
    worker.start_agent().kill()
    with worker.agent():
        machine.wait_for_state(platform, "killed-1", "ready")


@pytest.mark.skipif(os.geteuid() != 0, reason="a hostname of the test's own needs root")
def test_a_machine_that_changes_its_hostname_stays_the_node_it_is(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Lesson C8; C10 is the two nodes on one machine above, with one machine-id and firmware."""
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "named-1"))
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname another-name && exec "$@"', "sh")
    agent = worker.start_agent(prefix=renamed)
    try:
        assert machine.wait_for_state(platform, "named-1", "ready")["node_id"] == "named-1"
    finally:
        agent.stop()


def test_joining_again_changes_nothing_and_says_so(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    token = machine.issue(platform, "again-1")
    worker.join(token)
    before = machine.node(platform, "again-1")
    worker.join(token)
    assert machine.node(platform, "again-1")["pin"] == before["pin"]


def test_a_joined_machine_joins_no_other_node(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "taken-1"))
    worker.join(machine.issue(platform, "taken-2"), expect=4)


def test_a_second_machine_with_a_spent_token_is_refused(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    token = machine.issue(platform, "spent-1")
    machine.in_folder(tmp_path, name="first").join(token)
    machine.in_folder(tmp_path, name="second").join(token, expect=3)


def test_a_removed_nodes_token_does_not_come_back_to_life(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Lesson B10."""
    token = machine.issue(platform, "removed-1")
    machine.in_folder(tmp_path, name="first").join(token)
    platform.enlist("nodes", "remove", "removed-1", "--yes")
    machine.in_folder(tmp_path, name="second").join(token, expect=3)


def test_five_removals_and_allowances_end_in_five_recoveries(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Lesson E14."""
    for turn in range(5):
        worker = machine.in_folder(tmp_path, name=f"turn-{turn}")
        worker.join(machine.issue(platform, "phoenix-1"))
        platform.enlist("nodes", "remove", "phoenix-1", "--yes")
        platform.enlist("nodes", "allow", "phoenix-1")


def test_everything_on_the_machine_is_its_owners_alone(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Lesson G14, under a umask that would let everybody in."""
    worker = machine.in_folder(tmp_path)
    before = os.umask(0)
    try:
        worker.join(machine.issue(platform, "private-1"))
    finally:
        os.umask(before)
    entries = [worker.data_dir, *worker.data_dir.rglob("*")]
    modes = {entry.name: stat.S_IMODE(entry.lstat().st_mode) for entry in entries}
    assert all(mode & 0o077 == 0 for mode in modes.values()), modes


def test_the_join_says_what_it_wrote_and_how_to_start_the_agent(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    said = json.loads(worker.join(machine.issue(platform, "told-1"), "-o", "json"))
    assert f"enlist agent --data-dir {worker.data_dir}" in json.dumps(said)
    for name in ("trust.json", "agent.json", "join.json"):
        assert name in json.dumps(said)


def test_the_platforms_own_id_cannot_be_issued(platform: real_platform.RealPlatform) -> None:
    """Z-10."""
    real_platform.run_enlist(
        "--data-dir", str(platform.data_dir), "nodes", "enroll-token", "local", expect=4
    )


def test_no_secret_of_a_join_reaches_any_log_or_list(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    issued = json.loads(platform.enlist("nodes", "enroll-token", "quiet-1", "-o", "json"))
    worker.join(issued["join_token"])
    secret = issued["token"].split("_")[2]
    shown = [
        platform.enlist("nodes", "list", "-o", "json"),
        platform.enlist("nodes", "audit", "-o", "json"),
        platform.enlist("audit", "list", "-o", "json"),
        platform.log.read_text(),
    ]
    stored = [path.read_bytes() for path in platform.data_dir.glob("enlist.db*")]
    assert not any(secret in text or issued["join_token"] in text for text in shown)
    assert not any(secret.encode() in content for content in stored)
    assert not any(bytes.fromhex(secret) in content for content in stored)
