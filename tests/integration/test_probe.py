"""The probe over a real store, with imaginary Agents and a clock moved by hand.

Long because every rule of the probe is tried in the same small world.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import pathlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from platform_server.audit import events
from platform_server.enrollment import certificate
from platform_server.nodes import (
    asking,
    configured,
    leading,
    probe,
    records,
    renewal,
    telling,
)
from platform_server.store import contract, leases
from runtime_kit import clock as clock_kit
from tests.support import domain
from wire_protocol import health, heartbeats, ids

pytestmark = pytest.mark.timeout(120)
PACE = probe.Pace(interval_seconds=15, timeout_seconds=5, concurrency=8, failures=2)
_STEPS = 4000


class ImaginaryAgents:
    """Answers for every node that is up; counts who was asked and how many at once."""

    def __init__(self, clock: clock_kit.ManualClock) -> None:
        self._clock = clock
        self.up: dict[str, str] = {}
        self.offset = datetime.timedelta()
        self.version = "0.1.0"
        self.trust_keys: tuple[ids.KeyId, ...] = (ids.KeyId("0" * 16),)
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate: asyncio.Event | None = None
        self.certificate_sha256 = "sha256:" + "0" * 64
        self.heartbeats_asked: list[str] = []
        self.knows_heartbeats = True

    async def exchange(
        self,
        target: asking.Target,
        *,
        question: asking.Question,
        timeout_s: float,
        trusted: bool = False,
    ) -> asking.Answered:
        del timeout_s, trusted
        assert (question.method, question.path) == ("GET", "/heartbeat")
        self.asked.append(target.node_id)
        if target.url not in self.up:
            raise asking.NoAnswer("no-connection", f"{target.url} is down")
        self.heartbeats_asked.append(target.node_id)
        told = heartbeats.Heartbeat(
            version=self.version,
            now=self._clock.now() + self.offset,
            uptime_seconds=1,
            load_milli=(1, 2, 3),
            capacity=heartbeats.Capacity(cpu_count=4, memory_bytes=8, disk_bytes=16),
            memory_available_bytes=1,
            disk_free_bytes=1,
            trust_keys=self.trust_keys,
            statement=(1, 1),
        )
        return asking.Answered(
            status=200 if self.knows_heartbeats else 404,
            body=told.to_bytes() if self.knows_heartbeats else b"",
            asked_at=self._clock.now(),
            seconds=0.0,
            certificate_sha256=self.certificate_sha256,
        )

    async def ask(
        self, target: asking.Target, *, timeout_s: float, trusted: bool = False
    ) -> asking.Heard:
        del timeout_s, trusted
        self.asked.append(target.node_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.at_once -= 1
        if target.url not in self.up:
            raise asking.NoAnswer("no-connection", f"{target.url} is down")
        node_id = ids.NodeId(self.up[target.url])
        return asking.Heard(
            health=health.AgentHealth(
                node_id=node_id,
                agent_id=ids.agent_id_of(node_id),
                version=self.version,
                now=self._clock.now() + self.offset,
                trust_keys=self.trust_keys,
            ),
            at=self._clock.now(),
            clock_offset_ms=round(self.offset.total_seconds() * 1000),
            certificate_sha256=self.certificate_sha256,
        )


@dataclasses.dataclass(kw_only=True)
class Rig:
    one: domain.Domain
    agents: ImaginaryAgents
    prober: probe.Prober

    async def node(self, node_id: str) -> records.Node:
        found = await self.one.store.read(lambda tx: records.find(tx, node_id=ids.NodeId(node_id)))
        assert found is not None
        return found

    async def until(self, done: Callable[[], Awaitable[bool]], *, step: float = 0.25) -> float:
        """Moves the clock until it is so; gives the seconds that took."""
        began = self.one.clock.monotonic()
        for _ in range(_STEPS):
            if await done():
                return self.one.clock.monotonic() - began
            self.one.clock.advance(step)
            await _breathe()
        raise AssertionError("It did not come about.")

    async def until_state(self, node_id: str, state: str) -> records.Node:
        async def reached() -> bool:
            return (await self.node(node_id)).state.value == state

        await self.until(reached)
        return await self.node(node_id)

    async def run_for(self, seconds: float) -> None:
        end = self.one.clock.monotonic() + seconds

        async def over() -> bool:
            return self.one.clock.monotonic() >= end

        await self.until(over)

    @contextlib.asynccontextmanager
    async def probing(self, prober: probe.Prober | None = None) -> AsyncIterator[None]:
        task = asyncio.create_task((prober or self.prober).run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def enrolled(self, node_id: str, *, number: int = 1) -> str:
        url = f"https://10.0.{number // 250}.{number % 250}:8443"
        token = await self.one.new_token(node_id)
        assert (await self.one.knock(node_id, token, url=url)).status == 201
        return url


async def _breathe() -> None:
    """Lets the store's threads and every task that is due have their turn."""
    for _ in range(3):
        await asyncio.sleep(0.0005)


