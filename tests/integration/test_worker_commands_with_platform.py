"""What a person does on a node that dials out, against a real Platform: renew, leave, look."""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import machine, real_platform


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[real_platform.RealPlatform]:
    with real_platform.running(tmp_path_factory.mktemp("platform") / "platform") as running:
        yield running


def joined(
    platform: real_platform.RealPlatform, folder: pathlib.Path, *, node_id: str
) -> machine.Machine:
    """A machine that dials out."""
    real_platform.run_enlist(
        *("--data-dir", str(folder / node_id), "worker", "join", "-"),
        stdin=machine.issue(platform, node_id),
    )
    return machine.Machine(data_dir=folder / node_id, port=0)


def worker(node: machine.Machine, *arguments: str, expect: int = 0) -> dict[str, Any]:
    """A command of that machine, by what it prints as JSON."""
    said = real_platform.run_enlist(
        *("--data-dir", str(node.data_dir), "-o", "json", "worker", *arguments), expect=expect
    )
    document: dict[str, Any] = json.loads(said) if said else {}
    return document


def test_a_key_changed_beside_the_running_agent_is_the_nodes_and_it_stays_ready(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    node = joined(platform, tmp_path, node_id="web-1")
    with node.agent():
        before = machine.wait_for_state(platform, "web-1", "ready")
        assert worker(node, "renew", "--check")["renewed"] is False
        renewed = worker(node, "renew", "--new-key")
        assert renewed["key_changed"] is True
        after = machine.wait_for(
            platform, "web-1", lambda entry: entry["pin"] == renewed["pin"], seconds=60
        )
        assert after["state"] == "ready"
        assert after["pin"] != before["pin"]
        assert after["generation"] > before["generation"]
        status = worker(node, "status")
        assert status["session"]["state"] == "open"
        assert status["pin"] == renewed["pin"]
        assert status["certificate_not_after"] == renewed["not_after"]


def test_leaving_beside_the_running_agent_removes_the_node_and_ends_the_agent(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    node = joined(platform, tmp_path, node_id="web-2")
    with node.agent() as agent:
        machine.wait_for_state(platform, "web-2", "ready")
        assert worker(node, "leave")["left"] is True
        assert agent.process.wait(30) == 6
    assert machine.node(platform, "web-2")["state"] == "removed"
    assert not list(node.data_dir.glob("*.json"))
    assert not (node.data_dir / "identity").exists()


def test_a_copy_that_leaves_does_not_take_the_original_with_it(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    node = joined(platform, tmp_path, node_id="web-3")
    with node.agent():
        machine.wait_for_state(platform, "web-3", "ready")
        copy = machine.Machine(data_dir=tmp_path / "copy", port=0)
        shutil.copytree(node.data_dir, copy.data_dir)
        worker(copy, "leave", expect=75)
        assert machine.node(platform, "web-3")["state"] == "ready"
    assert (copy.data_dir / "agent.json").exists()


def test_a_machine_whose_name_changes_stays_the_same_node(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    node = joined(platform, tmp_path, node_id="web-4")
    with node.agent():
        before = machine.wait_for_state(platform, "web-4", "ready")
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname another-name && exec "$@"', "sh")
    if shutil.which("unshare") is None:
        pytest.skip("unshare is of util-linux")
    agent = node.start_agent(prefix=renamed)
    with contextlib.ExitStack() as stack:
        stack.callback(agent.stop)
        after = machine.wait_for(
            platform,
            "web-4",
            lambda entry: entry["state"] == "ready" and entry["generation"] > before["generation"],
            seconds=60,
        )
    assert (after["node_id"], after["pin"]) == ("web-4", before["pin"])


def test_a_node_that_listens_changes_its_key_by_an_errand_and_is_asked_by_the_new_one(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    node = machine.in_folder(tmp_path, name="web-5")
    node.join(machine.issue(platform, "web-5"))
    with node.agent():
        before = machine.wait_for_state(platform, "web-5", "ready")
        renewed = worker(node, "renew", "--new-key")
        after = machine.wait_for(
            platform,
            "web-5",
            lambda entry: entry["pin"] == renewed["pin"] and entry["state"] == "ready",
            seconds=60,
        )
    assert after["pin"] != before["pin"]
    assert after["connectivity"] == "listen"
