"""Orders by the command line to real Agents: one dials out, one listens, one is away."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator

import pytest

from tests.support import giving_orders, machine, real_platform

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("orders-for-real")]

KINDS = ("refresh-trust", "renew")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A Platform with two nodes whose Agents run, `dials` and `listens`, and one that is away."""

    platform: real_platform.RealPlatform
    agents: dict[str, machine.Agent]

    def enlist(self, *arguments: str, expect: int = 0) -> str:
        return real_platform.run_enlist(
            "--data-dir", str(self.platform.data_dir), *arguments, expect=expect, seconds=120
        )


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("orders")
    with contextlib.ExitStack() as stack:
        platform = stack.enter_context(real_platform.running(folder / "platform"))
        workers = {
            "dials": machine.dialling_out(folder, name="dials"),
            "listens": machine.in_folder(folder, name="listens"),
            "away": machine.dialling_out(folder, name="away"),
        }
        for name, worker in workers.items():
            worker.join(machine.issue(platform, name))
        agents = {name: stack.enter_context(workers[name].agent()) for name in ("dials", "listens")}
        for name in agents:
            machine.wait_for_state(platform, name, "ready")
        yield Rig(platform=platform, agents=agents)


@pytest.mark.parametrize("node_id", ["dials", "listens"])
def test_each_kind_is_done_and_the_command_that_waits_says_so(rig: Rig, node_id: str) -> None:
    for kind in KINDS:
        said = json.loads(rig.enlist("nodes", "order", node_id, kind, "--wait", "-o", "json"))
        assert (said["kind"], said["state"], said["tries"]) == (kind, "done", 1), said
    table = rig.enlist("nodes", "orders", node_id)
    assert [line.split()[1:3] for line in table.splitlines()[1:]] == [
        ["renew", "done"],
        ["refresh-trust", "done"],
    ]
    machine.wait_for_state(rig.platform, node_id, "ready")
    assert giving_orders.ended(rig.agents[node_id].log) == {(1, 1): ["done"], (1, 2): ["done"]}


def test_an_order_to_a_node_that_is_away_waits_and_can_be_taken_back(rig: Rig) -> None:
    order = json.loads(rig.enlist("nodes", "order", "away", "renew", "-o", "json"))
    assert order["state"] == "queued"
    checked = rig.enlist("nodes", "cancel-order", "away", order["order_id"], "--check")
    assert order["order_id"] in checked
    rig.enlist("nodes", "cancel-order", "away", order["order_id"])
    rig.enlist("nodes", "cancel-order", "away", order["order_id"], expect=4)
    (found,) = giving_orders.listed(rig.platform, "away")
    assert found["state"] == "cancelled"


def test_a_command_that_waits_for_a_node_that_is_away_ends_with_the_orders_time(rig: Rig) -> None:
    said = rig.enlist(
        *("nodes", "order", "away", "renew", "--wait", "--ttl-minutes", "1", "-o", "json"),
        expect=75,
    )
    assert json.loads(said)["state"] == "expired"


def test_wrong_kinds_and_unknown_nodes_are_told_by_their_codes(rig: Rig) -> None:
    rig.enlist("nodes", "order", "dials", "reboot", expect=2)
    rig.enlist("nodes", "order", "nobody", "renew", expect=5)
    rig.enlist("nodes", "orders", "nobody", expect=5)


def test_orders_outlive_the_engine_that_stored_them(rig: Rig, tmp_path: pathlib.Path) -> None:
    worker = machine.dialling_out(tmp_path, name="later")
    worker.join(machine.issue(rig.platform, "later"))
    giving_orders.give(rig.platform, "later")
    giving_orders.give(rig.platform, "later", kind="renew")
    rig.platform.child("platform_server engine").kill()
    with worker.agent() as agent:
        found = giving_orders.wait_until_ended(rig.platform, "later")
    assert [one["state"] for one in found] == ["done", "done"]
    assert giving_orders.ended(agent.log) == {(1, 1): ["done"], (1, 2): ["done"]}
