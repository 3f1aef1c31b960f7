"""A machine whose network is away: at its boot, and while it works.

00 installed and joined, then switched off
01 booted without a network, the Agent stays alive and waits (long: ten minutes)
02 when the network comes, the node is ready by itself, without a restart of the Agent
03 a permanent refusal stops the Agent with its exit code, and systemd leaves it stopped
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.machines import installing, machine

NODE = "network-1"


@pytest.fixture(scope="module")
def worker(new_machine: Callable[..., machine.Placing]) -> Iterator[machine.Machine]:
    """A bare, running machine."""
    with new_machine("network") as booted:
        booted.boot()
        yield booted


def test_00_installed_and_joined(platform: installing.Platform, worker: machine.Machine) -> None:
    installing.install(
        *(worker, "worker", "--join-token-file", "-"), stdin=platform.token(NODE).join_token
    )
    platform.wait_state(NODE, "ready")
    worker.power_off()


@pytest.mark.parametrize(
    "seconds", [8, pytest.param(600, marks=pytest.mark.long)], ids=["short", "ten-minutes"]
)
def test_01_booted_without_a_network_the_agent_waits(worker: machine.Machine, seconds: int) -> None:
    if worker.running:
        worker.power_off()
    # Nobody waits two minutes for the network to come up here: that is the distribution's pace.
    worker.write(
        "/etc/systemd/system/systemd-networkd-wait-online.service.d/test.conf",
        "[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --timeout=3\n",
    )
    worker.start(plugged=False)
    worker.until("systemctl", "is-active", "enlist-agent.service", seconds=90)
    before = installing.agent_pid(worker)
    worker.let_run(seconds)
    assert installing.agent_pid(worker) == before


def test_02_with_the_network_the_node_is_ready_by_itself(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    before, heard = installing.agent_pid(worker), platform.node(NODE)["generation"]
    worker.plug()
    with installing.explained(worker, "enlist-agent.service"):
        platform.wait_newer_session(NODE, than=heard, seconds=120)
    assert installing.agent_pid(worker) == before


def test_03_a_permanent_refusal_stops_it(
    platform: installing.Platform, worker: machine.Machine
) -> None:
    platform.enlist("nodes", "remove", NODE, "--force", "--yes")
    worker.until(
        *("sh", "-c", "test $(systemctl show -P ActiveState enlist-agent.service) = failed"),
        seconds=90,
    )
    shown = worker.run("systemctl", "show", "-P", "ExecMainStatus", "enlist-agent.service")
    assert shown.strip() in {"3", "6"}
    assert worker.run("systemctl", "show", "-P", "NRestarts", "enlist-agent.service").strip() == "0"
