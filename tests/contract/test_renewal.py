"""Renewing certificate and key over either store: what is believed, from when (lessons D2, E4)."""

import pathlib
import ssl
from collections.abc import AsyncIterator

import pytest

from platform_server.nodes import renewal
from platform_server.store import contract
from tests.support import domain, gateways, scripted_agent
from wire_protocol import ids, session
from wire_protocol import renewal as wire

WEB = ids.NodeId("web-1")


@pytest.fixture
async def engine(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[gateways.Engine]:
    async with gateways.engine(store, folder=tmp_path) as built:
        yield built


async def row(engine: gateways.Engine) -> tuple[str, str | None, str]:
    """Present and next certificate, and the pin of the present."""
    found = await engine.store.read(
        lambda tx: tx.fetch_one(
            "SELECT certificate_sha256, next_certificate_sha256, pin FROM nodes "
            "WHERE node_id = 'web-1'"
        )
    )
    assert found is not None
    return found["certificate_sha256"], found["next_certificate_sha256"], found["pin"]


@pytest.mark.parametrize("with_key", [False, True])
async def test_the_next_certificate_counts_once_it_was_seen_in_use(
    engine: gateways.Engine, *, with_key: bool
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity, instance="one-process")
    before = (await engine.node("web-1")).generation
    fresh = await agent.renew(key=domain.new_key() if with_key else None)
    assert await row(engine) == (identity.sha256, fresh.sha256, identity.pin)
    assert (await engine.node("web-1")).generation == before  # renewing raises nothing by itself
    again = await engine.open(fresh, instance="one-process")
    assert await row(engine) == (fresh.sha256, None, fresh.pin)
    assert await engine.state("web-1") == ("ready", None)
    kind = renewal.REKEYED if with_key else renewal.RENEWED
    assert (await engine.kinds()).count(kind) == 1
    assert await engine.domain.count("action_log", f"action = '{kind}'") == 1
    assert again.link.ended is None


@pytest.mark.parametrize("with_key", [False, True])
async def test_twenty_lost_answers_to_a_renewal_lock_nobody_out(
    engine: gateways.Engine, *, with_key: bool
) -> None:
    identity = await engine.join("web-1")
    fresh, request = identity.renewed(key=domain.new_key() if with_key else None)
    for _ in range(20):
        agent = await engine.open(identity, instance="one-process")  # the old one, every time
        asking = agent.link.ask(session.Ask.RENEW, request.to_bytes(), timeout_s=5)
        await engine.answered(asking)
        assert agent.pair is not None
        agent.pair.cut()
        engine.clock.advance(20)
        await engine.turn()
        assert (await row(engine))[0] == identity.sha256
    fresh.generation = identity.generation
    await engine.open(fresh, instance="one-process")
    assert (await row(engine))[0] == fresh.sha256
    assert (await engine.kinds()).count(renewal.BEGUN) == 1  # the same question, the same answer


async def test_a_session_renews_in_place_a_dozen_times_and_lives_on(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity)
    for _ in range(12):
        engine.clock.advance(40)
        await engine.turn()
        fresh = await agent.renew()
        await agent.beat()
    assert agent.link.ended is None
    assert (await row(engine))[1] == fresh.sha256
    fresh.generation = identity.generation
    await engine.open(fresh, instance=agent.instance)
    assert (await row(engine))[0] == fresh.sha256


async def test_the_next_certificate_is_known_to_the_port_before_the_answer_leaves(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    fresh = await (await engine.open(identity)).renew(key=domain.new_key())
    assert engine.gate._anchors.of_leaf(fresh.der, pin=fresh.pin)
    assert engine.gate._anchors.of_leaf(identity.der, pin=identity.pin)


async def test_another_engine_knows_it_too_after_its_next_look(
    engine: gateways.Engine, store: contract.Store, store_kind: str, tmp_path: pathlib.Path
) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
    identity = await engine.join("web-1")
    other = tmp_path / "other"
    other.mkdir()
    async with gateways.engine(store, folder=other, engine_id="engine-b", beside=engine) as second:
        agent = await engine.open(identity, instance="one-process")
        fresh = await agent.renew(key=domain.new_key())
        await second.turn()
        fresh.generation = identity.generation
        await second.open(fresh, instance="one-process")
        assert (await row(engine))[0] == fresh.sha256
        assert (await gateways.ended(agent.link)).reason in ("replaced", "node-removed")


async def test_the_replaced_key_opens_nothing_any_more(engine: gateways.Engine) -> None:
    identity = await engine.join("web-1")
    agent = await engine.open(identity, instance="one-process")
    fresh = await agent.renew(key=domain.new_key())
    fresh.generation = identity.generation
    await engine.open(fresh, instance="one-process")
    await engine.turn()
    old = engine.agent(identity, address="198.51.100.4").connect()
    for purpose in session.Purpose:
        old = engine.agent(identity, address="198.51.100.4").connect()
        refused = await gateways.refusal(old.greet(purpose=purpose, generation=99))
        assert refused.code == "generation-conflict"
    newest = engine.agent(fresh, instance="one-process").connect()
    await newest.greet()
    assert newest.welcome is not None


async def test_after_two_renewals_the_first_certificate_is_a_strangers(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    present = identity
    for _ in range(2):
        agent = await engine.open(present, instance="one-process")
        fresh = await agent.renew(key=domain.new_key())
        fresh.generation = present.generation
        present = fresh
    await engine.open(present, instance="one-process")
    await engine.turn()
    with pytest.raises(ssl.SSLError):
        engine.agent(identity).connect()


def _without_signature(
    _identity: scripted_agent.Identity, _other: scripted_agent.Identity
) -> wire.Request:
    return wire.Request(certificate_pem=domain.new_certificate())


def _signed_by_the_new_key(
    _identity: scripted_agent.Identity, _other: scripted_agent.Identity
) -> wire.Request:
    key = domain.new_key()
    certificate = domain.certificate_of(key)
    signature = wire.sign(key, ssl.PEM_cert_to_DER_cert(certificate))
    return wire.Request(certificate_pem=certificate, signature=signature)


def _signed_for_another_certificate(
    identity: scripted_agent.Identity, _other: scripted_agent.Identity
) -> wire.Request:
    _, request = identity.renewed(key=domain.new_key())
    return wire.Request(certificate_pem=domain.new_certificate(), signature=request.signature)


def _of_another_node(
    identity: scripted_agent.Identity, other: scripted_agent.Identity
) -> wire.Request:
    signature = wire.sign(identity.key, other.der)
    return wire.Request(certificate_pem=other.certificate_pem, signature=signature)


def _not_signed_by_itself(
    identity: scripted_agent.Identity, _other: scripted_agent.Identity
) -> wire.Request:
    made = domain.certificate_of(identity.key, signed_by=domain.new_key())
    return wire.Request(certificate_pem=made)


def _no_certificate(
    _identity: scripted_agent.Identity, _other: scripted_agent.Identity
) -> wire.Request:
    return wire.Request(certificate_pem="-----BEGIN CERTIFICATE-----\nAA\n")


REFUSED = {
    "another key without a signature": _without_signature,
    "another key signed by itself alone": _signed_by_the_new_key,
    "another key with the signature under another certificate": _signed_for_another_certificate,
    "the key of another node": _of_another_node,
    "a certificate that its own key has not signed": _not_signed_by_itself,
    "something that is no certificate": _no_certificate,
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_renewal_is_refused_that_hands_in(engine: gateways.Engine, case: str) -> None:
    identity, other = await engine.join("web-1"), await engine.join("web-2")
    agent = await engine.open(identity)
    request = REFUSED[case](identity, other)
    refused = await gateways.refusal(agent.ask(session.Ask.RENEW, request.to_bytes()))
    assert refused.code == "invalid"
    assert await row(engine) == (identity.sha256, None, identity.pin)
    assert agent.link.ended is None


async def test_the_next_key_of_another_node_is_taken_as_well(engine: gateways.Engine) -> None:
    first, second = await engine.join("web-1"), await engine.join("web-2")
    handed_in = await (await engine.open(second)).renew(key=domain.new_key())
    agent = await engine.open(first)
    request = wire.Request(
        certificate_pem=handed_in.certificate_pem, signature=wire.sign(first.key, handed_in.der)
    )
    assert (await gateways.refusal(agent.ask("renew", request.to_bytes()))).code == "invalid"


async def test_renewals_without_end_are_put_off(engine: gateways.Engine) -> None:
    agent = await engine.open(await engine.join("web-1"))
    for _ in range(12):
        await agent.renew()
    _, request = agent.identity.renewed()
    refused = await gateways.refusal(agent.ask(session.Ask.RENEW, request.to_bytes()))
    assert refused.code == "not-now"
    engine.clock.advance(60)
    await agent.renew()


async def test_a_removed_node_renews_nothing(engine: gateways.Engine) -> None:
    agent = await engine.open(await engine.join("web-1"))
    await engine.domain.remove("web-1")
    _, request = agent.identity.renewed()
    refused = await gateways.refusal(agent.ask(session.Ask.RENEW, request.to_bytes()))
    assert refused.code == "invalid"


async def test_a_re_enrollment_forgets_what_was_handed_in_for_the_old_key(
    engine: gateways.Engine,
) -> None:
    agent = await engine.open(await engine.join("web-1"))
    fresh = await agent.renew(key=domain.new_key())
    token = await engine.domain.new_token("web-1", replace=True)
    certificate = domain.new_certificate()
    assert (await engine.domain.knock("web-1", token, certificate=certificate)).status == 201
    await engine.turn()
    assert (await row(engine))[1] is None
    with pytest.raises(ssl.SSLError):
        engine.agent(fresh).connect()


async def test_after_a_restore_a_node_that_is_ahead_comes_back_by_itself_once(
    engine: gateways.Engine,
) -> None:
    identity = await engine.join("web-1")
    await engine.open(identity, instance="one-process")
    identity.generation = 40  # the store is an older one: it has seen less than the node
    agent = engine.agent(identity, instance="one-process").connect()
    assert (await gateways.refusal(agent.greet())).code == "generation-conflict"
    await engine.store.transact(
        lambda tx: tx.execute(
            "INSERT INTO platform_values(name, value) VALUES ('epoch', '2') "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
    )
    await engine.domain.trust.publish(None)
    back = await engine.open(identity, instance="one-process")
    assert back.welcome is not None
    assert (back.welcome.epoch, back.welcome.generation) == (2, 41)
    assert (await engine.node("web-1")).generation == 41
    identity.generation = 90
    copy = engine.agent(identity, instance="another").connect()
    assert (await gateways.refusal(copy.greet())).code == "generation-conflict"
