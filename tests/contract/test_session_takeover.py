"""Who may take the place of a session that stands, over either store (lessons C2, C4)."""

import logging
import pathlib
from collections.abc import AsyncIterator

import pytest

from platform_server.store import contract
from tests.support import gateways
from wire_protocol import ids, session

WEB = ids.NodeId("web-1")


@pytest.fixture
async def engine(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(store, folder=tmp_path) as built:
        yield built


async def _restored(engine: gateways.Engine) -> None:
    await engine.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO platform_values(name, value) VALUES ('epoch', '2') "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
    )
    await engine.domain.trust.publish(None)


async def test_a_copy_one_ahead_does_not_replace_a_session_that_answers(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    copy = identity.copy()
    copy.generation += 1
    clone = engine.agent(copy, address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
    await original.beat()
    assert original.link.ended is None


async def test_a_process_one_ahead_takes_the_place_of_a_session_that_is_silent(
    engine: gateways.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_server.gateway.rules.PING_SECONDS", 0.05)
    identity = await engine.join("web-1")
    former = await engine.open(identity)
    assert former.pair is not None
    former.pair.blackhole()
    identity.generation += 1
    fresh = await engine.open(identity, instance="after-a-reboot")
    assert fresh.asked == ["health"]
    assert len(engine.gate.sessions) == 1


async def test_after_a_restore_a_copy_that_is_ahead_does_not_replace_a_session_that_answers(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    await _restored(engine)
    await engine.store.transact(lambda tx: tx.execute("UPDATE nodes SET adopted_epoch = 0"))
    original = await engine.open(identity)
    copy = identity.copy()
    copy.generation = 40
    clone = engine.agent(copy, address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
    assert original.link.ended is None
    adopted = "SELECT adopted_epoch AS value FROM nodes WHERE node_id = 'web-1'"
    assert await engine.value(adopted) == 0


async def test_a_copy_one_ahead_is_refused_whichever_engine_it_comes_to(
    engine: gateways.Engine, store: contract.Store, store_kind: str, tmp_path: pathlib.Path
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    copy = identity.copy()
    copy.generation += 1
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(store, folder=other, engine_id="engine-b", beside=engine) as second:
        clone = second.agent(copy, address="198.51.100.4").connect()
        assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
        assert original.link.ended is None


@pytest.mark.parametrize("seconds", [40.0, 86_400.0])
async def test_an_engine_that_was_not_seen_of_late_still_asks_its_own_sessions(
    engine: gateways.Engine, seconds: float
) -> None:
    """A clock that was set, or a store that was locked: the row says the engine is gone."""
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    engine.clock.advance(seconds)
    clone = engine.agent(identity.copy(), address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
    command = await engine.agent(identity.copy(), address="198.51.100.4").errand()
    assert (await gateways.refusal(command.ask(session.Ask.LEAVE))).code == "not-now"
    assert original.link.ended is None


async def test_a_row_that_calls_an_open_session_lost_makes_place_for_nobody(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    await engine.store.transact(lambda tx: tx.execute("UPDATE sessions SET lost_at = 1"))
    clone = engine.agent(identity.copy(), address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
    assert original.link.ended is None


async def test_a_node_that_claims_a_later_epoch_is_told_of_once_an_hour_as_its_claim(
    engine: gateways.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    identity = await engine.join("web-1")
    with caplog.at_level(logging.INFO, logger="platform_server.gateway"):
        for _ in range(20):
            agent = engine.agent(identity).connect()
            assert (await gateways.refusal(agent.greet(epoch=9))).code == "not-now"
            engine.clock.advance(170)
            await engine.turn()
    told = [one for one in caplog.records if "restored elsewhere" in one.message]
    assert [one.levelname for one in told] == ["WARNING"]
    assert told[0].message.startswith("A node says ")
    engine.clock.advance(300)
    agent = engine.agent(identity).connect()
    with caplog.at_level(logging.INFO, logger="platform_server.gateway"):
        await gateways.refusal(agent.greet(epoch=9))
    assert len([one for one in caplog.records if "restored elsewhere" in one.message]) == 2


async def test_what_a_disk_holds_of_the_running_agent_replaces_no_session(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    shown = session.shown_instance(original.instance)
    clone = engine.agent(identity.copy(), instance=shown, address="198.51.100.4").connect()
    assert (await gateways.refusal(clone.greet())).code == "generation-conflict"
    assert original.link.ended is None


async def test_a_command_beside_the_running_agent_shows_the_hash_and_may_renew_and_leave(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    shown = session.shown_instance(original.instance)
    command = await engine.agent(identity, instance=shown).errand()
    await command.renew()
    assert original.link.ended is None
    await command.ask(session.Ask.LEAVE)
    assert (await engine.state("web-1"))[0] == "removed"


async def test_an_errand_that_shows_the_instance_itself_is_no_command_of_that_machine(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    command = await engine.agent(identity, instance=original.instance).errand()
    assert (await gateways.refusal(command.ask(session.Ask.LEAVE))).code == "not-now"


async def test_a_clone_does_not_renew_while_the_original_runs(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    original = await engine.open(identity)
    clone = await engine.agent(identity.copy(), address="198.51.100.4").errand()
    refused = await gateways.refusal(clone.renew())
    assert refused.code == "not-now"
    assert "192.0.2.10" in refused.detail
    assert (await engine.node("web-1")).certificate_pem == identity.certificate_pem
    original.link.close(reason="agent-stops")
    await engine.turn()
    command = await engine.agent(identity).errand()
    await command.renew()


async def test_results_of_orders_are_taken_so_often_a_minute_of_one_node(
    engine: gateways.Engine,
) -> None:
    taken: list[bytes] = []

    async def take(_node_id: ids.NodeId, body: bytes) -> bytes:
        taken.append(body)
        return b""

    engine.gate.further = {session.Ask.RESULT: take}
    agent = await engine.open(await engine.join("web-1"))
    other = await engine.open(await engine.join("web-2"))
    for _ in range(300):
        await agent.ask(session.Ask.RESULT)
    assert (await gateways.refusal(agent.ask(session.Ask.RESULT))).code == "not-now"
    assert len(taken) == 300
    await other.ask(session.Ask.RESULT)
    engine.clock.advance(60)
    await agent.ask(session.Ask.RESULT)


async def test_a_session_without_a_heartbeat_for_three_intervals_ends_whatever_else_it_sends(
    engine: gateways.Engine,
) -> None:
    mute = await engine.open(await engine.join("web-1"))
    beating = await engine.open(await engine.join("web-2"))
    for _ in range(4):
        engine.clock.advance(22)
        await mute.ask(session.Ask.TRUST)
        await beating.beat()
        await engine.turn()
        assert mute.link.ended is None
    engine.clock.advance(2)
    await mute.ask(session.Ask.TRUST)
    await engine.turn()
    assert (await gateways.ended(mute.link)).reason == "silent"
    assert beating.link.ended is None


async def test_a_node_that_opens_session_upon_session_writes_so_many_a_minute(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    for _ in range(30):
        await engine.open(identity, instance="one-process")
    agent = engine.agent(identity, instance="one-process").connect()
    await agent.greet()
    before = (await engine.node("web-1")).generation
    refused = await gateways.refusal(agent.ask(session.Ask.CONFIRM, b'{"generation":32}'))
    assert refused.code == "not-now"
    assert (await engine.node("web-1")).generation == before
    engine.clock.advance(60)
    await engine.open(identity, instance="one-process")
