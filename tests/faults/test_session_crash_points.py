"""D2, D10: `kill -9` at every named point of a session's opening and of a renewal; then it is back.

The gateway is a small one that behaves (tests/support); the real one is killed elsewhere.
"""

import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from runtime_kit import crash_points
from tests.support import imaginary_gateway, joining, waits, worker_command
from wire_protocol import ids
from worker_agent.identity import own, replacing
from worker_agent.session import opening, renewal

SESSION_POINTS = sorted(name for name in crash_points.declared() if name.startswith("session."))
RENEWAL_POINTS = sorted(name for name in crash_points.declared() if name.startswith("renew."))


@pytest.fixture
async def gateway(tmp_path: pathlib.Path) -> AsyncIterator[imaginary_gateway.ImaginaryGateway]:
    async with imaginary_gateway.running(tmp_path / "platform") as running:
        running.heartbeat_seconds = 1
        yield running


@pytest.fixture
async def joined(
    gateway: imaginary_gateway.ImaginaryGateway, tmp_path: pathlib.Path
) -> joining.Joining:
    made = joining.Joining(folder=tmp_path / "worker")
    await made.join(gateway.platform.issue("web-1"))
    return made


def test_the_points_cover_every_step() -> None:
    assert sorted([opening.WELCOMED, opening.STORED, opening.CONFIRMED]) == SESSION_POINTS
    named = [replacing.NEXT_KEY_SAVED, replacing.NEXT_SAVED, renewal.ASKED, renewal.GRANTED]
    named += [replacing.FORMER_SAVED, replacing.KEY_REPLACED, replacing.REPLACED]
    assert sorted(named) == RENEWAL_POINTS


@pytest.mark.parametrize("point", SESSION_POINTS)
async def test_an_agent_killed_while_its_session_opens_is_no_copy_of_itself(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining, point: str
) -> None:
    agent = ("agent", "--data-dir", str(joined.folder))
    killed = await worker_command.enlist(*agent, environment={"ENLIST_CRASH_AT": point})
    assert killed.code == -signal.SIGKILL, killed.err
    async with worker_command.started(*agent):
        before = gateway.node("web-1").sessions
        await gateway.session_of("web-1", after=before)
        said = await gateway.ask_health("web-1")
    assert said.node_id == "web-1"


@pytest.mark.parametrize("new_key", [["--new-key"], []], ids=["new-key", "same-key"])
@pytest.mark.parametrize("point", RENEWAL_POINTS)
async def test_a_renewal_killed_at_the_point_locks_nobody_out(
    gateway: imaginary_gateway.ImaginaryGateway,
    joined: joining.Joining,
    point: str,
    new_key: list[str],
) -> None:
    before = own.load(joined.where)
    renew = ("worker", "renew", "--data-dir", str(joined.folder), *new_key)
    killed = await worker_command.enlist(*renew, environment={"ENLIST_CRASH_AT": point})
    of_new_key_alone = point in (replacing.NEXT_KEY_SAVED, replacing.KEY_REPLACED)
    expected = 0 if of_new_key_alone and not new_key else -signal.SIGKILL
    assert killed.code == expected, killed.err

    agent = ("agent", "--data-dir", str(joined.folder))
    async with worker_command.started(*agent) as process:
        await gateway.session_of("web-1")
        again = await worker_command.enlist(*renew)
        assert again.code == 0, again.err
        present = own.load(joined.where)
        await waits.until(lambda: gateway.node("web-1").present == present.certificate)
        assert process.returncode is None
        # The Agent writes as it opens its next session; what the killed command left must go.
        await waits.until(lambda: not list(joined.folder.rglob(".tmp-*")))
    assert (present.pin != before.pin) is bool(new_key)


@pytest.mark.parametrize("point", RENEWAL_POINTS)
async def test_an_agent_killed_at_the_point_of_its_own_renewal_finishes_it(
    gateway: imaginary_gateway.ImaginaryGateway, joined: joining.Joining, point: str
) -> None:
    replacing.prepare(  # as an order would: the Agent finds it and goes on from there
        joined.where,
        node_id=ids.NodeId("web-1"),
        addresses=(),
        now=gateway.clock.now(),
        days=90,
        new_key=True,
    )
    before = own.load(joined.where)
    agent = ("agent", "--data-dir", str(joined.folder))
    if point not in (replacing.NEXT_KEY_SAVED, replacing.NEXT_SAVED):
        killed = await worker_command.enlist(*agent, environment={"ENLIST_CRASH_AT": point})
        assert killed.code == -signal.SIGKILL, killed.err
    async with worker_command.started(*agent):
        await waits.until(lambda: replacing.find_next(joined.where) is None)
        present = own.load(joined.where)
        await waits.until(lambda: gateway.node("web-1").present == present.certificate)
        await waits.until(lambda: gateway.open_session("web-1") is not None)
    assert present.pin != before.pin
