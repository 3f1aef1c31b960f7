"""Trust keys, statements and port certificates over a real store of either kind."""

import datetime
import functools
import pathlib
import random
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from platform_server.store import contract
from platform_server.trust import authority, keys, port_certificate, rotation, statements
from runtime_kit import clock as clock_kit
from tests.support import domain
from wire_protocol import statements as wire
from wire_protocol import trust

pytestmark = pytest.mark.timeout(120)
DAY = 86_400
_PEM = serialization.Encoding.PEM


@pytest.fixture
async def one(store: contract.Store, tmp_path: pathlib.Path) -> domain.Domain:
    return await domain.build(store, folder=tmp_path)


async def _answer(one: domain.Domain) -> wire.TrustAnswer:
    answered = await one.door.answer_trust(b"{}", address=None, request_id=domain.REQUEST)
    assert answered.status == 200
    return wire.parse_answer(answered.body)


async def test_a_statement_gets_a_new_number_only_when_it_says_something_new(
    one: domain.Domain,
) -> None:
    first = one.trust.published.statement
    for _ in range(3):
        one.clock.advance(DAY)
        await one.trust.publish(None)
        await one.trust.publish(statements.Facts())
    assert one.trust.published.statement == first
    await one.trust.publish(statements.Facts(enrollment_url="https://p.example.com:8444"))
    assert one.trust.published.statement.serial == first.serial + 1
    await one.trust.publish(None)
    assert one.trust.published.statement.enrollment_url == "https://p.example.com:8444"


