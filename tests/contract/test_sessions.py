"""Sessions over either store: who is let in, who is refused, and what ends one.

The machine's end is a script over a link in memory; the store is real.
"""

import asyncio
import pathlib
import ssl
from collections.abc import AsyncIterator

import pytest

from platform_server.store import contract
from tests.support import domain, gateways, scripted_agent
from wire_protocol import ids, product

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
    agent = await engine.open(identity)
    await engine.domain.remove("web-1")
    await agent.beat()
    await engine.flush()  # its last word came in late
    await engine.domain.allow("web-1")
    assert await engine.domain.count("heartbeats") == 0
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
