"""D8: another process locks the database while machines enroll.

Elsewhere "database is locked" was followed by failures until a restart. Here everybody who needs
to write waits the busy time-out and is told to come again, what only reads goes on, and when the
lock goes all is normal without a restart.
"""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support import foreign_lock, machine, operators, racers, real_platform, worker_command
from wire_protocol import product

pytestmark = pytest.mark.timeout(120)

BUSY_SECONDS = 0.5
SLACK_SECONDS = 3.0
"""What a loaded machine may add to a wait."""

CROWD = 40


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    folder = tmp_path_factory.mktemp("locked") / "platform"
    environment = {
        "ENLIST_STORE__BUSY_SECONDS": str(BUSY_SECONDS),
        "ENLIST_PROBE__INTERVAL_SECONDS": "1",
    }
    with real_platform.running(folder, environment=environment) as running:
        engine = running.child("platform_server engine").pid
        yield running
        assert running.child("platform_server engine").pid == engine, "no test restarts it"


def _database(platform: real_platform.RealPlatform) -> pathlib.Path:
    return platform.data_dir / "enlist.db"


async def _ask(line: racers.Line, body: bytes) -> tuple[racers.Answer, float]:
    started = time.monotonic()
    answer = await line.ask(body)
    return answer, time.monotonic() - started


async def test_a_crowd_under_the_lock_is_told_to_come_again_and_then_enrolls(
    platform: real_platform.RealPlatform,
) -> None:
    machines = racers.racers(CROWD)
    names = [f"crowd-{number}" for number in range(CROWD)]
    with operators.local(platform) as client:
        bodies = [
            one.body(name, operators.issue(client, name))
            for one, name in zip(machines, names, strict=True)
        ]
    async with racers.lines([platform.enrollment_url], number=CROWD) as lines:
        with foreign_lock.held(_database(platform)):
            for _ in range(2):
                told = await asyncio.gather(
                    *(_ask(line, body) for line, body in zip(lines, bodies, strict=True))
                )
                _check_told_to_come_again(told)
        answers = await racers.race(lines, bodies=bodies)
        assert {answer.status for answer in answers} == {201}
    with operators.local(platform) as client:
        states = {node["node_id"] for node in operators.nodes(client)}
        assert states >= set(names)
    assert operators.is_intact(platform)


def _check_told_to_come_again(told: Sequence[tuple[racers.Answer, float]]) -> None:
    assert {answer.status for answer, _ in told} == {503}
    for answer, waited in told:
        assert answer.document["code"] == "store-busy"
        assert answer.document["class"] == "transient"
        assert int(answer.header("retry-after") or "0") >= 1
        assert BUSY_SECONDS <= waited < BUSY_SECONDS + SLACK_SECONDS


async def test_the_trust_question_and_every_list_go_on_under_the_lock(
    platform: real_platform.RealPlatform,
) -> None:
    with foreign_lock.held(_database(platform)), operators.local(platform) as client:
        answer = await racers.ask_once(platform.enrollment_url, b"{}", path=product.TRUST_PATH)
        assert answer.status == 200
        assert client.get("/nodes").status_code == 200
        assert client.get("/enrollments").status_code == 200
        assert client.get("/audit").status_code == 200


def test_an_operators_change_under_the_lock_is_temporary_and_works_afterwards(
    platform: real_platform.RealPlatform,
) -> None:
    command = ("--data-dir", str(platform.data_dir), "nodes", "enroll-token", "later-1")
    with foreign_lock.held(_database(platform)):
        real_platform.run_enlist(*command, expect=75)
    real_platform.run_enlist(*command)


async def test_a_join_begun_under_the_lock_ends_well_when_the_lock_goes(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    token = machine.issue(platform, "patient-1")
    arguments = worker_command.join_arguments(tmp_path / "machine", port=machine.free_port())
    async with worker_command.started(*arguments, stdin=token) as joining:
        with foreign_lock.held(_database(platform)):
            told = await worker_command.said(joining, "Trying again")
            assert "busy" in told
        ended = await worker_command.finish(joining)
    assert ended.code == 0, ended.err
    assert machine.node(platform, "patient-1")["state"] == "enrolled"


def test_the_lock_holds_the_probe_up_no_longer_than_it_lasts(
    platform: real_platform.RealPlatform, tmp_path: pathlib.Path
) -> None:
    worker = machine.in_folder(tmp_path)
    worker.join(machine.issue(platform, "probed-1"))
    with contextlib.ExitStack() as stack:
        with foreign_lock.held(_database(platform)):
            stack.enter_context(worker.agent())
            operators.wait_until(
                lambda: "news was not written" in platform.log.read_text(),
                what="the probe met the lock",
            )
            assert machine.node(platform, "probed-1")["state"] == "enrolled"
        machine.wait_for_state(platform, "probed-1", "ready")
