"""Two machines with one identity, over either store (lessons C2, C4, E18)."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest

from platform_server.nodes import conflicts
from platform_server.store import contract
from tests.support import gateways
from wire_protocol import ids, session

WEB = ids.NodeId("web-1")


@pytest.fixture
async def engine(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(store, folder=tmp_path) as built:
        yield built


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
    original = await engine.open(identity)
    copy = identity.copy()
    for number in range(60):
        clone = engine.agent(copy, address=f"198.51.100.{number}").connect()
        await gateways.refusal(clone.greet())
        engine.clock.advance(11)
        await original.beat()
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
