"""`kill -9` of the engine in the middle of sessions, renewals and leaving, at every named point.

A real machine that dials out is at the other end, with the real Agent. Whatever was lost, the same
machine is the same node afterwards, ready, and nobody has joined it again. A point without a row
here fails a test, and so does a row whose point is not reached any more.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest

from platform_server.gateway import opening, questions
from platform_server.nodes import renewal
from runtime_kit import crash_points
from tests.support import machine, operators, real_platform
from worker_agent.settings import agent_file, paths

pytestmark = pytest.mark.timeout(240)

CRASHED = '"exit_code": -9'
NODE = "web-1"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where Platform and machine of one test live: the same before and after the crash."""

    folder: pathlib.Path
    enrollment_port: int
    gateway_port: int
    worker: machine.Machine

    @property
    def data_dir(self) -> pathlib.Path:
        return self.folder / "platform"

    def start(self, *, crash_at: str | None = None) -> real_platform.RealPlatform:
        return real_platform.start(
            self.data_dir,
            *("--gateway-port", str(self.gateway_port)),
            environment={"ENLIST_CRASH_AT": crash_at} if crash_at else None,
            enrollment_port=self.enrollment_port,
        )

    def wait_for_crash(self, point: str) -> None:
        log = self.data_dir.with_name("platform.log")
        operators.wait_until(
            lambda: CRASHED in log.read_text(), what=f"the engine reached {point}", seconds=60
        )

    def worker_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *real_platform.ENLIST,
                *("--data-dir", str(self.worker.data_dir), "worker", *words),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=real_platform.clean_environment(),
        )

    def generation(self) -> int:
        """What the machine has stored."""
        found = agent_file.read(paths.Paths(folder=self.worker.data_dir).agent)
        assert found is not None
        return found.generation


def _place(folder: pathlib.Path) -> _Place:
    return _Place(
        folder=folder,
        enrollment_port=machine.free_port(),
        gateway_port=machine.free_port(),
        worker=machine.Machine(data_dir=folder / "machine", port=0),
    )


def _joined(place: _Place) -> None:
    """The machine is a node; its Agent has not run yet."""
    platform = place.start()
    try:
        place.worker.join(machine.issue(platform, NODE))
    finally:
        platform.stop()


def _check_ready(platform: real_platform.RealPlatform, place: _Place) -> None:
    """The same node, ready, with what the machine has; joined once and nobody accused."""
    operators.wait_until(
        lambda: _agrees(machine.wait_for_state(platform, NODE, "ready"), place),
        what="machine and Platform agree on generation and certificate",
    )
    with operators.local(platform) as client:
        assert len(operators.actions(client, action="node.enrolled")) == 1
        assert operators.actions(client, action="node.identity-conflict") == []
    assert operators.is_intact(platform)


def _agrees(node: dict[str, object], place: _Place) -> bool:
    return (
        node["generation"] == place.generation()
        and node["certificate_sha256"] == place.worker.certificate_fingerprint()
    )


def _session(point: str, place: _Place) -> None:
    """The engine dies while a session is opened."""
    _joined(place)
    platform = place.start(crash_at=point)
    with place.worker.agent():
        try:
            place.wait_for_crash(point)
        finally:
            real_platform.kill_group(platform.process)
        platform = place.start()
        try:
            _check_ready(platform, place)
        finally:
            platform.stop()


def _renew(point: str, place: _Place) -> None:
    """The engine dies while a certificate is renewed, or when the new one is first used."""
    _joined(place)
    platform = place.start(crash_at=point)
    with place.worker.agent():
        machine.wait_for_state(platform, NODE, "ready")
        try:
            place.worker_command("renew")  # it may end either way
            place.wait_for_crash(point)
        finally:
            real_platform.kill_group(platform.process)
        platform = place.start()
        try:
            _check_ready_again(platform, place)
            again = place.worker_command("renew")
            assert again.returncode == 0, again.stderr
            _check_ready_again(platform, place)
        finally:
            platform.stop()


def _check_ready_again(platform: real_platform.RealPlatform, place: _Place) -> None:
    """The Agent takes the new certificate into use by itself, within its next session."""
    node = machine.wait_for_state(platform, NODE, "ready")
    before = node["certificate_sha256"]
    if before != place.worker.certificate_fingerprint():
        operators.wait_until(
            lambda: _agrees(machine.node(platform, NODE), place),
            what="the new certificate was seen in use",
            seconds=60,
        )
    _check_ready(platform, place)


def _leave(point: str, place: _Place) -> None:
    """The engine dies once the node is removed at its own word, before it can say so."""
    _joined(place)
    platform = place.start(crash_at=point)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            place.worker_command("leave", "--yes")
        place.wait_for_crash(point)
    finally:
        real_platform.kill_group(platform.process)
    platform = place.start()
    try:
        assert machine.node(platform, NODE)["state"] == "removed"
        again = place.worker_command("leave", "--yes")
        assert again.returncode == 0, again.stderr
        assert not paths.Paths(folder=place.worker.data_dir).agent.exists()
        with operators.local(platform) as client:
            assert len(operators.actions(client, action="node.left")) == 1
    finally:
        platform.stop()


REACHED_BY: dict[str, Callable[[str, _Place], None]] = {
    opening.CONFIRMED: _session,
    questions.RENEWED: _renew,
    renewal.STORED: _renew,
    renewal.PROMOTED: _renew,
    questions.LEFT: _leave,
}


def test_every_point_of_the_gateway_has_its_operation_in_the_table() -> None:
    """A new point: add it to REACHED_BY with the operation that reaches it."""
    declared = {
        point for point in crash_points.declared() if point.startswith(("gateway.", "renewal."))
    }
    assert declared == set(REACHED_BY)


@pytest.mark.parametrize("point", sorted(REACHED_BY))
def test_an_engine_killed_there_leaves_the_machine_the_node_that_it_was(
    point: str, tmp_path: pathlib.Path
) -> None:
    REACHED_BY[point](point, _place(tmp_path))


def test_a_platform_killed_again_and_again_under_a_session_locks_nobody_out(
    tmp_path: pathlib.Path,
) -> None:
    place = _place(tmp_path)
    _joined(place)
    with place.worker.agent():
        for _ in range(3):
            platform = place.start(crash_at=opening.CONFIRMED)
            try:
                operators.wait_until(
                    lambda: place.data_dir.with_name("platform.log").read_text().count(CRASHED) > 0,
                    what="the engine died",
                )
            finally:
                real_platform.kill_group(platform.process)
        platform = place.start()
        try:
            _check_ready(platform, place)
            said = json.dumps(machine.node(platform, NODE))
            assert "conflict" not in said
        finally:
            platform.stop()
