"""D10, D12, D14: `kill -9` at every named point of a join and of a refresh; then it finishes."""

import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from runtime_kit import crash_points, private_files
from tests.support import imaginary_platform, machine, worker_command
from worker_agent.app import status
from worker_agent.enrollment import flow, preflight
from worker_agent.identity import own, states
from worker_agent.settings import paths, trust_file
from worker_agent.trust import refresh

JOIN_POINTS = sorted(
    name for name in crash_points.declared() if name.startswith(("join.", "private-file."))
)
REFRESH_POINTS = sorted(name for name in crash_points.declared() if name.startswith("refresh."))


@pytest.fixture
async def platform(
    tmp_path: pathlib.Path,
) -> AsyncIterator[imaginary_platform.ImaginaryPlatform]:
    async with imaginary_platform.running(tmp_path / "platform") as running:
        yield running


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    return paths.Paths(folder=tmp_path / "worker")


def test_the_points_cover_every_step() -> None:
    every = {preflight.PROBED, flow.ROOM_CHECKED, private_files.LINKED, own.KEY_SAVED}
    assert every | {flow.AGENT_SAVED} < set(JOIN_POINTS)
    assert len(JOIN_POINTS) == 12
    assert refresh.SAVED in REFRESH_POINTS


@pytest.mark.parametrize("point", JOIN_POINTS)
async def test_a_join_killed_at_the_point_finishes_when_repeated(
    platform: imaginary_platform.ImaginaryPlatform, where: paths.Paths, point: str
) -> None:
    token = platform.issue("web-1")
    arguments = worker_command.join_arguments(where.folder, port=machine.free_port())
    killed = await worker_command.enlist(
        *arguments, stdin=token, environment={"ENLIST_CRASH_AT": point}
    )
    assert killed.code == -signal.SIGKILL, f"{point} was not reached: {killed.err}"
    before = own.look(where)

    again = await worker_command.enlist(*arguments, stdin=token)
    assert again.code == 0, again.err
    after = own.load(where)
    assert before.key is None or after.key.private_numbers() == before.key.private_numbers()
    (enrolled,) = platform.enrollments.values()
    assert enrolled.pin == after.pin
    assert status.read(where, now=platform.now).state is states.State.JOINED
    left = [path.name for path in where.folder.rglob("*") if path.name.startswith(".tmp-")]
    assert left == [], "what was written aside, key material perhaps, stays for ever"


@pytest.mark.parametrize("point", REFRESH_POINTS)
async def test_a_refresh_killed_at_the_point_leaves_a_readable_set_and_finishes_when_repeated(
    platform: imaginary_platform.ImaginaryPlatform, where: paths.Paths, point: str
) -> None:
    arguments = worker_command.join_arguments(where.folder, port=machine.free_port())
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    platform.publish(platform.keys[0], platform.new_key())

    command = ("worker", "refresh-trust", "--data-dir", str(where.folder))
    killed = await worker_command.enlist(*command, environment={"ENLIST_CRASH_AT": point})
    assert killed.code == -signal.SIGKILL
    assert trust_file.read(where.trust) is not None

    again = await worker_command.enlist(*command)
    assert again.code == 0, again.err
    held = trust_file.read(where.trust)
    assert held is not None
    assert held.statement.serial == platform.serial


async def test_an_agent_killed_right_after_the_join_comes_back_without_a_token(
    platform: imaginary_platform.ImaginaryPlatform, where: paths.Paths
) -> None:
    port = machine.free_port()
    arguments = worker_command.join_arguments(where.folder, port=port)
    await worker_command.enlist(*arguments, stdin=platform.issue("web-1"))
    agent = ("agent", "--data-dir", str(where.folder))
    async with worker_command.started(*agent) as process:
        process.kill()
        await process.wait()
    async with worker_command.started(*agent) as process:
        await worker_command.said(process, "Agent ready")
        code, _ = await platform.ask_agent(port, client=platform.client_certificate())
    assert code == 200
