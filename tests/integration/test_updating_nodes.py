"""Nodes that get another release: real Platform, real Agents, a stand-in for systemd and root."""

import pathlib
from collections.abc import Iterator

import pytest

from platform_server.endpoints import operations as routes
from platform_server.operations import node_release
from tests.support import machine, operators, real_platform, releasing
from wire_protocol import orders
from worker_agent.orders import work

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def platform(tmp_path: pathlib.Path) -> Iterator[real_platform.RealPlatform]:
    with real_platform.running(
        tmp_path / "platform",
        *("--gateway-port", "0", "--bundle-port", "0"),
        environment=releasing.SHORT,
    ) as running:
        yield running


def test_two_nodes_are_updated_one_after_the_other(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    offered = releasing.offer(platform, tmp_path)
    with (
        releasing.installed(platform, tmp_path, "web-1") as one,
        releasing.installed(platform, tmp_path, "web-2") as two,
    ):
        given = releasing.update(platform)
        found = releasing.ended(platform, given["operation"]["operation_id"])
        assert [part["state"] for part in found["parts"]] == ["done", "done"], found
        for node_id, installed in (("web-1", one), ("web-2", two)):
            node = machine.node(platform, node_id)
            assert (node["state"], node["scheduling"]) == ("ready", "active")
            assert (node["version"], node["compatibility"]) == (releasing.NEW, "current")
            assert installed.said()[1:] == [
                {"said": "staged", "release": offered.release},
                {"said": "changed", "release": offered.release},
            ]
            assert list((installed.worker.data_dir / "staged").glob("*")) == []
        steps = platform.api("GET", f"/operations/{given['parts'][1]['operation_id']}")["steps"]
        assert steps[0]["at"] >= found["parts"][0]["ended_at"]


@pytest.mark.long
def test_a_node_that_listens_is_updated_as_well(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    """Its heartbeats are asked for every 25 s and written after up to 30."""
    releasing.offer(platform, tmp_path)
    with releasing.installed(platform, tmp_path, listens=True):
        releasing.wait_until_known(platform, "web-1")
        given = releasing.update(platform, "web-1")
        found = releasing.ended(platform, given["operation"]["operation_id"], seconds=180)
        assert found["state"] == "done", found
        assert machine.node(platform, "web-1")["version"] == releasing.NEW


def test_a_release_that_does_not_come_up_is_rolled_back_and_the_rest_is_not_begun(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    releasing.offer(platform, tmp_path, replaced={"worker_agent/app/agent.py": releasing.BROKEN})
    with (
        releasing.installed(platform, tmp_path, "web-1") as one,
        releasing.installed(platform, tmp_path, "web-2") as two,
    ):
        given = releasing.update(platform)
        found = releasing.ended(platform, given["operation"]["operation_id"])
        assert [part["state"] for part in found["parts"]] == ["failed", "cancelled"], found
        assert found["reason"].startswith("web-1: The release did not come up")
        assert "rolled-back" in one.words()
        assert two.words() == []
        node = machine.wait_for_state(platform, "web-1", "ready")
        assert (node["version"], node["scheduling"]) == (releasing.OLD, "active")
        said = platform.enlist("operations", "show", given["parts"][0]["operation_id"])
        assert "it runs" in said
        for operation_id, code in (
            (given["operation"]["operation_id"], 3),
            (given["parts"][0]["operation_id"], 3),
            (given["parts"][1]["operation_id"], 4),
            ("0" * 16, 5),
        ):
            real_platform.run_enlist(
                *("--data-dir", str(platform.data_dir), "operations", "watch", operation_id),
                expect=code,
            )
        listed = platform.enlist("operations", "list", "--node", "web-2")
        assert "cancelled" in listed
        assert "No such operations" in platform.enlist("operations", "list", "--open")


def test_an_agent_killed_once_the_release_is_staged_counts_by_what_is_heard(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    offered = releasing.offer(platform, tmp_path)
    with releasing.installed(platform, tmp_path, crash_agent_at=work.CARRIED_OUT) as one:
        given = releasing.update(platform, "web-1")
        found = releasing.ended(platform, given["operation"]["operation_id"])
        assert found["state"] == "done", found
        assert one.words()[0] == "staged"
        order = platform.api("GET", "/nodes/web-1/orders")["orders"][0]
        assert (order["state"], order["detail"]) == ("failed", orders.INTERRUPTED)
        part = platform.api("GET", f"/operations/{given['parts'][0]['operation_id']}")
        assert offered.release in part["steps"][-2]["detail"]


@pytest.mark.parametrize("point", [routes.STORED, node_release.ORDERED, node_release.HEARD])
def test_a_killed_engine_is_followed_by_its_next_start(point: str, tmp_path: pathlib.Path) -> None:
    ports = [machine.free_port() for _ in range(3)]

    def start(crash_at: str | None) -> real_platform.RealPlatform:
        return real_platform.start(
            tmp_path / "platform",
            *("--gateway-port", str(ports[1]), "--bundle-port", str(ports[2])),
            enrollment_port=ports[0],
            environment={
                **releasing.SHORT,
                **({} if crash_at is None else {"ENLIST_CRASH_AT": crash_at}),
            },
        )

    platform = start(point)
    try:
        releasing.offer(platform, tmp_path)
        with releasing.installed(platform, tmp_path) as one:
            releasing.update_once(platform, "web-1", key="once")
            operators.wait_until(
                lambda: '"exit_code": -9' in platform.log.read_text(),
                what=f"{point} was reached",
                seconds=60,
            )
            real_platform.kill_group(platform.process)
            platform = start(None)
            given = releasing.update_once(platform, "web-1", key="once")
            assert given is not None
            found = releasing.ended(platform, given["operation"]["operation_id"])
            assert [part["state"] for part in found["parts"]] == ["done"], found
            assert machine.node(platform, "web-1")["version"] == releasing.NEW
            assert one.words() == ["staged", "changed"]
    finally:
        platform.stop()


def test_a_node_goes_back_to_the_release_before(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    releasing.offer(platform, tmp_path)
    with releasing.installed(platform, tmp_path) as one:
        given = releasing.update(platform, "web-1")
        assert releasing.ended(platform, given["operation"]["operation_id"])["state"] == "done"
        real_platform.run_enlist(
            *("--data-dir", str(platform.data_dir), "nodes", "roll-back", "web-1", "--wait"),
            seconds=releasing.SECONDS,
        )
        assert machine.node(platform, "web-1")["version"] == releasing.OLD
        assert one.said()[-1] == {"said": "changed", "release": one.release}


def test_a_machine_without_a_root_helper_says_so_and_goes_on(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    releasing.offer(platform, tmp_path, version="0.1.0")
    worker = machine.dialling_out(tmp_path)
    worker.join(machine.issue(platform, "web-1"))
    nowhere = {"ENLIST_HELPER_SOCKET": str(tmp_path / "no-helper.sock")}
    with worker.agent(environment=nowhere):
        machine.wait_for_state(platform, "web-1", "ready")
        given = platform.api("POST", "/nodes/web-1/roll-back", {})
        found = releasing.ended(platform, given["operation_id"])
        assert found["state"] == "failed"
        assert "has no root helper" in found["reason"]
        assert machine.node(platform, "web-1")["scheduling"] == "active"