async def test_a_machine_that_asks_now_and_then_follows_every_rotation_for_five_years(
    one: domain.Domain,
) -> None:
    held = trust.accept_first(await _answer(one), trust_key_ids=[])
    chance = random.Random(7)
    seen = set()
    for _ in range(5 * 365 // 5):
        one.clock.advance(5 * DAY)
        await one.trust.publish(None)
        if chance.random() < 0.3:
            held = trust.accept(held, await _answer(one), now=one.clock.now())
            assert held.keys_valid_at(one.clock.now())
            seen |= {key.key_id for key in held.statement.trust_keys}
    assert len(seen) == 1 + 5  # the first key, and one more each 335 days


async def test_a_machine_away_for_two_rotations_follows_the_chain(one: domain.Domain) -> None:
    held = trust.accept_first(await _answer(one), trust_key_ids=[])
    for _ in range(80):
        one.clock.advance(10 * DAY)
        await one.trust.publish(None)
    present = await _answer(one)
    old = {key.key_id for key in held.statement.trust_keys}
    new = {key.key_id for key in wire.parse_statement(present.present.content).trust_keys}
    assert not old & new
    followed = trust.accept(held, present, now=one.clock.now())
    assert {key.key_id for key in followed.statement.trust_keys} == new


async def test_the_old_key_stays_trusted_until_its_end_and_both_sign_meanwhile(
    one: domain.Domain,
) -> None:
    (old,) = one.trust.published.statement.trust_keys
    one.clock.advance(335 * DAY + 1)
    await one.trust.publish(None)
    both = one.trust.published
    assert both.statement.trust_keys[0].key_id == old.key_id
    assert len(both.signed.signatures) == len(both.statement.trust_keys) == 2
    one.clock.advance(30 * DAY)
    await one.trust.publish(None)
    assert old.key_id not in {key.key_id for key in one.trust.published.statement.trust_keys}
    assert await one.count("trust_keys") == 1


async def test_e6_a_join_in_every_phase_of_a_rotation_succeeds_and_survives_the_next(
    one: domain.Domain,
) -> None:
    held: list[trust.Held] = []
    for number, days in enumerate((0, 334, 2, 15, 14, 2)):
        one.clock.advance(days * DAY)
        await one.trust.publish(None)
        node_id = f"phase-{number}"
        ids_then = [key.key_id for key in one.trust.published.statement.trust_keys]
        token = await one.new_token(node_id)
        said = await one.knock(node_id, token)
        assert said.status == 201
        held.append(trust.accept_first(wire.parse_answer(said.raw), trust_key_ids=ids_then))
        present = await _answer(one)
        held = [trust.accept(each, present, now=one.clock.now()) for each in held]


async def test_a_join_token_made_before_a_rotation_still_names_a_key_that_signs(
    one: domain.Domain,
) -> None:
    one.clock.advance(334 * DAY)
    named = [key.key_id for key in one.trust.published.statement.trust_keys]
    token = await one.new_token("late-1", ttl_minutes=1440)
    one.clock.advance(DAY - 60)
    await one.trust.publish(None)
    one.clock.advance(30)
    await one.store.transact(
        functools.partial(rotation.rotate_now, keyring=one.keyring, now=one.clock.now())
    )
    await one.trust.follow()
    said = await one.knock("late-1", token)
    trust.accept_first(wire.parse_answer(said.raw), trust_key_ids=named)


async def test_rotating_by_hand_adds_keys_up_to_a_bound(one: domain.Domain) -> None:
    rotate = functools.partial(rotation.rotate_now, keyring=one.keyring)
    for _ in range(rotation.MOST_KEYS - 1):
        one.clock.advance(60)
        await one.store.transact(functools.partial(rotate, now=one.clock.now()))
    with pytest.raises(rotation.TooManyKeys):
        await one.store.transact(functools.partial(rotate, now=one.clock.now()))
    await one.trust.follow()
    assert len(one.trust.published.statement.trust_keys) == rotation.MOST_KEYS
    assert (
        len((await one.door.answer_trust(b"{}", address=None, request_id=domain.REQUEST)).body)
        < wire.MAX_ANSWER_BYTES
    )


async def test_of_keys_made_in_one_second_the_later_made_stands_last(one: domain.Domain) -> None:
    rotate = functools.partial(rotation.rotate_now, keyring=one.keyring)
    made = [key.key_id for key in one.trust.published.statement.trust_keys]
    for number in range(1, rotation.MOST_KEYS):
        now = one.clock.now() + datetime.timedelta(microseconds=number)
        published = await one.store.transact(functools.partial(rotate, now=now))
        present = [key.key_id for key in published.statement.trust_keys]
        assert present[:-1] == made
        made = present
    loaded = await one.store.transact(
        functools.partial(keys.load, keyring=one.keyring, now=one.clock.now())
    )
    assert [key.public.key_id for key in loaded] == made


async def test_a_second_engine_serves_the_same_keys_and_notices_a_rotation(
    store: contract.Store, one: domain.Domain, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    other = await domain.build(store, folder=folder, keyring=one.keyring, clock=one.clock)
    assert other.trust.published == one.trust.published
    one.clock.advance(336 * DAY)
    await one.trust.publish(None)
    assert await other.trust.follow()
    assert not await other.trust.follow()
    assert other.trust.published == one.trust.published


async def test_two_engines_that_start_at_once_found_one_platform(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    keyring = domain.new_keyring()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = await domain.build(store, folder=tmp_path / "first", keyring=keyring)
    second = await domain.build(store, folder=tmp_path / "second", keyring=keyring)
    assert first.trust.published.statement == second.trust.published.statement
    assert await first.count("trust_keys") == 1
    assert await first.count("trust_statements") == 1


async def test_private_halves_stand_sealed_and_do_not_open_with_another_master_key(
    store: contract.Store, one: domain.Domain
) -> None:
    row = await store.read(lambda tx: tx.fetch_one("SELECT sealed_private FROM trust_keys"))
    assert row is not None
    assert bytes(row["sealed_private"]).startswith(b"es1")
    with pytest.raises(Exception, match="not held here"):
        await store.read(
            functools.partial(keys.load, keyring=domain.new_keyring(), now=one.clock.now())
        )


async def test_trust_asked_for_before_the_start_is_a_fault_and_not_an_empty_answer(
    one: domain.Domain,
) -> None:
    blank = authority.Authority(
        one.store,
        keyring=one.keyring,
        clock=one.clock,
        identity=one.trust._identity,
        environment="test",
    )
    with pytest.raises(authority.NotStarted):
        _ = blank.answers


async def _port(
    one: domain.Domain, *names: str, moment: datetime.datetime | None = None
) -> port_certificate.PortIdentity:
    return await one.store.transact(
        functools.partial(
            port_certificate.ensure,
            port=port_certificate.ENROLLMENT,
            names=names or ("10.0.0.1", "localhost"),
            keyring=one.keyring,
            now=moment or one.clock.now(),
        )
    )


async def test_a_port_keeps_its_pin_when_names_change_and_when_its_end_nears(
    one: domain.Domain,
) -> None:
    first = await _port(one)
    assert await _port(one) == first
    renamed = await _port(one, "10.0.0.2", "p.example.com")
    assert renamed.pin == first.pin
    assert renamed.fingerprint != first.fingerprint
    one.clock.advance(336 * DAY)
    renewed = await _port(one, "10.0.0.2", "p.example.com")
    assert renewed.pin == first.pin
    assert renewed.not_after > renamed.not_after


async def test_a_ports_certificate_names_its_addresses_and_is_backdated_an_hour(
    one: domain.Domain,
) -> None:
    found = await _port(one, "10.0.0.1", "2001:db8::1", "P.example.com.")
    certificate = x509.load_pem_x509_certificate(found.certificate_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == [
        "10.0.0.1",
        "2001:db8::1",
    ]
    assert names.get_values_for_type(x509.DNSName) == ["P.example.com"]
    assert one.clock.now() - certificate.not_valid_before_utc == datetime.timedelta(hours=1)


async def test_engines_with_names_of_their_own_do_not_replace_each_others_certificate(
    one: domain.Domain,
) -> None:
    first, second = await _port(one, "10.0.0.1"), await _port(one, "10.0.0.2")
    for _ in range(3):
        assert (await _port(one, "10.0.0.1")).fingerprint == first.fingerprint
        assert (await _port(one, "10.0.0.2")).fingerprint == second.fingerprint
    assert first.pin == second.pin


async def test_a4_a_certificate_born_in_the_future_is_issued_again_with_the_same_key_and_told(
    one: domain.Domain,
) -> None:
    ahead = await _port(one, moment=one.clock.now() + datetime.timedelta(days=1))
    now = await _port(one)
    assert now.was_not_yet_valid
    assert now.pin == ahead.pin
    assert not (await _port(one)).was_not_yet_valid


async def test_e8_while_a_ports_key_is_turned_over_both_pins_are_told_and_then_the_new_one(
    one: domain.Domain,
) -> None:
    before = await _port(one)
    switch_at = one.clock.now() + datetime.timedelta(days=7)
    rotate = functools.partial(
        port_certificate.rotate, port=port_certificate.ENROLLMENT, keyring=one.keyring
    )
    pin = await one.store.transact(
        functools.partial(rotate, switch_at=switch_at, now=one.clock.now())
    )
    during = await _port(one)
    assert (during.pin, during.pins) == (before.pin, (before.pin, pin))
    with pytest.raises(port_certificate.RotationUnderWay):
        await one.store.transact(
            functools.partial(rotate, switch_at=switch_at, now=one.clock.now())
        )
    one.clock.advance(7 * DAY)
    after = await _port(one)
    assert (after.pin, after.pins) == (pin, (pin,))
    assert await _port(one) == after


async def test_a_switch_can_be_brought_forward_to_now(one: domain.Domain) -> None:
    await _port(one)
    rotate = functools.partial(
        port_certificate.rotate, port=port_certificate.ENROLLMENT, keyring=one.keyring
    )
    now = one.clock.now()
    later = await one.store.transact(
        functools.partial(rotate, switch_at=now + datetime.timedelta(days=7), now=now)
    )
    at_once = await one.store.transact(functools.partial(rotate, switch_at=now, now=now))
    assert at_once == later
    assert (await _port(one)).pins == (later,)


async def test_a_ports_certificate_serves_as_its_own_ca_file_under_strict_rules(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    clock = clock_kit.ManualClock(datetime.datetime.now(datetime.UTC))
    one = await domain.build(store, folder=tmp_path, clock=clock)
    found = await _port(one, "127.0.0.1")
    pem = tmp_path / "tls.pem"
    pem.write_bytes(found.pem_file_content())
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    client_side.load_verify_locations(cadata=found.certificate_pem)
    _shake_hands(client_side, server_side, name="127.0.0.1")


async def test_an_agent_that_anchors_on_trust_keys_takes_the_platforms_client_certificate(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    clock = clock_kit.ManualClock(datetime.datetime.now(datetime.UTC))
    one = await domain.build(store, folder=tmp_path, clock=clock)
    anchors = "".join(key.certificate_pem for key in one.trust.published.statement.trust_keys)
    machine = port_certificate.make_certificate(
        key := domain.new_key(), names=["127.0.0.1"], now=clock.now()
    )
    pem = tmp_path / "machine.pem"
    pem.write_bytes(port_certificate._pem_of(key) + machine.public_bytes(_PEM))
    agent = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    agent.load_cert_chain(pem)
    agent.verify_mode = ssl.CERT_REQUIRED
    agent.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    agent.load_verify_locations(cadata=anchors)
    platform = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    platform.load_verify_locations(cadata=machine.public_bytes(_PEM).decode())
    platform.load_cert_chain(tmp_path / "client.pem")
    _shake_hands(platform, agent, name="127.0.0.1")


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, *, name: str) -> None:
    """A whole handshake in memory, both sides verified; raises what either side raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = {near: False, far: False}
    for _ in range(20):
        for side in (near, far):
            if not done[side]:
                try:
                    side.do_handshake()
                    done[side] = True
                except ssl.SSLWantReadError:
                    continue
        if all(done.values()):
            return
    raise AssertionError("The handshake did not finish.")
