"""Silence, lost sessions, dead engines and heartbeats, over either store (lessons F8)."""

import pathlib
from collections.abc import AsyncIterator

import pytest

from platform_server.nodes import engines, heartbeats, liveness
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit.mux import link as links
from tests.support import domain, gateways
from wire_protocol import ids, product, session

WEB = ids.NodeId("web-1")


@pytest.fixture
async def engine(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(store, folder=tmp_path) as built:
        yield built


async def test_a_dead_peer_is_noticed_within_sixty_seconds(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    assert agent.pair is not None
    agent.pair.blackhole()
    for _ in range(30):
        engine.clock.advance(2)
        await engine.turn()
        await engine.sweep()
    assert engine.gate.sessions.find(WEB) is None
    assert await engine.state("web-1") == ("unreachable", "session-lost")


async def test_heartbeats_alone_keep_a_session_alive_for_hours(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    for _ in range(240):
        engine.clock.advance(30)
        await engine.turn()
        await agent.beat()
        assert await engine.sweep() == []
    assert await engine.state("web-1") == ("ready", None)
    assert agent.link.ended is None


async def test_a_node_is_asked_again_who_it_is_while_its_session_lasts(
    engine: gateways.Engine,
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    for _ in range(22):
        engine.clock.advance(30)
        await engine.turn()
        await agent.beat()
        await engine.settle()
    assert agent.asked == ["health"] * 3
    await engine.gate._watch.write_answered()
    answered = (await engine.node("web-1")).probe_answered_at
    assert answered is not None
    assert (engine.clock.now() - answered).total_seconds() <= 60
    agent.answers_as = ids.NodeId("web-2")
    engine.clock.advance(300)
    await agent.beat()
    await engine.settle()
    assert await engine.state("web-1") == ("needs-operator", "answers-as-another-node")
    assert agent.link.ended is not None


async def test_a_node_that_is_back_within_a_minute_was_never_away(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    for _ in range(5):
        agent = await engine.open(identity, instance="one-process")
        assert agent.pair is not None
        agent.pair.cut()
        await engine.turn()
        engine.clock.advance(50)
        assert await engine.sweep() == []
    await engine.open(identity, instance="one-process")
    assert (await engine.kinds()).count("node.ready") == 1
    assert "node.unreachable" not in await engine.kinds()


async def test_a_node_that_stays_away_is_unreachable_after_a_minute_and_ready_once_back(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    assert agent.pair is not None
    agent.pair.cut()
    await engine.turn()
    engine.clock.advance(59)
    assert await engine.sweep() == []
    engine.clock.advance(2)
    assert await engine.sweep() == [WEB]
    assert await engine.state("web-1") == ("unreachable", "session-lost")
    await engine.open(identity)
    assert await engine.state("web-1") == ("ready", None)


async def test_an_engine_killed_leaves_no_ghost_session(
    engine: gateways.Engine, store: contract.Store, tmp_path: pathlib.Path
) -> None:
    identity = await engine.join("web-1")
    await engine.open(identity)
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(
        store, folder=other, engine_id="engine-b", beside=engine
    ) as successor:
        engine.clock.advance(21)  # nobody says any more that engine-a runs
        await successor.store.transact(
            lambda tx: engines.sign_on(tx, engine_id="engine-b", now=engine.clock.now())
        )
        await successor.sweep()
        engine.clock.advance(61)
        assert await successor.sweep() == [WEB]
        assert await successor.domain.count("sessions") == 0
        await successor.gate._anchors.follow()
        await successor.open(identity)
        assert await successor.state("web-1") == ("ready", None)


async def test_an_engine_that_could_not_say_that_it_runs_does_not_give_up_its_own_sessions(
    engine: gateways.Engine,
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    engine.clock.advance(40)  # a locked store: nobody could write
    assert await engine.sweep() == []
    assert await engine.value("SELECT lost_at AS value FROM sessions") is None
    await agent.beat()
    await engine.turn()
    assert agent.link.ended is None
    assert await engine.state("web-1") == ("ready", None)


async def test_a_start_forgets_who_was_ready_unless_a_running_engine_hears_it(
    engine: gateways.Engine,
) -> None:
    first, second = await engine.join("web-1"), await engine.join("web-2")
    await engine.open(first)
    await engine.open(second)
    peer = engine.gate.sessions.find_peer(ids.NodeId("web-2"))
    assert peer is not None
    peer.link.close(reason="test")
    await engine.turn()
    now = engine.clock.now()
    await engine.store.transact(lambda tx: liveness.forget_answers(tx, now=now))
    assert await engine.state("web-1") == ("ready", None)
    assert await engine.state("web-2") == ("unreachable", liveness.NOT_HEARD)


async def test_a_drained_engine_sends_every_session_away_spread_over_time(
    engine: gateways.Engine,
) -> None:
    agents = [await engine.open(await engine.join(f"web-{number}")) for number in range(20)]
    await engine.gate.drain(seconds=1.0)
    ends = [await gateways.ended(agent.link) for agent in agents]
    assert {end.reason for end in ends} == {"engine-replaced"}
    waits = [end.retry_after_s for end in ends]
    assert all(wait is not None and 0 <= wait <= 0.1 for wait in waits)
    assert len(set(waits)) > 10
    assert await engine.value("SELECT COUNT(*) AS value FROM engines") == 0
    lost = "SELECT COUNT(*) AS value FROM sessions WHERE lost_at IS NULL"
    assert await engine.value(lost) == 0


async def test_a_heartbeat_is_written_with_others_and_shown(engine: gateways.Engine) -> None:
    agents = [await engine.open(await engine.join(f"web-{number}")) for number in range(3)]
    engine.clock.advance(30)
    for agent in agents:
        pulse = await agent.beat()
        assert pulse.now == engine.clock.now()
        assert pulse.statement == engine.domain.trust.published.statement.number
    assert await engine.domain.count("heartbeats") == 0
    await engine.flush()
    assert await engine.domain.count("heartbeats") == 3
    wanted = [ids.NodeId("web-0"), ids.NodeId("web-2"), ids.NodeId("none")]
    last = await engine.store.read(lambda tx: heartbeats.find_last(tx, node_ids=wanted))
    assert sorted(last) == ["web-0", "web-2"]
    assert last[ids.NodeId("web-0")].at == engine.clock.now()
    node = await engine.node("web-0")
    assert dict(node.capacity) == {
        "cpu_count": 2,
        "memory_bytes": 4_000_000_000,
        "disk_bytes": 50_000_000_000,
    }


async def test_the_version_is_taken_over_from_each_heartbeat(engine: gateways.Engine) -> None:
    agent = await engine.open(await engine.join("web-1"))
    assert (await engine.node("web-1")).version == product.VERSION
    await agent.beat(version="0.0.9")
    await engine.flush()
    assert (await engine.node("web-1")).version == "0.0.9"
    await agent.beat(version="no version at all")
    await engine.flush()
    assert (await engine.node("web-1")).version == "unknown"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":"\\ud800"}',
        b"\xff" * 100,
        b"[" * 50_000,
    ],
)
async def test_a_malformed_heartbeat_is_refused_and_ends_nothing(
    engine: gateways.Engine, body: bytes
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    assert (await gateways.refusal(agent.ask(session.Ask.HEARTBEAT, body))).code == "invalid"
    half = agent.heartbeat().to_bytes().replace(product.VERSION.encode(), b"\\ud800", 1)
    assert (await gateways.refusal(agent.ask(session.Ask.HEARTBEAT, half))).code == "invalid"
    await agent.beat()
    await engine.flush()
    assert agent.link.ended is None


async def test_an_older_heartbeat_never_replaces_a_newer_one(engine: gateways.Engine) -> None:
    agent = await engine.open(await engine.join("web-1"))
    peer = engine.gate.sessions.find_peer(WEB)
    assert peer is not None
    await agent.beat()
    newer = peer.news
    assert newer is not None
    older = heartbeats.News(
        node_id=WEB,
        pin=newer.pin,
        at=domain.START.replace(year=2025),
        content="{}",
        version=None,
        capacity=None,
    )
    await engine.store.transact(lambda tx: heartbeats.write(tx, news=[newer]))
    await engine.store.transact(lambda tx: heartbeats.write(tx, news=[older]))
    at = await engine.value("SELECT at AS value FROM heartbeats")
    assert at == clock_kit.to_micros(newer.at)


async def test_a_session_that_the_store_has_given_up_is_closed_at_the_next_heartbeat(
    engine: gateways.Engine,
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    await engine.store.transact(
        lambda tx: tx.execute("UPDATE sessions SET lost_at = 1 WHERE node_id = 'web-1'")
    )
    await agent.beat()
    await engine.turn()
    assert (await gateways.ended(agent.link)).reason == "session-lost"


async def test_a_node_taken_for_unreachable_is_asked_again_at_its_next_heartbeat(
    engine: gateways.Engine,
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    await engine.store.transact(
        lambda tx: tx.execute("UPDATE nodes SET state = 'unreachable' WHERE node_id = 'web-1'")
    )
    for _ in range(2):  # the first shows it, the second mends it
        engine.clock.advance(30)
        await agent.beat()
        await engine.turn()
    assert await engine.state("web-1") == ("ready", None)


async def test_a_node_that_sends_heartbeats_without_end_is_put_off_until_the_next_minute(
    engine: gateways.Engine,
) -> None:
    busy, other = [await engine.open(await engine.join(f"web-{number}")) for number in range(2)]
    refused = []
    for _ in range(100):
        try:
            await busy.beat()
        except links.Refused as refusal:
            refused.append(refusal.code)
    assert refused == ["not-now"] * 20
    await other.beat()
    engine.clock.advance(60)
    await busy.beat()


async def test_a_node_that_asks_for_mesh_places_without_end_is_put_off_before_the_store_hears(
    engine: gateways.Engine,
) -> None:
    heard: list[ids.NodeId] = []

    async def place(node_id: ids.NodeId, _body: bytes) -> bytes:
        heard.append(node_id)
        return b"{}"

    engine.gate.further = {session.Ask.MESH: place}
    identities = [await engine.join(f"web-{number}") for number in range(2)]
    busy, other = [await engine.open(identity) for identity in identities]
    for _ in range(12):
        await busy.ask(session.Ask.MESH, b"{}")
    errand = await engine.agent(identities[0], instance=busy.instance).errand()
    for again in (busy, errand):  # another connection of the same node counts as well
        assert (await gateways.refusal(again.ask(session.Ask.MESH, b"{}"))).code == "not-now"
    assert heard == ["web-0"] * 12
    await other.ask(session.Ask.MESH, b"{}")
    engine.clock.advance(60)
    busy = await engine.agent(identities[0], instance=busy.instance).errand()
    await busy.ask(session.Ask.MESH, b"{}")
    assert heard == ["web-0"] * 12 + ["web-1", "web-0"]
