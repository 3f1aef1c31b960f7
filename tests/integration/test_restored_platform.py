"""The Platform is lost and restored elsewhere: real Platforms, real machines, both databases.

Machines that had joined before the backup come back by themselves; what was used once stays used;
the machine that joined after the backup is told apart and comes back with a new token.
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.support import backups, machine, operators, real_platform

pytestmark = pytest.mark.timeout(240)
ON_ONE_STORE = pytest.mark.parametrize("store_kind", ["sqlite"])  # the store decides nothing there


@dataclasses.dataclass(kw_only=True)
class Rig:
    """A Platform, where the next one is restored to, and what the test keeps of both."""

    folder: pathlib.Path
    new_url: Callable[[], str | None]
    port: int
    gateway_port: int
    pair: backups.Pair
    numbers: Iterator[int] = dataclasses.field(default_factory=lambda: iter(range(100)))
    started: list[real_platform.RealPlatform] = dataclasses.field(default_factory=list)

    @property
    def file(self) -> pathlib.Path:
        return self.folder / "nightly.enlist"

    def place(self) -> tuple[pathlib.Path, str | None]:
        return self.folder / f"platform-{next(self.numbers)}", self.new_url()

    def start(self, place: tuple[pathlib.Path, str | None]) -> real_platform.RealPlatform:
        started = real_platform.start(
            place[0],
            *("--gateway-port", str(self.gateway_port)),
            database_url=place[1],
            enrollment_port=self.port,
        )
        self.started.append(started)
        return started

    def back_up(self, platform: real_platform.RealPlatform) -> None:
        platform.enlist("backup", "create", str(self.file), "--recipient", self.pair.recipient)

    def restore(self, place: tuple[pathlib.Path, str | None]) -> dict[str, object]:
        url = () if place[1] is None else ("--database-url", place[1])
        said = real_platform.run_enlist(
            *("backup", "restore", str(self.file), "--data-dir", str(place[0]), "-o", "json"),
            *("--identity-file", str(self.pair.write(self.folder)), *url),
        )
        document = json.loads(said)
        assert isinstance(document, dict)
        return document

    def machine(self, name: str) -> machine.Machine:
        return machine.in_folder(self.folder, name=name)


@pytest.fixture
def rig(store_kind: str, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    def nothing() -> str | None:
        return None

    made = Rig(
        folder=tmp_path,
        new_url=nothing if store_kind == "sqlite" else request.getfixturevalue("new_database"),
        port=machine.free_port(),
        gateway_port=machine.free_port(),
        pair=backups.new_pair(),
    )
    yield made
    for platform in made.started:  # those of a test that failed
        if platform.process.poll() is None:
            platform.stop()


def test_machines_come_back_by_themselves_and_what_was_used_stays_used(rig: Rig) -> None:
    first, late = rig.machine("first"), rig.machine("late")
    place = rig.place()
    platform = rig.start(place)
    token = machine.issue(platform, "old-1")
    first.join(token)
    with first.agent():
        machine.wait_for_state(platform, "old-1", "ready")
        before = machine.node(platform, "old-1")
        waiting = machine.issue(platform, "waiting-1")
        gone = rig.machine("gone")
        gone.join(machine.issue(platform, "gone-1"))
        platform.enlist("nodes", "remove", "gone-1", "--yes")
        api_token = json.loads(
            platform.enlist("tokens", "create", "--permission", "nodes.view", "-o", "json")
        )["token"]
        rig.back_up(platform)
        late.join(machine.issue(platform, "late-1"))
        with late.agent():
            machine.wait_for_state(platform, "late-1", "ready")
            real_platform.kill_group(platform.process)
            shutil.rmtree(place[0])
            elsewhere = rig.place()
            said = rig.restore(elsewhere)
            assert (said["nodes"], said["enrollments_revoked"], said["tokens_voided"]) == (1, 1, 1)
            platform = rig.start(elsewhere)
            try:
                after = machine.wait_for_state(platform, "old-1", "ready")
                assert after["pin"] == before["pin"]
                assert after["enrolled_at"] == before["enrolled_at"]
                _check_nothing_revived(
                    rig, platform, spent=token, waiting=waiting, api_token=api_token
                )
                _check_the_late_one(platform, late=late)
            finally:
                platform.stop()


def _check_nothing_revived(
    rig: Rig,
    platform: real_platform.RealPlatform,
    *,
    spent: str,
    waiting: str,
    api_token: str,
) -> None:
    rig.machine("thief").join(spent, expect=3)
    rig.machine("slow").join(waiting, expect=3)
    listed = ("--data-dir", str(platform.data_dir), "nodes")
    real_platform.run_enlist(*listed, "enroll-token", "gone-1", expect=4)
    real_platform.run_enlist(
        *("--platform", str(platform.said["api"]), "nodes", "list"),
        environment={"ENLIST_TOKEN": api_token},
        expect=7,
    )


def _check_the_late_one(platform: real_platform.RealPlatform, *, late: machine.Machine) -> None:
    """It follows the new state, is unknown to it, and comes back with a new token."""
    listed = json.loads(platform.enlist("nodes", "list", "-o", "json"))
    assert "late-1" not in {node["node_id"] for node in listed["nodes"]}
    folder = ("--data-dir", str(late.data_dir))
    said = json.loads(real_platform.run_enlist(*folder, "worker", "refresh-trust", "-o", "json"))
    shown = json.loads(platform.enlist("platform", "show", "-o", "json"))
    assert said["epoch"] == shown["epoch"] > 1
    late.join(machine.issue(platform, "late-1"))
    machine.wait_for_state(platform, "late-1", "ready")


@ON_ONE_STORE
def test_the_old_platform_is_refused_by_machines_that_have_seen_the_new(rig: Rig) -> None:
    worker = rig.machine("first")
    place = rig.place()
    platform = rig.start(place)
    worker.join(machine.issue(platform, "old-1"))
    rig.back_up(platform)
    platform.stop()
    elsewhere = rig.place()
    rig.restore(elsewhere)
    folder = ("--data-dir", str(worker.data_dir))
    platform = rig.start(elsewhere)
    try:
        real_platform.run_enlist(*folder, "worker", "refresh-trust")
    finally:
        platform.stop()
    trusted = (worker.data_dir / "trust.json").read_bytes()
    platform = rig.start(place)  # the old one, still there, at the address that machines know
    try:
        real_platform.run_enlist(*folder, "worker", "refresh-trust", expect=6)
    finally:
        platform.stop()
    assert (worker.data_dir / "trust.json").read_bytes() == trusted


@ON_ONE_STORE
def test_a_platform_at_another_address_tells_it_in_its_statement(rig: Rig) -> None:
    place = rig.place()
    platform = rig.start(place)
    rig.back_up(platform)
    platform.stop()
    elsewhere = rig.place()
    rig.restore(elsewhere)
    rig.port = machine.free_port()
    platform = rig.start(elsewhere)
    try:
        shown = json.loads(platform.enlist("platform", "show", "-o", "json"))
        worker = rig.machine("new")
        worker.join(machine.issue(platform, "new-1"))
        held = json.loads(
            real_platform.run_enlist(
                "--data-dir", str(worker.data_dir), "worker", "status", "-o", "json"
            )
        )
    finally:
        platform.stop()
    assert shown["enrollment_url"].endswith(f":{rig.port}")
    assert held["trust"]["epoch"] == shown["epoch"]


def test_nodes_that_dial_out_come_back_with_generations_that_ran_ahead(rig: Rig) -> None:
    first, late = rig.machine("first"), rig.machine("late")
    place = rig.place()
    platform = rig.start(place)
    _join_dialling_out(first, machine.issue(platform, "old-1"))
    with first.agent():
        machine.wait_for_state(platform, "old-1", "ready")
        rig.back_up(platform)
        kept = machine.node(platform, "old-1")["generation"]
    _join_dialling_out(late, machine.issue(platform, "late-1"))
    for more in (1, 2, 3):  # each session raises it, which the backup knows nothing of
        with first.agent():
            _wait_for_generation(platform, kept + more)
    with first.agent(), late.agent():
        machine.wait_for_state(platform, "late-1", "ready")
        ahead = _wait_for_generation(platform, kept + 4)
        real_platform.kill_group(platform.process)
        shutil.rmtree(place[0])
        elsewhere = rig.place()
        rig.restore(elsewhere)
        platform = rig.start(elsewhere)
        try:
            after = machine.wait_for_state(platform, "old-1", "ready", seconds=90)
            assert after["generation"] > ahead
            _join_dialling_out(late, machine.issue(platform, "late-1"))
            machine.wait_for_state(platform, "late-1", "ready", seconds=90)
        finally:
            platform.stop()


@ON_ONE_STORE
def test_the_old_platform_takes_no_session_and_sends_no_machine_to_its_operator(rig: Rig) -> None:
    worker, place = rig.machine("first"), rig.place()
    platform = rig.start(place)
    _join_dialling_out(worker, machine.issue(platform, "old-1"))
    with worker.agent():
        machine.wait_for_state(platform, "old-1", "ready")
        rig.back_up(platform)
        platform.enlist("nodes", "remove", "old-1", "--yes")  # forgotten by the backup
        platform.stop()
    elsewhere = rig.place()
    rig.restore(elsewhere)
    with worker.agent() as agent:
        platform = rig.start(elsewhere)
        machine.wait_for_state(platform, "old-1", "ready", seconds=60)
        platform.stop()
        old = rig.start(place)
        operators.wait_until(
            lambda: (
                "restored elsewhere" in agent.log.read_text()
                and "restored elsewhere" in old.log.read_text()
            ),
            what="both sides tell",
            seconds=90,
        )
        assert agent.process.poll() is None
        old.stop()
        platform = rig.start(elsewhere)
        machine.wait_for_state(platform, "old-1", "ready", seconds=90)
        platform.stop()


def _wait_for_generation(platform: real_platform.RealPlatform, least: int) -> int:
    """The generation of the node once it has risen so far, and the node is ready."""

    def generation() -> int:
        shown = machine.node(platform, "old-1")
        return int(shown["generation"]) if shown["state"] == "ready" else 0

    operators.wait_until(lambda: generation() >= least, what=f"generation {least} is confirmed")
    return generation()


def _join_dialling_out(worker: machine.Machine, token: str) -> None:
    real_platform.run_enlist(
        *("--data-dir", str(worker.data_dir), "worker", "join", "-"), stdin=token
    )
