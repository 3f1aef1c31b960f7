"""The engine is replaced, killed and stopped while machines go on asking; nobody is turned away."""

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import psutil
import pytest

from tests.support import machine, operators, racers, real_platform, waits
from wire_protocol import product

pytestmark = pytest.mark.timeout(180)

ENGINE = "platform_server engine"
LISTENER = "platform_server.listener"
STEADY = 8
"""Answers that each stream has had before, and again after, the engine is taken away."""

GONE_SECONDS = 10.0


@dataclasses.dataclass(slots=True)
class Streams:
    """What machines keep asking through the listener, and what they were told."""

    url: str
    tokens: Iterator[tuple[str, str]]
    told: dict[str, collections.Counter[int]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    _sources: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    async def ask_for_trust(self) -> None:
        """Each question over a new connection, and from another machine's address."""
        while True:
            number = next(self._sources) % 60_000
            source = f"127.9.{number // 250}.{1 + number % 250}"
            answer = await racers.ask_once(self.url, b"{}", path=product.TRUST_PATH, source=source)
            self.told["trust"][answer.status] += 1
            await waits.pace()

    async def enroll(self) -> None:
        """One machine after the other over one kept-alive connection."""
        one = racers.racers(1)[0]
        async with racers.lines([self.url], number=1) as (line,):
            for node_id, token in self.tokens:
                answer = await line.ask(one.body(node_id, token))
                self.told["enroll"][answer.status] += 1
                await waits.pace(times=10)  # the tokens last for as long as a slow replacement

    async def grow(self, *, seconds: float = 40.0) -> None:
        """Waits until every stream has had some more answers."""
        wanted = {name: self.told[name].total() + STEADY for name in ("trust", "enroll")}
        await waits.until(
            lambda: all(self.told[name].total() >= number for name, number in wanted.items()),
            seconds=seconds,
        )


@contextlib.asynccontextmanager
async def streaming(platform: real_platform.RealPlatform) -> AsyncIterator[Streams]:
    """The streams for the length of a `with`; a broken connection fails the test."""
    with operators.local(platform) as client:
        names = [f"steady-{number}" for number in range(120)]
        issued = iter([(name, operators.issue(client, name)) for name in names])
    streams = Streams(platform.enrollment_url, issued)
    async with asyncio.TaskGroup() as group:
        tasks = [
            *(group.create_task(streams.ask_for_trust()) for _ in range(3)),
            *(group.create_task(streams.enroll()) for _ in range(2)),
        ]
        try:
            await streams.grow()
            yield streams
        finally:
            for task in tasks:
                task.cancel()


def _pids(platform: real_platform.RealPlatform, word: str) -> set[int]:
    found = set()
    for one in platform.family()[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if word in real_platform.command_of(one):
                found.add(one.pid)
    return found


async def test_a_hangup_replaces_the_engine_under_a_steady_stream_and_fails_nobody(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    with real_platform.running(
        tmp_path / "p", "--enrollment-workers", "2", database_url=store_url
    ) as platform:
        listeners, engine = _pids(platform, LISTENER), _pids(platform, ENGINE)
        async with streaming(platform) as streams:
            platform.process.send_signal(signal.SIGHUP)
            await waits.until(lambda: "The engine was replaced" in platform.log.read_text())
            await streams.grow()
        assert streams.told["trust"].keys() == {200}
        assert streams.told["enroll"].keys() == {201}
        assert len(listeners) == 2
        assert _pids(platform, LISTENER) == listeners
        assert len(_pids(platform, ENGINE)) == 1
        assert not _pids(platform, ENGINE) & engine
        health = await asyncio.to_thread(httpx.get, f"{platform.said['api']}/healthz")
        assert health.status_code == 200
        with operators.local(platform) as client:
            assert len(operators.nodes(client)) == streams.told["enroll"].total()


async def test_three_hangups_in_a_row_end_with_one_engine_and_fail_nobody(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        async with streaming(platform) as streams:
            for _ in range(3):
                platform.process.send_signal(signal.SIGHUP)
            await waits.until(lambda: "The engine was replaced" in platform.log.read_text())
            await streams.grow()
        assert streams.told["trust"].keys() == {200}
        assert streams.told["enroll"].keys() == {201}
        await waits.until(lambda: len(_pids(platform, ENGINE)) == 1)


async def test_a_killed_engine_is_started_again_and_whoever_waited_is_served(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    """Lost answers are asked for again by the listener, so a machine may be told 200 for 201."""
    with real_platform.running(tmp_path / "p", database_url=store_url) as platform:
        listeners = _pids(platform, LISTENER)
        async with streaming(platform) as streams:
            for _ in range(2):
                platform.child(ENGINE).kill()
                await streams.grow()
        assert streams.told["trust"].keys() == {200}
        assert streams.told["enroll"].keys() <= {200, 201}
        assert _pids(platform, LISTENER) == listeners
        with operators.local(platform) as client:
            assert len(operators.nodes(client)) >= streams.told["enroll"].total()
        assert operators.is_intact(platform)


async def test_a_request_that_comes_while_there_is_no_engine_waits_and_is_served(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        async with racers.lines([platform.enrollment_url], number=1) as (line,):
            gone = platform.child(ENGINE)
            gone.kill()
            gone.wait(GONE_SECONDS)
            assert (await line.ask(b"{}", path=product.TRUST_PATH)).status == 200


@pytest.fixture
def silent_agent() -> Iterator[str]:
    """An Agent's address where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("to_the_group", [False, True], ids=["to-the-process", "to-the-group"])
async def test_sigterm_drains_what_is_in_work_and_leaves_nothing_behind(
    tmp_path: pathlib.Path, silent_agent: str, *, to_the_group: bool
) -> None:
    """While a machine enrolls, the Platform dials its Agent for up to 3 s: a request in work."""
    platform = real_platform.start(tmp_path / "p", "--enrollment-workers", "2")
    family = platform.family()
    with operators.local(platform) as client:
        token = operators.issue(client, "web-1")
    async with racers.lines([platform.enrollment_url], number=1) as (line,):
        body = racers.racers(1)[0].body("web-1", token, url=silent_agent)
        asking = asyncio.create_task(line.ask(body))
        await waits.until(lambda: _dials(platform, silent_agent))
        started = time.monotonic()
        if to_the_group:
            os.killpg(platform.process.pid, signal.SIGTERM)
        else:
            platform.process.send_signal(signal.SIGTERM)
        answer = await asking
    assert answer.status == 201
    assert answer.document["reachable"] is False
    assert await asyncio.to_thread(platform.process.wait, GONE_SECONDS) == 0
    assert time.monotonic() - started < GONE_SECONDS
    real_platform.close(platform.process)
    assert psutil.wait_procs(family, timeout=1)[1] == []
    assert [path.name for path in (tmp_path / "p" / "run").iterdir() if path.is_socket()] == []
    host, _, port = platform.enrollment_url.removeprefix("https://").partition(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), 5):
        pass


def _dials(platform: real_platform.RealPlatform, url: str) -> bool:
    port = int(url.rpartition(":")[2])
    made = platform.child(ENGINE).net_connections(kind="tcp")
    return port in {getattr(one.raddr, "port", None) for one in made}


def test_after_a_start_a_ready_node_is_unreachable_until_it_answers(
    tmp_path: pathlib.Path,
) -> None:
    """The Agent is held while the Platform starts, so that it cannot answer yet."""
    port = machine.free_port()
    quick = {"ENLIST_PROBE__INTERVAL_SECONDS": "1", "ENLIST_PROBE__TIMEOUT_SECONDS": "30"}
    worker = machine.in_folder(tmp_path)
    with contextlib.ExitStack() as stack:
        with real_platform.running(
            tmp_path / "p", environment=quick, enrollment_port=port
        ) as platform:
            worker.join(machine.issue(platform, "web-1"))
            agent = stack.enter_context(worker.agent())
            machine.wait_for_state(platform, "web-1", "ready")
        agent.process.send_signal(signal.SIGSTOP)
        stack.callback(agent.process.send_signal, signal.SIGCONT)
        with real_platform.running(
            tmp_path / "p", environment=quick, enrollment_port=port
        ) as platform:
            shown = machine.wait_for_state(platform, "web-1", "unreachable")
            assert shown["reason"] == "not-heard-since-start"
            agent.process.send_signal(signal.SIGCONT)
            assert machine.wait_for_state(platform, "web-1", "ready")["reason"] is None
