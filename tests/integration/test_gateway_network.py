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
        began = time.monotonic()
        while not true():
            assert time.monotonic() - began < seconds, (
                machine.node(self.platform, NODE), real_platform.tail(agent.log))  # fmt: skip
            time.sleep(machine.PAUSE_SECONDS)
        return time.monotonic() - began

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
    assert joined < 15
    assert found["worker.enrollment"]["status"] == "ok"
    assert found["worker.path-mtu"]["status"] == "ok"


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
        net.hosts.translate_and_forget_after(3)
        net.join()
        with net.agent() as agent:
            net.ready()
            until = time.monotonic() + 12
            net.wait_for(lambda: time.monotonic() > until, seconds=20, agent=agent)
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
