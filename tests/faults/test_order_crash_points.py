"""`kill -9` of an engine and of an Agent at every named point of an order, for real.

Whatever is killed, the order is there afterwards, the Agent has begun it once at most, and it ends
with what is known of it.
"""

import pathlib
import signal

import pytest

from platform_server.dispatch import deliver, giving
from runtime_kit import crash_points
from tests.support import giving_orders, machine, operators, real_platform
from worker_agent.orders import taking, work

pytestmark = pytest.mark.timeout(180)

ENGINE_POINTS = sorted(name for name in crash_points.declared() if name.startswith("order."))
AGENT_POINTS = {
    taking.TAKEN: "done",  # it was not begun: the next Agent begins it
    work.BEGUN: "failed",  # nobody knows whether it took effect
    work.CARRIED_OUT: "failed",
    work.RESULT_STORED: "done",
}
CRASHED = '"exit_code": -9'


def test_the_points_cover_every_step() -> None:
    """A new point: it is walked by itself where its name says what it belongs to."""
    every = {giving.STORED, deliver.SENDING, deliver.SENT, deliver.ACCEPTED, deliver.RESULT_STORED}
    assert set(ENGINE_POINTS) == every
    assert set(AGENT_POINTS) == {
        name for name in crash_points.declared() if name.startswith("orders.")
    }


@pytest.mark.parametrize("point", ENGINE_POINTS)
def test_an_engine_killed_at_the_point_loses_no_order_and_none_is_taken_twice(
    point: str, store_kind: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if store_kind == "postgresql" else None
    ports = (machine.free_port(), machine.free_port())

    def start(crash_at: str | None) -> real_platform.RealPlatform:
        return real_platform.start(
            tmp_path / "platform",
            *("--gateway-port", str(ports[1])),
            database_url=url,
            enrollment_port=ports[0],
            environment={"ENLIST_CRASH_AT": crash_at} if crash_at else None,
        )

    platform = start(point)
    worker = machine.dialling_out(tmp_path)
    try:
        worker.join(machine.issue(platform, "web-1"))
        with worker.agent() as agent:
            machine.wait_for_state(platform, "web-1", "ready")
            giving_orders.give(platform, "web-1", key="once")
            operators.wait_until(
                lambda: CRASHED in platform.log.read_text(), what=f"{point} was reached"
            )
            real_platform.kill_group(platform.process)
            platform = start(None)
            again = giving_orders.give(platform, "web-1", key="once")
            (order,) = giving_orders.wait_until_ended(platform, "web-1")
            assert again is not None
            assert order["order_id"] == again["order_id"]
            giving_orders.give(platform, "web-1")
            both = giving_orders.wait_until_ended(platform, "web-1")
        # The first may have failed, for want of a Platform to ask; the node's word is what counts.
        said = giving_orders.ended(agent.log)
        assert said == {(1, 1): [order["state"]], (1, 2): ["done"]}
        assert [one["state"] for one in both] == [order["state"], "done"]
        assert giving_orders.taken(agent.log) == {(1, 1): 1, (1, 2): 1}
    finally:
        platform.stop()


@pytest.mark.parametrize("point", sorted(AGENT_POINTS))
def test_an_agent_killed_at_the_point_begins_no_order_twice(
    point: str, tmp_path: pathlib.Path
) -> None:
    worker = machine.dialling_out(tmp_path)
    with real_platform.running(tmp_path / "platform") as platform:
        worker.join(machine.issue(platform, "web-1"))
        agent = worker.start_agent(environment={"ENLIST_CRASH_AT": point})
        machine.wait_for_state(platform, "web-1", "ready")
        giving_orders.give(platform, "web-1")
        assert agent.process.wait(30) == -signal.SIGKILL, f"{point} was not reached"
        with worker.agent():
            (order,) = giving_orders.wait_until_ended(platform, "web-1")
        assert order["state"] == AGENT_POINTS[point]
        if order["state"] == "failed":
            assert "whether it took effect is not known" in order["detail"]
    assert giving_orders.taken(agent.log) in ({}, {(1, 1): 1})
    assert giving_orders.ended(agent.log) == {(1, 1): [AGENT_POINTS[point]]}
