"""Sessions over either store: who is let in, who is refused, and what becomes of a lost one.

The machine's end is a script over a link in memory; the store is real.
"""

import asyncio
import pathlib
import ssl
from collections.abc import AsyncIterator

import pytest

from platform_server.nodes import conflicts, engines, heartbeats, liveness
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from tests.support import domain, gateways, scripted_agent
from wire_protocol import ids, product, session

WEB = ids.NodeId("web-1")


@pytest.fixture
async def engine(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(store, folder=tmp_path) as built:
        yield built


async def test_a_node_is_ready_once_it_has_answered_over_its_session(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    assert await engine.state("web-1") == ("enrolled", None)
    agent = await engine.agent(identity).open()
    await engine.settle()
    assert agent.asked == ["health"]
    assert await engine.state("web-1") == ("ready", None)
    assert (await engine.node("web-1")).generation == 2 == identity.generation
    assert engine.gate.sessions.find(WEB) is not None
    assert [node_id for node_id, _ in engine.opened] == [WEB]


async def test_an_opening_costs_one_read_and_two_transactions_and_a_return_one_less(
    engine: gateways.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await engine.join("web-1")
    reads, writes = [0], [0]
    read, transact = engine.store.read, engine.store.transact

    async def counted_read(work: contract.Work[object]) -> object:
        reads[0] += 1
        return await read(work)

    async def counted_transact(work: contract.Work[object]) -> object:
        writes[0] += 1
        return await transact(work)

    monkeypatch.setattr(engine.store, "read", counted_read)
    monkeypatch.setattr(engine.store, "transact", counted_transact)
    agent = await engine.open(identity)
    assert (reads[0], writes[0]) == (1, 2)
    for _ in range(5):
        await agent.beat()
    assert (reads[0], writes[0]) == (1, 2)  # a heartbeat costs the store nothing
    await engine.open(identity, instance=agent.instance)
    assert (reads[0], writes[0]) == (2, 3)


async def test_a_lost_answer_to_confirm_never_locks_the_node_out(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    for _ in range(20):
        agent = engine.agent(identity, instance="one-process").connect()
        await agent.greet()
        assert agent.pair is not None
        agent.pair.cut()  # the generation is stored, its confirmation never arrives
    await engine.open(identity, instance="one-process")
    assert await engine.state("web-1") == ("ready", None)
    assert (await engine.node("web-1")).generation == identity.generation == 2


async def test_a_confirmation_that_arrives_though_its_answer_is_lost_counts(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    for generation in range(2, 8):
        agent = engine.agent(identity, instance="one-process").connect()
        await agent.greet()
        assert agent.pair is not None
        confirming = asyncio.create_task(agent.confirm())
        await engine.begun()
        agent.pair.cut()
        await asyncio.gather(confirming, return_exceptions=True)
        await engine.settle()
        assert (await engine.node("web-1")).generation == generation == identity.generation
    await engine.open(identity, instance="one-process")
    assert await engine.state("web-1") == ("ready", None)


async def test_a_connection_cut_while_its_session_is_written_leaves_no_ghost(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = engine.agent(identity).connect()
    await agent.greet()
    assert agent.pair is not None
    confirming = asyncio.create_task(agent.confirm())
    await engine.begun()
    agent.pair.cut()
    await asyncio.gather(confirming, return_exceptions=True)
    await engine.settle()
    await engine.turn()
    assert engine.gate.sessions.find(WEB) is None
    assert len(engine.gate.sessions) == 0
    lost = await engine.value("SELECT lost_at AS value FROM sessions WHERE node_id = ?", WEB)
    assert lost is not None


async def test_a_row_that_stands_for_no_session_is_found_and_given_up(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    peer = engine.gate.sessions.find_peer(WEB)
    assert peer is not None
    engine.gate.sessions.leave(peer)  # as after a write whose outcome nobody could tell
    engine.clock.advance(61)
    assert await engine.gate._watch.find_ghosts(engine_id="engine-a") == 1
    await engine.flush()
    engine.clock.advance(61)
    assert await engine.sweep() == [WEB]
    agent.link.close(reason="test")


# Copies of an identity (lessons C2, C4, E18).


async def test_two_machines_with_one_identity_do_not_flap_and_the_running_one_stays(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    copy = identity.copy()
    for _ in range(10):
        clone = engine.agent(copy, address="198.51.100.4").connect()
        refused = await gateways.refusal(clone.greet())
        assert refused.code == "generation-conflict"
        assert (await gateways.ended(clone.link)).reason == "generation-conflict"
    assert "192.0.2.10" in refused.detail
    assert "198.51.100.4" in refused.detail
    assert refused.detail.count("2026-03-01T12:00:00") == 2  # since when each of them is known
    assert original.link.ended is None
    assert await engine.state("web-1") == ("ready", None)
    assert engine.gate.sessions.find(WEB) is not None
    kinds = await engine.kinds()
    assert kinds.count(conflicts.EVENT) == 1  # told once an address, whatever it tries
    assert await engine.domain.count("action_log", f"action = '{conflicts.EVENT}'") == 1


async def test_a_conflict_stands_beside_the_node_for_a_day(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    await engine.open(identity)
    clone = engine.agent(identity.copy(), address="198.51.100.4").connect()
    await gateways.refusal(clone.greet())
    now = engine.clock.now()
    found = await engine.store.read(lambda tx: conflicts.find_recent(tx, node_ids=[WEB], now=now))
    assert conflicts.reason_of(found[WEB]) == (
        "generation-conflict: also used from 198.51.100.4 since 2026-03-01T12:00:00Z"
    )
    after = gateways.later(engine, 86_401)
    gone = await engine.store.read(lambda tx: conflicts.find_recent(tx, node_ids=[WEB], now=after))
    assert gone == {}


async def test_whoever_has_the_key_cannot_fill_the_store_from_many_addresses(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    await engine.open(identity)
    copy = identity.copy()
    for number in range(60):
        clone = engine.agent(copy, address=f"198.51.100.{number}").connect()
        await gateways.refusal(clone.greet())
        engine.clock.advance(11)
        await engine.turn()
    most = conflicts.MOST_ADDRESSES + 1
    assert await engine.domain.count("identity_conflicts") == most
    assert (await engine.kinds()).count(conflicts.EVENT) == most


async def test_a_copy_made_before_the_last_session_is_refused_though_nobody_is_there(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    copy = identity.copy()
    original = await engine.open(identity)
    original.link.close(reason="agent-stops")
    await engine.turn()
    clone = engine.agent(copy, address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"


async def test_a_silent_session_makes_place_for_whoever_comes(
    engine: gateways.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_server.gateway.rules.PING_SECONDS", 0.05)
    identity = await engine.join("web-1")
    former = await engine.open(identity)
    assert former.pair is not None
    former.pair.blackhole()  # half open: no packet says so
    fresh = await engine.open(identity, instance="after-a-reboot")
    assert engine.gate.sessions.find(WEB) is not None
    assert fresh.asked == ["health"]
    peer = engine.gate.sessions.find_peer(WEB)
    assert peer is not None
    assert peer.link is fresh.pair.right  # type: ignore[union-attr]
    assert len(engine.gate.sessions) == 1


async def test_the_same_process_replaces_its_own_session_without_a_question(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    former = await engine.open(identity, instance="one-process")
    assert former.pair is not None
    former.pair.blackhole()
    await engine.open(identity, instance="one-process")
    assert len(engine.gate.sessions) == 1
    former.pair.heal()
    assert (await gateways.ended(former.link)).reason == "replaced"


async def test_of_two_openings_at_once_one_is_the_session(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    first = engine.agent(identity.copy()).connect()
    second = engine.agent(identity.copy(), address="198.51.100.4").connect()
    await asyncio.gather(first.greet(), second.greet())
    done = await asyncio.gather(first.confirm(), second.confirm(), return_exceptions=True)
    await engine.settle()
    assert [isinstance(one, Exception) for one in done].count(False) == 1
    assert len(engine.opened) == 1
    assert len(engine.gate.sessions) == 1
    assert (await engine.node("web-1")).generation == 2


async def test_a_copy_that_leaves_does_not_take_the_original_with_it(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    clone = await engine.agent(identity.copy(), address="198.51.100.4").errand()
    refused = await gateways.refusal(clone.ask(session.Ask.LEAVE))
    assert refused.code == "not-now"
    assert "192.0.2.10" in refused.detail
    assert await engine.state("web-1") == ("ready", None)
    assert original.link.ended is None


async def test_a_copy_that_is_behind_may_not_even_ask_to_leave(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    copy = identity.copy()
    await engine.open(identity)
    clone = engine.agent(copy).connect()
    refused = await gateways.refusal(clone.greet(purpose=session.Purpose.ERRAND))
    assert refused.code == "generation-conflict"


async def test_a_copy_that_renews_after_the_original_has_renewed_is_told_what_it_is(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity, instance="one-process")
    copy = identity.copy()
    fresh = await original.renew()
    fresh.generation = identity.generation
    await engine.open(fresh, instance="one-process")
    clone = engine.agent(copy, address="198.51.100.4").connect()
    refused = await gateways.refusal(clone.greet(purpose=session.Purpose.ERRAND))
    assert refused.code == "generation-conflict"
    now = engine.clock.now()
    flagged = await engine.store.read(lambda tx: conflicts.find_recent(tx, node_ids=[WEB], now=now))
    assert flagged[WEB].address == "198.51.100.4"
    assert await engine.state("web-1") == ("ready", None)


async def test_a_node_that_leaves_over_its_own_session_is_removed(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    assert await agent.ask(session.Ask.LEAVE) == b""
    assert (await gateways.ended(agent.link)).reason == "node-removed"
    assert (await engine.state("web-1"))[0] == "removed"
    assert await engine.domain.count("action_log", "action = 'node.left'") == 1


async def test_a_stopped_node_leaves_by_an_errand(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    agent.link.close(reason="agent-stops")
    await engine.turn()
    command = await engine.agent(identity).errand()
    await command.ask(session.Ask.LEAVE)
    assert (await engine.state("web-1"))[0] == "removed"


# Removal, other keys, other ids.


async def test_a_removed_nodes_session_ends_at_once_and_it_cannot_return(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    await engine.domain.remove("web-1")
    await engine.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO events(seq, at, kind, subject, infra, data) "
            "SELECT MAX(seq) + 1, 0, 'node.removed', 'web-1', 'default', '{}' FROM events"
        )
    )
    await engine.turn()
    assert (await gateways.ended(agent.link)).reason == "node-removed"
    assert engine.gate.sessions.find(WEB) is None
    again = engine.agent(identity).connect()  # the handshake, so that it can be told
    assert (await gateways.refusal(again.greet())).code == "node-removed"


async def test_a_node_that_is_removed_and_allowed_again_is_a_stranger(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    await engine.domain.remove("web-1")
    await engine.domain.allow("web-1")
    await engine.gate._anchors.refresh([WEB])
    with pytest.raises(ssl.SSLError):
        engine.agent(identity).connect()


async def test_a_re_enrollment_with_another_key_ends_the_session_of_the_old_one(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    token = await engine.domain.new_token("web-1", replace=True)
    other = domain.new_key()
    said = await engine.domain.knock("web-1", token, certificate=domain.certificate_of(other))
    assert said.status == 201
    await engine.turn()
    await gateways.ended(agent.link)
    with pytest.raises(ssl.SSLError):
        engine.agent(identity).connect()
    fresh = scripted_agent.Identity(
        node_id=WEB, key=other, certificate_pem="", generation=said.body["generation"]
    )
    fresh.certificate_pem = (await engine.node("web-1")).certificate_pem
    await engine.open(fresh)
    assert await engine.state("web-1") == ("ready", None)


async def test_a_node_that_claims_another_nodes_id_is_refused(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    await engine.join("web-2")
    agent = engine.agent(identity).connect()
    refused = await gateways.refusal(agent.greet(node_id=ids.NodeId("web-2")))
    assert refused.code == "invalid"
    assert await engine.state("web-2") == ("enrolled", None)


async def test_what_answers_as_another_node_is_not_ready(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = engine.agent(identity)
    agent.answers_as = ids.NodeId("web-2")
    await agent.open()
    await engine.settle()
    assert await engine.state("web-1") == ("needs-operator", "answers-as-another-node")
    assert agent.link.ended is not None
    assert engine.opened == []


async def test_what_holds_no_trust_key_is_not_ready_until_it_does(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity, trust_keys=())
    assert await engine.state("web-1") == ("enrolled", None)
    agent.trust_keys = scripted_agent.KEY_IDS
    engine.clock.advance(30)
    await agent.beat()
    await engine.settle()
    assert await engine.state("web-1") == ("ready", None)
    assert len(engine.opened) == 1


async def test_a_machine_newer_than_the_platform_is_told_so(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = engine.agent(identity).connect()
    refused = await gateways.refusal(agent.greet(version="99.0.0"))
    assert refused.code == "worker-newer"
    assert "99.0.0" in refused.detail
    assert product.VERSION in refused.detail


async def test_a_changed_host_name_or_address_changes_nothing(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity, instance="one-process", address="192.0.2.10")
    agent.link.close(reason="moved")
    await engine.turn()
    await engine.open(identity, instance="another-process", address="203.0.113.99")
    assert await engine.state("web-1") == ("ready", None)
    assert (await engine.node("web-1")).node_id == "web-1"


async def test_a_node_that_listens_runs_errands_and_holds_no_session(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1", url="https://192.0.2.10:8443")
    agent = engine.agent(identity).connect()
    assert (await gateways.refusal(agent.greet())).code == "invalid"
    command = await engine.agent(identity).errand()
    assert await command.renew() is not None
    assert (await gateways.refusal(command.beat())).code == "invalid"


# Silence, loss, engines that die (lessons F8).


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


# Heartbeats.


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


# Two engines on one store.


async def test_a_copy_is_refused_whichever_engine_it_comes_to(
    engine: gateways.Engine, store: contract.Store, store_kind: str, tmp_path: pathlib.Path
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(store, folder=other, engine_id="engine-b", beside=engine) as second:
        clone = second.agent(identity.copy(), address="198.51.100.4").connect()
        assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
        assert original.link.ended is None


async def test_a_session_moves_to_another_engine_and_the_former_one_ends(
    engine: gateways.Engine, store: contract.Store, store_kind: str, tmp_path: pathlib.Path
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    identity = await engine.join("web-1")
    former = await engine.open(identity, instance="one-process")
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(store, folder=other, engine_id="engine-b", beside=engine) as second:
        await second.open(identity, instance="one-process")
        assert (await gateways.ended(former.link)).reason == "replaced"
        await engine.turn()
        assert engine.gate.sessions.find(WEB) is None
        assert second.gate.sessions.find(WEB) is not None
        assert await engine.sweep() == []


async def test_an_engine_that_says_nothing_is_not_the_word_that_its_node_is_silent(
    engine: gateways.Engine,
    store: contract.Store,
    store_kind: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    monkeypatch.setattr("platform_server.gateway.elsewhere.ANSWER_SECONDS", 0.1)
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    engine.gate._cancels.pop(0)()  # engine-a does not hear the others
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(store, folder=other, engine_id="engine-b", beside=engine) as second:
        clone = second.agent(identity.copy()).connect()
        assert (await gateways.refusal(clone.greet())).code == "not-now"
    assert original.link.ended is None
