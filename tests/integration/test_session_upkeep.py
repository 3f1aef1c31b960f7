"""The certificate of a node that listens, over months of simulated time: errands, and few."""

import asyncio
import dataclasses
import datetime
import pathlib
from collections.abc import Iterator

import pytest

from tests.support import dialling, imaginary_gateway, imaginary_platform, virtual_time
from wire_protocol import session
from worker_agent.identity import own, replacing
from worker_agent.session import upkeep
from worker_agent.settings import agent_file

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture(autouse=True)
def async_runner() -> Iterator[asyncio.Runner]:
    """The loop whose time jumps."""
    runner = asyncio.Runner(loop_factory=virtual_time.Loop)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture
def clock(async_runner: asyncio.Runner) -> virtual_time.VirtualClock:
    loop = async_runner.get_loop()
    assert isinstance(loop, virtual_time.Loop)
    return virtual_time.VirtualClock(loop, start=START)


@pytest.fixture
async def gateway(
    tmp_path: pathlib.Path, clock: virtual_time.VirtualClock
) -> imaginary_gateway.ImaginaryGateway:
    folder = tmp_path / "platform"
    folder.mkdir()
    made = imaginary_gateway.ImaginaryGateway(
        imaginary_platform.ImaginaryPlatform(folder, now=clock.now())
    )
    made.clock = clock
    made.announce()
    return made


@pytest.fixture
async def way(
    gateway: imaginary_gateway.ImaginaryGateway, clock: virtual_time.VirtualClock
) -> dialling.InMemory:
    return dialling.InMemory(gateway, clock=clock)


@pytest.fixture
async def node(
    tmp_path: pathlib.Path,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> dialling.Node:
    where = dialling.join(tmp_path / "worker", gateway=gateway, clock=clock)
    return dialling.node(where, connect=way.connect, clock=clock)


async def live(node: dialling.Node, *, days: float) -> None:
    """The Agent looks after its certificate for that long."""
    task = asyncio.create_task(upkeep.Upkeep(node.where, around=node.around).run())
    await dialling.passes(days * DAY)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_while_nothing_is_due_nobody_is_asked(
    node: dialling.Node, way: dialling.InMemory
) -> None:
    await live(node, days=50)
    assert way.dialled == []


async def test_it_renews_when_two_thirds_of_the_time_are_over(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    before = own.load(node.where)
    await live(node, days=66)
    after = own.load(node.where)
    assert after.certificate != before.certificate
    assert gateway.node("web-1").coming == after.certificate
    assert len(way.dialled) == 2
    assert gateway.node("web-1").sessions == 0, "an errand is no session"


async def test_a_gateway_that_is_away_is_tried_rarely_and_the_certificate_stays(
    node: dialling.Node, way: dialling.InMemory
) -> None:
    before = own.load(node.where).certificate
    way.down = True
    await live(node, days=70)
    assert 5 <= len(way.dialled) <= 120  # every three hours in the mean, for nine days
    assert own.load(node.where).certificate == before
    way.down = False
    await live(node, days=1)
    assert own.load(node.where).certificate != before


async def test_without_a_gateway_nothing_is_tried(
    node: dialling.Node, way: dialling.InMemory
) -> None:
    agent_file.write(
        node.where.agent, dataclasses.replace(node.agent, gateway_url=None, gateway_pins=())
    )
    statement = dataclasses.replace(node.trust.held.statement, gateway_urls=(), gateway_pins=())
    node.trust.held = dataclasses.replace(node.trust.held, statement=statement)
    await live(node, days=100)
    assert way.dialled == []


async def test_a_renewal_cut_off_before_is_finished_at_the_next_start(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    made = replacing.prepare(
        node.where, node_id=node.agent.node_id, addresses=(), now=START, days=90, new_key=True
    )
    await live(node, days=0.1)
    assert own.load(node.where).pin == made.pin
    assert gateway.node("web-1").coming == made.certificate


async def test_a_platform_put_back_learns_the_present_certificate_again(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    known = gateway.node("web-1")
    old = known.present
    task = asyncio.create_task(upkeep.Upkeep(node.where, around=node.around).run())
    await dialling.passes(66 * DAY)
    renewed = own.load(node.where).certificate
    known.present, known.coming = old, None
    statement = dataclasses.replace(node.trust.held.statement, epoch=2)
    node.trust.held = dataclasses.replace(node.trust.held, statement=statement)
    await dialling.passes(3 * HOUR)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert known.coming == renewed
    assert own.load(node.where).certificate == renewed


async def test_a_clock_far_ahead_asks_and_the_platforms_clock_decides(
    node: dialling.Node,
    gateway: imaginary_gateway.ImaginaryGateway,
    way: dialling.InMemory,
    clock: virtual_time.VirtualClock,
) -> None:
    ahead = virtual_time.VirtualClock(clock._loop, start=START)
    ahead.jump(3000 * DAY)
    node.around = dataclasses.replace(node.around, clock=ahead)
    before = own.load(node.where).certificate
    await live(node, days=1)
    assert own.load(node.where).certificate == before
    assert session.Ask.RENEW not in gateway.asked
    assert len(way.dialled) <= 50
