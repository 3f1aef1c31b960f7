"""One try over several addresses: what one has taught counts at the next, and doubt ends nothing.

Everything is the product's own code but the network, which is a pair of links in memory.
"""

import asyncio
import datetime
import pathlib
from collections.abc import Iterator

import pytest

from runtime_kit.mux import link as links
from tests.support import dialling, imaginary_gateway, imaginary_platform, virtual_time
from wire_protocol import session
from worker_agent.identity import replacing
from worker_agent.settings import failures

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


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
    """A gateway with two addresses."""
    folder = tmp_path / "platform"
    folder.mkdir()
    made = imaginary_gateway.ImaginaryGateway(
        imaginary_platform.ImaginaryPlatform(folder, now=clock.now())
    )
    made.clock = clock
    made.announce()
    made.platform.gateway_urls = ("https://a.example:8445", "https://b.example:8445")
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


async def test_a_lost_confirmation_at_one_address_does_not_make_it_a_copy_at_the_next(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    gateway.loses[session.Ask.CONFIRM] = 1
    async with node.running():
        await gateway.session_of("web-1", after=1)
        assert len(way.dialled) == 2, "both in one try"
        assert node.agent.generation == gateway.node("web-1").generation == 3
    assert node.ended is None


async def test_a_conflict_after_a_confirmation_without_answer_is_tried_again(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    known = gateway.node("web-1")
    confirm = gateway._confirm

    def overtaken(*given: object) -> bytes:
        said = confirm(*given)  # type: ignore[arg-type]
        known.generation = 9
        return said

    gateway._confirm = overtaken  # type: ignore[method-assign,assignment]
    gateway.loses[session.Ask.CONFIRM] = 1
    async with node.running():
        await dialling.passes(120)
    assert len(set(way.dialled)) == 2, "once more, and only then for good"
    assert isinstance(node.ended, failures.NeedsOperator)


async def test_a_conflict_after_a_certificate_was_not_known_is_tried_again(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway
) -> None:
    replacing.prepare(
        node.where, node_id=node.agent.node_id, addresses=(), now=START, days=90, new_key=True
    )
    known = gateway.node("web-1")
    known.generation = 9  # and the next certificate, which is shown first, is not known there
    async with node.running():
        await dialling.passes(300)
        assert node.ended is None
        assert any("generation-conflict" in one for one in node.told.reasons)
        known.generation = 1
        await dialling.passes(120)
        assert gateway.open_session("web-1") is not None
    assert node.ended is None


async def test_a_conflict_at_the_first_word_ends_it_for_good(
    node: dialling.Node, gateway: imaginary_gateway.ImaginaryGateway, way: dialling.InMemory
) -> None:
    gateway.refuses[session.Ask.HELLO] = links.Refusal(session.Refusal.GENERATION_CONFLICT)
    async with node.running():
        await dialling.passes(10)
    assert isinstance(node.ended, failures.NeedsOperator)
    assert len(way.dialled) == 1
