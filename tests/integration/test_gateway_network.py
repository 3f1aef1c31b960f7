"""A real Platform and a real Agent that dials out, with a router in between that misbehaves.

The short ones hurry by a heartbeat a second, so that the dead connection is told after 26 s; the
long ones keep the pace that is shipped.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import machine, real_platform, routed_hosts

pytestmark = [pytest.mark.xdist_group("routed-hosts"), pytest.mark.timeout(240)]

HURRIED = {"ENLIST_GATEWAY__HEARTBEAT_SECONDS": "1"}
NODE = "far-1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Far:
    """A Platform, a router, and a machine beyond it."""

    hosts: routed_hosts.Hosts
    platform: real_platform.RealPlatform
    worker: machine.Machine

    def enlist(
        self, *arguments: str, stdin: str = "", seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the machine."""
        return subprocess.run(
            [*self.hosts.in_machine, *real_platform.ENLIST, *arguments,
             "--data-dir", str(self.worker.data_dir)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=real_platform.clean_environment(),
        )  # fmt: skip

    def join(self) -> None:
        done = self.enlist("worker", "join", "-", stdin=machine.issue(self.platform, NODE))
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def agent(self) -> Iterator[machine.Agent]:
        running = self.worker.start_agent(prefix=self.hosts.in_machine)
        try:
            yield running
        finally:
            running.stop()

    def doctor(self) -> dict[str, dict[str, Any]]:
        done = self.enlist("doctor", "-o", "json")
        return {check["name"]: check for check in json.loads(done.stdout)["checks"]}

    def ready(self, *, seconds: float = 30.0) -> float:
        """Waits until the node is ready; gives how long that took."""
        began = time.monotonic()
        machine.wait_for_state(self.platform, NODE, "ready", seconds=seconds)
        return time.monotonic() - began

    def sessions(self, agent: machine.Agent) -> list[str]:
        """The ids of the sessions that the Agent has opened so far."""
        lines = [json.loads(line) for line in agent.log.read_text().splitlines() if line[:1] == "{"]
        return [line["session"] for line in lines if line["event"] == "Session open"]

    def wait_for(self, true: Callable[[], bool], *, seconds: float, agent: machine.Agent) -> float:
        """Looks again and again; gives how long it took."""
        return routed_hosts.until(
            true,
            seconds=seconds,
            said=lambda: (machine.node(self.platform, NODE), real_platform.tail(agent.log)),
        )

    def state(self) -> str:
        return str(machine.node(self.platform, NODE)["state"])

    def heard(self) -> str | None:
        """When the Platform last heard the node."""
        found = machine.node(self.platform, NODE)["last_seen_at"]
        return None if found is None else str(found)


@contextlib.contextmanager
def far(
    folder: pathlib.Path, *, environment: dict[str, str] | None = None, names: bool = True
) -> Iterator[Far]:
    """Both ends and the router, with the machine not yet joined."""
    addresses = (
        (routed_hosts.PLATFORM_NAME, routed_hosts.PLATFORM_IPV4)
        if names
        else (routed_hosts.PLATFORM_IPV4,)
    )
    with (
        routed_hosts.joined() as hosts,
        real_platform.running(
            folder / "platform",
            addresses=addresses,
            prefix=hosts.in_platform,
            environment=environment,
        ) as platform,
    ):
        yield Far(hosts=hosts, platform=platform, worker=machine.in_folder(folder))


def test_a_lost_ipv6_costs_a_moment_and_the_doctor_names_it(tmp_path: pathlib.Path) -> None:
    with far(tmp_path) as net:
        net.hosts.lose_ipv6()
        net.join()
        with net.agent() as agent:
            net.ready()
            found = net.doctor()["worker.dns.gateway"]
        assert len(net.sessions(agent)) == 1
    assert found["status"] == "warning"
    assert "IPv6" in found["detail"]
    assert routed_hosts.PLATFORM_IPV6 in found["detail"]


def test_small_packets_alone_are_enough_for_joining_and_for_a_session(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path, environment=HURRIED) as net:
        net.hosts.lose_larger_than(1300)
        began = time.monotonic()
        net.join()
        joined = time.monotonic() - began
        with net.agent() as agent:
            net.ready()
            net.platform.enlist("platform", "rotate-trust-key", "--yes")
            done = net.enlist("worker", "refresh-trust")
            assert done.returncode == 0, done.stderr
            found = net.doctor()
        assert len(net.sessions(agent)) == 1
    assert joined < 30
    assert found["worker.enrollment"]["status"] == "ok"
    assert found["worker.path-mtu"]["status"] == "ok"


@pytest.mark.parametrize("size", [1300, 600])
def test_a_black_hole_is_found_and_a_size_that_works_is_named(
    size: int, tmp_path: pathlib.Path
) -> None:
    with far(tmp_path) as net:
        net.join()
        # A listener of somebody else's in between, which holds its packets to no size.
        with net.hosts.serving_as_others_do(net.platform.enrollment_url):
            net.hosts.lose_larger_than(size)
            found = net.doctor()["worker.path-mtu"]
    assert (found["status"], found["class"]) == ("failed", "needs-operator"), found
    assert found["facts"]["works_with_mtu"] < size
    assert "tcp_mtu_probing" in found["command"]


def test_a_session_opens_and_stays_while_every_fifth_packet_is_lost(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path, environment=HURRIED) as net:
        net.join()
        net.hosts.lose(20)
        with net.agent() as agent:
            net.ready(seconds=90)
            for _ in range(3):
                before = net.heard()
                net.wait_for(lambda: net.heard() != before, seconds=40, agent=agent)  # noqa: B023
            assert machine.node(net.platform, NODE)["state"] == "ready"


def test_heartbeats_keep_a_translation_from_forgetting_the_connection(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path, environment=HURRIED) as net:
        net.hosts.translate_and_forget_after(6)
        net.join()
        with net.agent() as agent:
            net.ready()
            until = time.monotonic() + 15
            net.wait_for(lambda: time.monotonic() > until, seconds=30, agent=agent)
            assert len(net.sessions(agent)) == 1
            assert machine.node(net.platform, NODE)["state"] == "ready"


def test_a_platform_that_moved_is_found_by_its_name(tmp_path: pathlib.Path) -> None:
    with far(tmp_path, environment=HURRIED) as net:
        net.join()
        with net.agent() as agent:
            net.ready()
            before = net.sessions(agent)
            net.platform.process.send_signal(1)  # the engine is replaced: every session is closed
            net.hosts.move_platform()
            net.wait_for(lambda: net.sessions(agent) > before, seconds=40, agent=agent)
            net.ready()


def test_a_connection_that_died_without_a_word_is_noticed_and_made_anew(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path, environment=HURRIED) as net:
        net.join()
        with net.agent() as agent:
            net.ready()
            before = net.sessions(agent)
            net.hosts.cut()
            noticed = net.wait_for(lambda: _lost(agent), seconds=60, agent=agent)
            net.hosts.heal()
            back = net.wait_for(lambda: net.sessions(agent) > before, seconds=60, agent=agent)
            net.ready()
    assert noticed < 40
    assert noticed + back < 90


def _lost(agent: machine.Agent) -> bool:
    lines = [json.loads(line) for line in agent.log.read_text().splitlines() if line[:1] == "{"]
    return any(line["event"].startswith("Session ended") for line in lines)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_at_the_pace_that_is_shipped_a_dead_connection_is_noticed_within_a_minute(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path) as net:
        net.join()
        with net.agent() as agent:
            net.ready()
            before = net.sessions(agent)
            net.hosts.cut()
            noticed = net.wait_for(lambda: _lost(agent), seconds=90, agent=agent)
            there = net.wait_for(lambda: net.state() == "unreachable", seconds=90, agent=agent)
            net.hosts.move_platform()
            net.hosts.heal()
            back = net.wait_for(lambda: net.sessions(agent) > before, seconds=90, agent=agent)
            net.ready()
    assert noticed <= 60
    assert noticed + there <= 125  # 55 s of silence, and the grace of a minute
    assert back <= 90


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("forgotten_after", [60, 350])
def test_at_the_pace_that_is_shipped_a_translation_never_forgets_the_connection(
    forgotten_after: int, tmp_path: pathlib.Path
) -> None:
    with far(tmp_path) as net:
        net.hosts.translate_and_forget_after(forgotten_after)
        net.join()
        with net.agent() as agent:
            net.ready()
            until = time.monotonic() + forgotten_after + 60
            net.wait_for(lambda: time.monotonic() > until, seconds=600, agent=agent)
            assert len(net.sessions(agent)) == 1
            assert net.state() == "ready"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_minutes_of_every_fifth_packet_lost_leave_the_node_ready(
    tmp_path: pathlib.Path,
) -> None:
    with far(tmp_path) as net:
        net.join()
        net.hosts.lose(20)
        with net.agent() as agent:
            net.ready(seconds=90)
            states: list[str] = []
            until = time.monotonic() + 600

            def over() -> bool:
                states.append(net.state())
                return time.monotonic() > until

            net.wait_for(over, seconds=700, agent=agent)
    assert states.count("ready") / len(states) > 0.95
