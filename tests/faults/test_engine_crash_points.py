"""`kill -9` of the engine at every named point, for real; then the same command finishes.

Each point has the operation that reaches it in one table. A point without a row fails a test, and
so does a row whose point the operation no longer reaches, so the walk cannot rot.
"""

import asyncio
import dataclasses
import enum
import json
import pathlib
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from tests.support import gateway_port, machine, operators, racers, real_platform

pytestmark = pytest.mark.timeout(180)

CRASHED = '"exit_code": -9'
CRASHED_AT_START = '"signal": 9'


class Operation(enum.Enum):
    """What an operator or a machine does when the engine dies."""

    START = "start"
    ENROLL = "enroll"
    ROTATE_MASTER_KEY = "rotate-master-key"
    ROTATE_TLS_KEY = "rotate-tls-key"


REACHED_BY = {
    "engine.store-open": Operation.START,
    "engine.keys-open": Operation.START,
    "engine.built": Operation.START,
    "engine.serving": Operation.START,
    "private-file.aside": Operation.START,
    "private-file.linked": Operation.START,
    "master-key.made": Operation.START,
    "trust.before-commit": Operation.START,
    "store.before-commit": Operation.START,
    "store.after-commit": Operation.START,
    "store.before-postgres-commit": Operation.START,
    "store.after-postgres-commit": Operation.START,
    "enroll.spent": Operation.ENROLL,
    "enroll.committed": Operation.ENROLL,
    "master-key.begun": Operation.ROTATE_MASTER_KEY,
    "master-key.both-kept": Operation.ROTATE_MASTER_KEY,
    "master-key.rewrapped-some": Operation.ROTATE_MASTER_KEY,
    "master-key.rewrapped": Operation.ROTATE_MASTER_KEY,
    "tls-key.next-stored": Operation.ROTATE_TLS_KEY,
    "tls-key.changed": Operation.ROTATE_TLS_KEY,
}

ON_POSTGRESQL_ALONE = {"store.before-postgres-commit", "store.after-postgres-commit"}
ON_POSTGRESQL = ON_POSTGRESQL_ALONE | {"trust.before-commit", "enroll.spent", "enroll.committed"}
"""The points in the middle of a transaction: there the store decides what is left."""

ON_SQLITE = REACHED_BY.keys() - ON_POSTGRESQL_ALONE

_ELSEWHERE = (
    "restore.",  # no engine's: test_backup_interrupted
    "gateway.",  # test_gateway_crash_points
    "renewal.",  # likewise
    "order.",  # test_order_crash_points
    "bundles.",  # test_bundle_crash_points
    "operation.",  # test_operation_crash_points
    "cloud.",  # test_machine_crash_points
    "resource.",  # test_cloud_resource_crash_points
    "asked.",  # test_cloud_route_crash_points
)

_LIST_POINTS = textwrap.dedent(
    """
    import importlib, json, pkgutil
    from runtime_kit import crash_points
    for root in ("platform_server", "runtime_kit"):
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if not found.name.endswith(".__main__"):
                importlib.import_module(found.name)
    print(json.dumps(crash_points.declared()))
    """
)


def test_every_declared_point_has_its_operation_in_the_table() -> None:
    """A new point: add it to REACHED_BY with the operation that reaches it."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST_POINTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    declared = {point for point in json.loads(done.stdout) if not point.startswith(_ELSEWHERE)}
    assert declared == set(REACHED_BY)
    assert REACHED_BY.keys() >= ON_POSTGRESQL


@pytest.mark.parametrize("point", sorted(ON_SQLITE))
def test_an_engine_killed_at_the_point_goes_on_from_there(
    point: str, tmp_path: pathlib.Path
) -> None:
    _walk(point, folder=tmp_path, database_url=None)
    with sqlite3.connect(tmp_path / "platform" / "enlist.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


@pytest.mark.parametrize("point", sorted(ON_POSTGRESQL))
def test_an_engine_killed_at_the_point_goes_on_from_there_on_postgresql(
    point: str, tmp_path: pathlib.Path, postgres_url: str
) -> None:
    _walk(point, folder=tmp_path, database_url=postgres_url)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the Platform of one test lives: the same before and after the crash."""

    folder: pathlib.Path
    database_url: str | None
    port: int

    @property
    def data_dir(self) -> pathlib.Path:
        return self.folder / "platform"

    @property
    def log(self) -> str:
        path = self.data_dir.with_name("platform.log")
        return path.read_text() if path.exists() else ""

    def start(self, *, crash_at: str | None = None) -> real_platform.RealPlatform:
        return real_platform.start(
            self.data_dir,
            database_url=self.database_url,
            environment={"ENLIST_CRASH_AT": crash_at} if crash_at else None,
            enrollment_port=self.port,
        )

    def wait_for_crash(self, point: str) -> None:
        operators.wait_until(lambda: CRASHED in self.log, what=f"the engine reached {point}")


def _walk(point: str, *, folder: pathlib.Path, database_url: str | None) -> None:
    place = _Place(folder=folder, database_url=database_url, port=machine.free_port())
    _OPERATIONS[REACHED_BY[point]](point, place)


