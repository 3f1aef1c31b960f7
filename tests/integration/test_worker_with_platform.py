"""The worker beside a real Platform: trust keys that rotate, and nodes that come back."""

import datetime
import json
import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.support import clocks, joining, machine, real_platform
from worker_agent.settings import paths, trust_file

QUICK_PROBES = {"ENLIST_PROBE__INTERVAL_SECONDS": "1"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("with-platform") / "platform"
    with real_platform.running(folder, environment=QUICK_PROBES) as running:
        yield running


def trust_keys(worker: machine.Machine) -> set[str]:
    held = trust_file.read(paths.Paths(folder=worker.data_dir).trust)
    assert held is not None
    return {key.key_id for key in held.statement.trust_keys}


def published(platform: real_platform.RealPlatform) -> set[str]:
    shown = json.loads(platform.enlist("platform", "show", "-o", "json"))
    return {key["key_id"] for key in shown["trust_keys"]}


def test_a_join_during_a_rotation_works_and_survives_the_next(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    early = machine.in_folder(tmp_path, name="early")
    early.join(machine.issue(platform, "early-1"))
    before_rotation = machine.issue(platform, "between-1")
    platform.enlist("platform", "rotate-trust-key", "--yes")
    between = machine.in_folder(tmp_path, name="between")
    between.join(before_rotation)
    platform.enlist("platform", "rotate-trust-key", "--yes")
    late = machine.in_folder(tmp_path, name="late")
    late.join(machine.issue(platform, "late-1"))
    for worker in (early, between, late):
        real_platform.run_enlist("worker", "refresh-trust", "--data-dir", str(worker.data_dir))
        assert trust_keys(worker) == published(platform)
    with early.agent(), between.agent(), late.agent():
        for node_id in ("early-1", "between-1", "late-1"):
            machine.wait_for_state(platform, node_id, "ready")


def test_a_join_without_an_address_stays_enrolled(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "outward"
    token = machine.issue(platform, "outward-1")
    said = real_platform.run_enlist(
        *("worker", "join", "-", "--data-dir", str(folder), "-o", "json"), stdin=token
    )
    assert json.loads(said)["connectivity"] == "dial-out"
    shown = machine.node(platform, "outward-1")
    assert (shown["state"], shown["connectivity"]) == ("enrolled", "dial-out")


def test_a_join_that_was_killed_may_be_repeated_with_another_address(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    token = machine.issue(platform, "moved-1")
    first = machine.in_folder(tmp_path, name="moved")
    first.join(token, environment={"ENLIST_CRASH_AT": "join.answered"}, expect=-signal.SIGKILL)
    assert machine.node(platform, "moved-1")["address"] == f"https://127.0.0.1:{first.port}"
    moved = machine.Machine(data_dir=first.data_dir, port=machine.free_port())
    moved.join(token, "--address", "localhost")
    with moved.agent():
        shown = machine.wait_for_state(platform, "moved-1", "ready")
    assert shown["address"] == f"https://127.0.0.1:{moved.port}"


def test_a_lost_certificate_is_made_anew_by_the_same_command_and_the_node_comes_back(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    token = machine.issue(platform, "lost-1")
    worker = machine.in_folder(tmp_path, name="lost")
    worker.join(token)
    with worker.agent():
        pin = machine.wait_for_state(platform, "lost-1", "ready")["pin"]
    paths.Paths(folder=worker.data_dir).certificate.write_bytes(b"")
    worker.join(token)
    made = worker.certificate_fingerprint()
    with worker.agent():
        machine.wait_until_answered(platform, "lost-1", after=datetime.datetime.now(datetime.UTC))
        shown = machine.wait_for_state(platform, "lost-1", "ready")
    assert (shown["pin"], shown["certificate_sha256"]) == (pin, made)


async def test_a_clock_that_is_wrong_is_told_by_how_much(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    joined = joining.Joining(
        folder=tmp_path / "skewed",
        clock=clocks.ShiftedClock(ahead=datetime.timedelta(hours=2)),
    )
    await joined.join(machine.issue(platform, "skewed-1"), port=machine.free_port())
    (warning,) = joined.warned
    assert "s ahead of the Platform's" in warning
    assert machine.node(platform, "skewed-1")["state"] == "enrolled"
