"""The whole way: a Platform, real Agents that dial out, an operator, and a copied disk."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from tests.support import machine, operators, real_platform

pytestmark = pytest.mark.timeout(180)
NODE = "web-1"
NEEDS_OPERATOR = 6


def dialling(folder: pathlib.Path, *, name: str = "machine") -> machine.Machine:
    return machine.Machine(data_dir=folder / name, port=0)


def ended(agent: machine.Agent, *, seconds: float) -> int:
    """The Agent's exit code; it must end by itself in time."""
    try:
        return agent.process.wait(seconds)
    except subprocess.TimeoutExpired:
        said = real_platform.tail(agent.log)
        raise AssertionError(f"The Agent goes on; it logged:\n{said}") from None


def test_a_removed_nodes_session_ends_at_once_and_its_agent_stops_and_says_why(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    worker = dialling(tmp_path)
    with real_platform.running(tmp_path / "platform", database_url=store_url) as platform:
        worker.join(machine.issue(platform, NODE))
        with worker.agent() as agent:
            machine.wait_for_state(platform, NODE, "ready")
            platform.enlist("nodes", "remove", NODE, "--yes")
            operators.wait_until(
                lambda: "A session has ended" in platform.log.read_text(),
                what="the session ended",
                seconds=3,
            )
            assert ended(agent, seconds=30) == NEEDS_OPERATOR
        assert "enlist nodes allow web-1" in agent.log.read_text()
        with worker.agent() as again:
            assert ended(again, seconds=30) == NEEDS_OPERATOR
        assert machine.node(platform, NODE)["state"] == "removed"


def test_of_two_machines_with_one_disk_the_running_one_stays_and_both_are_named(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    worker = dialling(tmp_path)
    copy = dialling(tmp_path, name="copy")
    with real_platform.running(tmp_path / "platform", database_url=store_url) as platform:
        worker.join(machine.issue(platform, NODE))
        with worker.agent() as agent:
            before = machine.wait_for_state(platform, NODE, "ready")
            shutil.copytree(worker.data_dir, copy.data_dir)
            with copy.agent() as clone:
                assert ended(clone, seconds=30) == NEEDS_OPERATOR
            assert "generation-conflict" in clone.log.read_text()
            left = subprocess.run(
                [
                    *real_platform.ENLIST,
                    *("--data-dir", str(copy.data_dir), "worker", "leave", "--yes"),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env=real_platform.clean_environment(),
            )
            assert left.returncode not in (0, 1)
            assert agent.process.poll() is None
            after = machine.node(platform, NODE)
        assert (after["state"], after["generation"]) == ("ready", before["generation"])
        assert after["reason"].startswith("generation-conflict: also used from 127.0.0.1 since ")
        shown = platform.enlist("nodes", "show", NODE)
        assert "generation-conflict" in shown
        with operators.local(platform) as client:
            assert len(operators.actions(client, action="node.identity-conflict")) == 1


def test_an_engine_killed_loses_no_node_and_leaves_one_session(tmp_path: pathlib.Path) -> None:
    worker = dialling(tmp_path)
    with real_platform.running(tmp_path / "platform") as platform:
        worker.join(machine.issue(platform, NODE))
        with worker.agent():
            machine.wait_for_state(platform, NODE, "ready")
            for _ in range(3):
                engine = platform.child(" engine")
                generation = machine.node(platform, NODE)["generation"]
                os.kill(engine.pid, signal.SIGKILL)
                operators.wait_until(
                    lambda at=generation: _generation(platform) > at,  # type: ignore[misc]
                    what="it opened another session",
                    seconds=60,
                )
                machine.wait_for_state(platform, NODE, "ready")
        assert operators.is_intact(platform)


def _generation(platform: real_platform.RealPlatform) -> int:
    try:
        return int(machine.node(platform, NODE)["generation"])
    except (OSError, AssertionError):
        return 0  # no engine serves at this moment


def test_a_replaced_engine_has_its_nodes_back_within_seconds(tmp_path: pathlib.Path) -> None:
    workers = [dialling(tmp_path, name=f"machine-{number}") for number in range(3)]
    with real_platform.running(tmp_path / "platform") as platform:
        agents = []
        try:
            for number, worker in enumerate(workers):
                worker.join(machine.issue(platform, f"web-{number}"))
                agents.append(worker.start_agent())
            for number in range(3):
                machine.wait_for_state(platform, f"web-{number}", "ready")
            platform.process.send_signal(signal.SIGHUP)
            operators.wait_until(
                lambda: "The engine was replaced" in platform.log.read_text(),
                what="the engine was replaced",
            )
            for number in range(3):
                machine.wait_for_state(platform, f"web-{number}", "ready", seconds=20)
        finally:
            for agent in agents:
                agent.stop()


def test_heartbeats_show_capacity_and_how_old_they_are(tmp_path: pathlib.Path) -> None:
    worker = dialling(tmp_path)
    with real_platform.running(
        tmp_path / "platform", environment={"ENLIST_GATEWAY__HEARTBEAT_SECONDS": "1"}
    ) as platform:
        worker.join(machine.issue(platform, NODE))
        with worker.agent():
            operators.wait_until(
                lambda: machine.node(platform, NODE)["capacity"] is not None,
                what="a heartbeat was written",
            )
            first = machine.node(platform, NODE)["last_seen_at"]
            operators.wait_until(
                lambda: machine.node(platform, NODE)["last_seen_at"] > first,
                what="a later one was written",
            )
            node = machine.node(platform, NODE)
        assert node["state"] == "ready"
        assert 0 <= node["heartbeat_age_ms"] < 20_000
        assert node["capacity"]["cpu_count"] >= 1
        assert node["compatibility"] == "current"
        assert abs(node["clock_offset_ms"]) < 2_000