def _start(point: str, place: _Place) -> None:
    """The Platform is killed while it starts for the first time, then started again."""
    with pytest.raises(AssertionError, match="ended with 1"):
        place.start(crash_at=point).stop()
    assert CRASHED_AT_START in place.log, f"{point} was not reached"
    platform = place.start()
    try:
        _check_whole(platform)
        _enroll_one(platform)
    finally:
        platform.stop()


def _enroll(point: str, place: _Place) -> None:
    """The Platform is killed under a machine that joins; both are started again."""
    platform = place.start(crash_at=point)
    worker = machine.in_folder(place.folder)
    token = machine.issue(platform, "web-1")
    with subprocess.Popen(
        [*real_platform.ENLIST, *worker.join_arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=real_platform.clean_environment(),
    ) as joining:
        assert joining.stdin is not None
        joining.stdin.write(token.encode())
        joining.stdin.close()
        try:
            place.wait_for_crash(point)
        finally:
            joining.kill()
            real_platform.kill_group(platform.process)
    platform = place.start()
    try:
        worker.join(token)
        _check_whole(platform)
        _check_one_node(platform)
    finally:
        platform.stop()


def _rotate_master_key(point: str, place: _Place) -> None:
    """The Platform is killed while its master key changes; the next engine ends the change."""
    platform = place.start(crash_at=point)
    key_file = place.data_dir / "master.key"
    old, pins = key_file.read_text(), platform.said["pins"]
    command = ("--data-dir", str(place.data_dir), "platform", "rotate-master-key", "--yes")
    with subprocess.Popen(
        [*real_platform.ENLIST, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=real_platform.clean_environment(),
    ) as rotating:
        try:
            place.wait_for_crash(point)
        finally:
            rotating.kill()
            real_platform.kill_group(platform.process)
    platform = place.start()
    try:
        operators.wait_until(
            lambda: key_file.read_text().count("\n") == 1 and key_file.read_text() != old,
            what="the change that was begun has ended",
        )
        real_platform.run_enlist(*command)
        assert platform.said["pins"] == pins
        operators.wait_until(
            lambda: key_file.read_text().count("\n") == 1, what="the next change has ended"
        )
        _check_whole(platform)
        _enroll_one(platform)
    finally:
        platform.stop()


def _rotate_tls_key(point: str, place: _Place) -> None:
    """The Platform is killed while the gateway's key changes at once; the next engine ends it."""
    platform = place.start(crash_at=point)
    (old,) = platform.said["gateway_pins"]
    command = (
        *("--data-dir", str(place.data_dir), "--yes"),
        *("platform", "rotate-tls-key", "--port", "gateway", "--now"),
    )
    with subprocess.Popen(
        [*real_platform.ENLIST, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=real_platform.clean_environment(),
    ) as rotating:
        try:
            place.wait_for_crash(point)
        finally:
            rotating.kill()
            real_platform.kill_group(platform.process)
    platform = place.start()
    try:
        (new,) = platform.said["gateway_pins"]
        assert new != old
        assert gateway_port.pin(platform.said["gateway"]) == new
        assert gateway_port.statement(platform)["pins"]["gateway"] == [new]
        real_platform.run_enlist(*command)
        assert gateway_port.pin(platform.said["gateway"]) not in (old, new)
        _check_whole(platform)
        _enroll_one(platform)
    finally:
        platform.stop()


_OPERATIONS: dict[Operation, Callable[[str, _Place], None]] = {
    Operation.START: _start,
    Operation.ENROLL: _enroll,
    Operation.ROTATE_MASTER_KEY: _rotate_master_key,
    Operation.ROTATE_TLS_KEY: _rotate_tls_key,
}


def _enroll_one(platform: real_platform.RealPlatform) -> None:
    """What was left works: a token is issued and a machine becomes a node."""
    with operators.local(platform) as client:
        token = operators.issue(client, "web-1")
    body = racers.racers(1)[0].body("web-1", token)
    assert asyncio.run(racers.ask_once(platform.enrollment_url, body)).status == 201
    _check_one_node(platform)


def _check_one_node(platform: real_platform.RealPlatform) -> None:
    with operators.local(platform) as client:
        assert [node["node_id"] for node in operators.nodes(client)] == ["web-1"]
        assert len(operators.actions(client, action="node.enrolled")) == 1
        states = [one["state"] for one in operators.enrollments(client)]
        assert states == ["consumed"]
    assert operators.is_intact(platform)


def _check_whole(platform: real_platform.RealPlatform) -> None:
    """Nothing is there twice and nothing by half."""
    with operators.local(platform) as client:
        assert len(client.get("/platform").json()["trust_keys"]) == 1
        published = operators.actions(client, action="trust.key-published")
        assert len(published) == 1
    names = [path.name for path in platform.data_dir.rglob("*") if path.is_file()]
    assert [name for name in names if name.startswith(".tmp-")] == []
    assert len([name for name in names if name.startswith("client-")]) == 1
    assert (platform.data_dir / "master.key").read_text().count("\n") == 1
