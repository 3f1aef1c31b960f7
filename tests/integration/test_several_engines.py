"""Several real engines on one PostgreSQL, and real Agents that hold their session on any of them.

An order given at one engine reaches the node through another; an engine that is killed loses no
order, and none is carried out twice. How soon orders arrive is measured by bench/order.py.
"""

import asyncio
import contextlib
import json
import pathlib
import shutil
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from platform_server.dispatch import deliver, giving
from tests.support import (
    giving_orders,
    machine,
    operators,
    postgres,
    racers,
    real_platform,
    waits,
)
from wire_protocol import product, statements
from worker_agent.settings import paths, trust_file

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("several-engines")]

QUICK = {"ENLIST_GATEWAY__HEARTBEAT_SECONDS": "1"}
POINTS = sorted(
    [giving.STORED, deliver.SENDING, deliver.SENT, deliver.ACCEPTED, deliver.RESULT_STORED]
)
CRASHED = '"exit_code": -9'


class Several:
    """Platforms on one database, each with a data directory of its own and one master key."""

    def __init__(self, folder: pathlib.Path, *, url: str, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self._url = url
        self._stack = stack
        self.platforms: list[real_platform.RealPlatform] = []

    def start(self, name: str, *, crash_at: str | None = None) -> real_platform.RealPlatform:
        """One more, or one again."""
        data_dir = self.folder / name
        if self.platforms and not data_dir.exists():
            data_dir.mkdir(mode=0o700)
            shutil.copy2(self.platforms[0].data_dir / "master.key", data_dir / "master.key")
        more = {"ENLIST_CRASH_AT": crash_at} if crash_at else {}
        started = real_platform.start(
            data_dir, database_url=self._url, environment={**QUICK, **more}
        )
        self._stack.callback(_end, started)
        self.platforms.append(started)
        return started

    def join(self, name: str, *, at: real_platform.RealPlatform) -> machine.Machine:
        """A machine that dials out."""
        worker = machine.dialling_out(self.folder, name=name)
        worker.join(machine.issue(at, name))
        return worker


def _end(platform: real_platform.RealPlatform) -> None:
    if platform.process.poll() is None:
        platform.process.send_signal(signal.SIGCONT)
        platform.stop()


@pytest.fixture
def several(tmp_path: pathlib.Path, postgres_server: postgres.Server) -> Iterator[Several]:
    url = postgres_server.new_database()
    with contextlib.ExitStack() as stack:
        stack.callback(postgres_server.drop_database, url)
        yield Several(tmp_path, url=url, stack=stack)


async def test_one_statement_names_every_gateway_and_a_start_of_one_engine_changes_nothing(
    several: Several,
) -> None:
    one, two = several.start("one"), several.start("two")
    before = await _statement(two)
    assert set(before.gateway_urls) == {one.said["gateway"], two.said["gateway"]}
    assert before.enrollment_url == one.enrollment_url
    _replace_engine(two)
    _replace_engine(one)
    after = await _statement(one, least=before.number)
    assert after.number == before.number
    assert after == await _statement(two, least=before.number)


def test_an_order_given_at_any_engine_reaches_a_node_wherever_its_session_is(
    several: Several,
) -> None:
    one, two = several.start("one"), several.start("two")
    workers = [several.join(f"web-{number}", at=one) for number in range(4)]
    with contextlib.ExitStack() as stack:
        agents = [stack.enter_context(worker.agent()) for worker in workers]
        for worker in workers:
            machine.wait_for_state(two, worker.data_dir.name, "ready")
            giving_orders.give(one, worker.data_dir.name)
            giving_orders.give(two, worker.data_dir.name)
        for worker, agent in zip(workers, agents, strict=True):
            found = giving_orders.wait_until_ended(one, worker.data_dir.name)
            assert [one["state"] for one in found] == ["done", "done"]
            assert giving_orders.ended(agent.log) == {(1, 1): ["done"], (1, 2): ["done"]}
    assert operators.is_intact(one)


def test_when_the_engine_with_the_session_is_killed_the_order_goes_through_the_other(
    several: Several,
) -> None:
    one, two = several.start("one"), several.start("two")
    worker = several.join("web-1", at=one)
    with worker.agent() as agent:
        machine.wait_for_state(one, "web-1", "ready")
        _wait_until_named(worker, [one, two])
        holder, other = (one, two) if _holds(one, agent) else (two, one)
        _order(other)
        giving_orders.wait_until_ended(other, "web-1")
        # its host is held, so that it starts no other engine
        holder.process.send_signal(signal.SIGSTOP)
        holder.child("platform_server engine").kill()
        _order(other)
        _order(other)
        found = giving_orders.wait_until_ended(other, "web-1")
        assert [one["state"] for one in found] == ["done", "done", "done"]
        holder.process.send_signal(signal.SIGCONT)
        operators.wait_until(lambda: _is_served(holder), what="the killed engine serves again")
        _order(holder)
        found = giving_orders.wait_until_ended(holder, "web-1")
        assert [one["state"] for one in found] == ["done"] * 4
    assert giving_orders.taken(agent.log) == {(1, number): 1 for number in range(1, 5)}


def test_a_listening_node_gets_its_orders_from_the_engine_that_is_left(several: Several) -> None:
    one, two = several.start("one"), several.start("two")
    worker = machine.in_folder(several.folder, name="web-1")
    worker.join(machine.issue(one, "web-1"))
    with worker.agent() as agent:
        machine.wait_for_state(one, "web-1", "ready")
        giving_orders.give(one, "web-1")
        giving_orders.give(two, "web-1")
        giving_orders.wait_until_ended(one, "web-1")
        leader, other = sorted((one, two), key=_led_at, reverse=True)
        leader.process.send_signal(signal.SIGSTOP)
        leader.child("platform_server engine").kill()
        _order(other)
        giving_orders.wait_until_ended(other, "web-1")
    assert giving_orders.taken(agent.log) == {(1, number): 1 for number in (1, 2, 3)}
    assert {number: len(said) for number, said in giving_orders.ended(agent.log).items()} == {
        (1, number): 1 for number in (1, 2, 3)
    }


@pytest.mark.parametrize("point", POINTS)
def test_an_engine_killed_at_the_point_leaves_the_order_to_the_other(
    point: str, several: Several
) -> None:
    dying = several.start("one", crash_at=point)
    worker = several.join("web-1", at=dying)
    with worker.agent() as agent:
        machine.wait_for_state(dying, "web-1", "ready")
        other = several.start("two")
        _wait_until_named(worker, [dying, other])
        given = _order(dying if point == giving.STORED else other)
        operators.wait_until(lambda: CRASHED in dying.log.read_text(), what=f"{point} was reached")
        real_platform.kill_group(dying.process)
        (order,) = giving_orders.wait_until_ended(other, "web-1")
        assert given is None or given["order_id"] == order["order_id"]
        _order(other)
        states = [one["state"] for one in giving_orders.wait_until_ended(other, "web-1")]
    # The first may have failed, for want of a session at that moment; the node's word counts.
    assert states == [order["state"], "done"]
    assert giving_orders.ended(agent.log) == {(1, 1): [states[0]], (1, 2): ["done"]}
    assert giving_orders.taken(agent.log) == {(1, 1): 1, (1, 2): 1}
    assert operators.is_intact(other)


def _order(platform: real_platform.RealPlatform) -> dict[str, Any] | None:
    """One that needs the gateway alone: the enrollment address may be the killed one's."""
    return giving_orders.give(platform, "web-1", kind="renew")


async def _statement(
    platform: real_platform.RealPlatform, *, least: tuple[int, int] = (0, 0)
) -> statements.Statement:
    """What the Platform publishes, once it has followed the other engines that far."""
    async with asyncio.timeout(30):
        while True:
            answer = await racers.ask_once(platform.enrollment_url, b"{}", path=product.TRUST_PATH)
            signed = statements.parse_answer(answer.body).present
            found = statements.parse_statement(signed.content)
            if found.number >= least:
                return found
            await waits.pace(times=10)


def _replace_engine(platform: real_platform.RealPlatform) -> None:
    before = platform.child("platform_server engine").pid
    platform.process.send_signal(signal.SIGHUP)
    operators.wait_until(
        lambda: (
            [
                kid.pid
                for kid in platform.family()[1:]
                if "platform_server engine" in real_platform.command_of(kid)
            ]
            not in ([before], [])
        ),
        what="the engine was replaced",
    )
    operators.wait_until(lambda: _is_served(platform), what="the next engine serves")


def _wait_until_named(
    worker: machine.Machine, platforms: Sequence[real_platform.RealPlatform]
) -> None:
    """The machine's trust set names the gateways of all these."""
    wanted = {platform.said["gateway"] for platform in platforms}

    def is_named() -> bool:
        held = trust_file.read(paths.Paths(folder=worker.data_dir).trust)
        return held is not None and wanted <= set(held.statement.gateway_urls)

    operators.wait_until(is_named, what="the machine knows every gateway")


def _holds(platform: real_platform.RealPlatform, agent: machine.Agent) -> bool:
    """Whether the Agent's last session was opened there."""
    lines = [line for line in agent.log.read_text().splitlines() if '"Session open"' in line]
    return str(platform.said["gateway"]) in lines[-1]


def _led_at(platform: real_platform.RealPlatform) -> str:
    """When its engine last took up the delivery to nodes that listen; empty if never."""
    lines = platform.log.read_text().splitlines()
    said = [json.loads(line) for line in lines if "This engine leads" in line]
    return max((line["timestamp"] for line in said if line["work"] == deliver.LEASE), default="")


def _is_served(platform: real_platform.RealPlatform) -> bool:
    try:
        platform.api("GET", "/platform")
    except (OSError, AssertionError):
        return False
    return True