def _prober(
    one: domain.Domain,
    agents: ImaginaryAgents,
    *,
    pace: probe.Pace = PACE,
    operators: configured.ConfiguredNodes | None = None,
) -> probe.Prober:
    return probe.Prober(
        one.store,
        asker=agents,
        operators=operators or one.operators,
        pace=pace,
        clock=one.clock,
        chance=random.Random(11),
        exchanger=agents,
        environment="test",
    )


@pytest.fixture
async def rig(store: contract.Store, tmp_path: pathlib.Path) -> Rig:
    one = await domain.build(store, folder=tmp_path)
    agents = ImaginaryAgents(one.clock)
    return Rig(one=one, agents=agents, prober=_prober(one, agents))


async def test_a_node_is_ready_only_after_its_agent_has_answered_as_that_node(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        await rig.run_for(20)
        assert (await rig.node("web-1")).state.value == "enrolled"
        rig.agents.up[url] = "another-1"
        conflict = await rig.until_state("web-1", "needs-operator")
        assert conflict.reason == "answers-as-another-node"
        assert conflict.first_ready_at is None
        rig.agents.up[url] = "web-1"
        ready = await rig.until_state("web-1", "ready")
        assert ready.first_ready_at is not None
        assert ready.reason is None


async def test_a_join_that_answers_for_its_agent_to_come_makes_nobody_ready(rig: Rig) -> None:
    keys, rig.agents.trust_keys = rig.agents.trust_keys, ()
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.run_for(10)
        assert (await rig.node("web-1")).state.value == "enrolled"
        rig.agents.trust_keys = keys
        await rig.until_state("web-1", "ready")


async def test_a_ready_node_that_is_silent_twice_is_unreachable_with_the_reason(
    rig: Rig,
) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        del rig.agents.up[url]
        gone = await rig.until_state("web-1", "unreachable")
        assert gone.reason == "no-connection"
        rig.agents.up[url] = "web-1"
        assert (await rig.until_state("web-1", "ready")).reason is None
    assert await rig.one.count("events", "kind = 'node.ready'") == 2
    assert await rig.one.count("events", "kind = 'node.unreachable'") == 1


async def test_a_single_silence_changes_nothing(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        asked = len(rig.agents.asked)
        del rig.agents.up[url]

        async def asked_once_more() -> bool:
            return len(rig.agents.asked) == asked + 1

        await rig.until(asked_once_more)
        rig.agents.up[url] = "web-1"
        await rig.run_for(60)
        assert (await rig.node("web-1")).state.value == "ready"
    assert await rig.one.count("events", "kind = 'node.unreachable'") == 0


async def test_after_a_start_every_ready_node_is_unreachable_until_it_answers(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
    rig.agents.gate = asyncio.Event()
    rig.one.clock.advance(60)  # on PostgreSQL: the former run's lease ends
    async with rig.probing(_prober(rig.one, rig.agents)):
        node = await rig.until_state("web-1", "unreachable")
        assert node.reason == "not-heard-since-start"
        rig.agents.gate.set()
        assert (await rig.until_state("web-1", "ready")).reason is None


@pytest.mark.parametrize(
    ("state", "kind"),
    {
        "enrolled anew with the key it had": ("enrolled", "node.key-changed"),
        "written down as silent by an engine that no longer leads": (
            "unreachable",
            "node.unreachable",
        ),
    }.values(),
)
async def test_a_node_that_answers_becomes_ready_whoever_wrote_otherwise(
    rig: Rig, state: str, kind: str
) -> None:
    async def written_by_somebody_else(tx: contract.Tx) -> None:
        await tx.execute("UPDATE nodes SET state = ? WHERE node_id = 'web-1'", state)
        await events.append(tx, at=domain.START, kind=kind, subject="web-1")

    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        await rig.one.store.transact(written_by_somebody_else)
        await rig.until_state("web-1", "ready")


async def test_work_taken_over_from_another_engine_leaves_the_states_as_they_are(
    rig: Rig, store: contract.Store
) -> None:
    if store.dialect is contract.Dialect.SQLITE:
        pytest.skip("one engine runs on SQLite")
    other = _prober(rig.one, rig.agents)
    async with rig.probing(), rig.probing(other):
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        await rig.run_for(probe.START_SECONDS)
    async with rig.probing(other):
        await rig.run_for(60)
    assert await rig.one.count("events", "kind = 'nodes.unheard'") == 0
    assert (await rig.node("web-1")).state.value == "ready"


async def test_an_engine_that_lost_the_lead_writes_nothing_any_more(
    rig: Rig, store: contract.Store
) -> None:
    if store.dialect is contract.Dialect.SQLITE:
        pytest.skip("one engine runs on SQLite")
    former = leading.Leading(store, name="work", clock=rig.one.clock)
    present = leading.Leading(store, name="work", clock=rig.one.clock)
    assert await former.holds()
    await store.transact(former.fence)
    rig.one.clock.advance(leading.TTL_SECONDS + 1)
    assert await present.holds()
    with pytest.raises(leases.LeaseLost):
        await store.transact(former.fence)
    await store.transact(present.fence)


async def test_somebody_who_waits_for_a_new_node_does_not_wait_for_the_interval(
    rig: Rig,
) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        began = rig.one.clock.monotonic()
        await rig.until_state("web-1", "ready")
        assert rig.one.clock.monotonic() - began < 5


async def test_the_answers_version_and_clock_offset_are_shown(rig: Rig) -> None:
    rig.agents.offset = datetime.timedelta(hours=2)
    rig.agents.version = "0.0.9"
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        node = await rig.until_state("web-1", "ready")
    assert (node.version, node.clock_offset_ms) == ("0.0.9", 7_200_000)
    assert node.last_seen_at == node.probe_answered_at is not None


async def test_a_removed_node_is_not_asked_again(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        await rig.one.remove("web-1")
        await rig.one.store.transact(_tell_removed)
        await rig.run_for(3)
        asked = len(rig.agents.asked)
        await rig.run_for(60)
        assert len(rig.agents.asked) == asked
        assert (await rig.node("web-1")).state.value == "removed"


async def test_an_answer_under_the_old_key_counts_for_nothing_after_a_reenrollment(
    rig: Rig,
) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        rig.agents.gate = asyncio.Event()

        async def under_way() -> bool:
            return rig.agents.at_once == 1

        await rig.until(under_way)
        again = await rig.one.new_token("web-1", replace=True)
        await rig.one.knock("web-1", again, url=url)
        del rig.agents.up[url]
        rig.agents.gate.set()
        await rig.run_for(30)
        assert (await rig.node("web-1")).state.value == "enrolled"


async def test_no_more_nodes_are_asked_at_once_than_there_are_places(rig: Rig) -> None:
    for number in range(30):
        url = await rig.enrolled(f"many-{number}", number=number)
        rig.agents.up[url] = f"many-{number}"
    rig.agents.gate = asyncio.Event()
    async with rig.probing():
        await rig.run_for(3)
        assert rig.agents.at_once == PACE.concurrency
        rig.agents.gate.set()

        async def all_ready() -> bool:
            return await rig.one.count("nodes", "state = 'ready'") == 30

        await rig.until(all_ready)
        assert rig.agents.most_at_once == PACE.concurrency


async def test_a_node_that_goes_on_answering_costs_the_store_a_write_only_now_and_then(
    rig: Rig,
) -> None:
    pace = probe.Pace(interval_seconds=2, timeout_seconds=5, concurrency=8, failures=2)
    written = set()
    async with rig.probing(_prober(rig.one, rig.agents, pace=pace)):
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        for _ in range(30):
            await rig.run_for(4)
            written.add((await rig.node("web-1")).last_seen_at)
    assert len(rig.agents.asked) > 40
    assert 4 <= len(written) <= 120 / probe.SEEN_SECONDS + 2


async def test_a_configured_node_is_asked_and_its_state_kept_where_every_engine_sees_it(
    rig: Rig,
) -> None:
    url = "https://10.9.9.9:8443"
    settings = domain.settings_of(nodes={"db-1": {"url": url, "pin": "sha256:" + "a" * 64}})
    rig.agents.up[url] = "db-1"
    prober = _prober(rig.one, rig.agents, operators=configured.of_settings(settings))
    async with rig.probing(prober):

        async def learned() -> bool:
            known = await rig.one.store.read(configured.read_learned)
            return "db-1" in known and known["db-1"].state == "ready"

        await rig.until(learned)


async def test_of_two_engines_on_postgresql_one_probes_and_the_other_takes_over(
    rig: Rig, store: contract.Store
) -> None:
    if store.dialect is contract.Dialect.SQLITE:
        pytest.skip("one engine runs on SQLite")
    other_agents = ImaginaryAgents(rig.one.clock)
    url = await rig.enrolled("web-1")
    rig.agents.up[url] = other_agents.up[url] = "web-1"
    async with rig.probing():
        await rig.until_state("web-1", "ready")
        async with rig.probing(_prober(rig.one, other_agents)):
            await rig.run_for(60)
            assert not other_agents.asked
    async with rig.probing(_prober(rig.one, other_agents)):

        async def taken_over() -> bool:
            return bool(other_agents.asked)

        waited = await rig.until(taken_over)
        assert waited < 30


async def test_a_listening_node_is_asked_for_its_heartbeat_every_half_minute(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        rig.agents.version = "0.0.7"
        asked = len(rig.agents.asked)
        await rig.run_for(240)
        beats = len(rig.agents.heartbeats_asked)
        assert 6 <= beats <= 10
        assert len(rig.agents.asked) - asked - beats >= 5  # who it is, is asked in between
        node = await rig.node("web-1")
        assert dict(node.capacity) == {"cpu_count": 4, "memory_bytes": 8, "disk_bytes": 16}
        assert node.version == "0.0.7"
        now = rig.one.clock.now()
        told = await rig.one.store.read(
            lambda tx: telling.find(tx, node_ids=[ids.NodeId("web-1")], now=now)
        )
        at = told[ids.NodeId("web-1")].heartbeat_at
        assert at is not None
        assert (now - at).total_seconds() < 65


async def test_an_agent_that_knows_no_heartbeat_is_asked_for_its_health_and_stays_ready(
    rig: Rig,
) -> None:
    rig.agents.knows_heartbeats = False
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        await rig.until_state("web-1", "ready")
        await rig.run_for(120)
        assert len(rig.agents.heartbeats_asked) == 1
        assert (await rig.node("web-1")).state.value == "ready"


async def test_a_listening_node_has_its_next_certificate_once_it_answers_with_it(rig: Rig) -> None:
    async with rig.probing():
        url = await rig.enrolled("web-1")
        rig.agents.up[url] = "web-1"
        before = await rig.until_state("web-1", "ready")
        offered = certificate.read(domain.new_certificate())
        await rig.one.store.transact(
            lambda tx: renewal.grant(
                tx,
                node_id=before.node_id,
                proved_pin=before.pin,
                offered=renewal.Offered(certificate=offered, signed_by_present=True),
                operators=rig.one.operators,
                now=rig.one.clock.now(),
            )
        )
        await rig.run_for(60)
        assert (await rig.node("web-1")).certificate_sha256 == before.certificate_sha256
        rig.agents.certificate_sha256 = offered.sha256  # it serves with the new one

        async def promoted() -> bool:
            return (await rig.node("web-1")).certificate_sha256 == offered.sha256

        await rig.until(promoted)
        await rig.run_for(60)
        node = await rig.node("web-1")
        assert (node.pin, node.state.value) == (offered.pin, "ready")
        assert await rig.one.count("action_log", f"action = '{renewal.REKEYED}'") == 1
        assert await rig.one.count("events", "kind = 'node.unreachable'") == 0


async def _tell_removed(tx: contract.Tx) -> None:
    await events.append(tx, at=domain.START, kind="node.removed", subject="web-1")
