"""Tokens and enrollment over a real store of either kind, without a server."""

import datetime
import functools
import json
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from platform_server.enrollment import attempts, limiter
from platform_server.store import contract
from platform_server.tokens import issue
from tests.support import domain
from wire_protocol import enrollment_token, problems, product, statements, trust

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def one(store: contract.Store, tmp_path: pathlib.Path) -> domain.Domain:
    return await domain.build(store, folder=tmp_path)


async def _row(one: domain.Domain, sql: str, *values: object) -> contract.Row:
    row = await one.store.read(lambda tx: tx.fetch_one(sql, *values))
    assert row is not None
    return row


async def test_a_good_token_makes_a_node_and_gives_the_signed_trust_set(
    one: domain.Domain,
) -> None:
    token = await one.new_token("web-1", labels={"zone": "a"})
    said = await one.knock("web-1", token, reported_labels={"cpu": "arm"})
    assert said.status == 201
    assert said.body["node_id"] == "web-1"
    assert said.body["agent_id"] == "agent-web-1"
    assert said.body["generation"] == 1
    assert "reachable" not in said.body
    held = trust.accept_first(statements.parse_answer(said.raw), trust_key_ids=[])
    assert held.keys_valid_at(one.clock.now())
    row = await _row(one, "SELECT state, labels, reported_labels, connectivity FROM nodes")
    assert (row["state"], row["connectivity"]) == ("enrolled", "dial-out")
    assert json.loads(row["labels"]) == {"zone": "a"}
    assert json.loads(row["reported_labels"]) == {"cpu": "arm"}


async def test_the_store_keeps_the_hash_of_a_token_and_nothing_more_of_it(
    one: domain.Domain,
) -> None:
    issued = await one.new_token("web-1")
    row = await _row(one, "SELECT token_hash, enrollment_id FROM enrollments")
    assert bytes(row["token_hash"]) == issued.token.stored_hash()
    assert row["enrollment_id"] == issued.token.enrollment_id
    everything = repr(issued) + repr(issued.enrollment)
    assert issued.token.secret_hex not in everything
    assert issued.token.stored_hash().hex() not in everything


async def test_the_same_token_and_key_get_the_same_node_again_also_after_the_token_expired(
    one: domain.Domain,
) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    first = await one.knock("web-1", token, certificate=certificate)
    one.clock.advance(7200)
    again = await one.knock("web-1", token, certificate=certificate)
    assert (first.status, again.status) == (201, 200)
    assert first.raw == again.raw
    assert await one.count("nodes") == 1
    assert [entry[0] for entry in await one.audit()] == ["enrolled"]


async def test_a_repeat_gets_the_present_statement(one: domain.Domain) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    first = await one.knock("web-1", token, certificate=certificate)
    one.clock.advance(336 * 86_400)
    await one.trust.publish(None)
    again = await one.knock("web-1", token, certificate=certificate)
    assert again.status == 200
    assert len(again.body["trust_keys"]) == len(first.body["trust_keys"]) + 1


async def test_a_repeat_with_another_key_is_refused(one: domain.Domain) -> None:
    token = await one.new_token("web-1")
    await one.knock("web-1", token)
    assert (await one.knock("web-1", token)).status == 403
    assert (await one.audit())[0] == ("refused", "already-used", 1)


async def test_a_repeat_takes_over_url_and_version_only_until_the_node_was_ready(
    one: domain.Domain,
) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    await one.knock("web-1", token, certificate=certificate, url="https://10.0.0.1:8443")
    await one.knock(
        "web-1", token, certificate=certificate, url="https://10.0.0.2:8443", version="0.0.9"
    )
    row = await _row(one, "SELECT url, version FROM nodes")
    assert (row["url"], row["version"]) == ("https://10.0.0.2:8443", "0.0.9")
    await one.mark_ready("web-1")
    late = await one.knock(
        "web-1", token, certificate=certificate, url="https://10.0.0.3:8443", version="0.0.8"
    )
    row = await _row(one, "SELECT url, version FROM nodes")
    assert late.status == 200
    assert (row["url"], row["version"]) == ("https://10.0.0.2:8443", "0.0.9")


async def _unknown(one: domain.Domain) -> domain.Said:
    return await one.knock("web-1", enrollment_token.new().text())


async def _wrong_secret(one: domain.Domain) -> domain.Said:
    issued = await one.new_token("web-1")
    other = enrollment_token.EnrollmentToken(
        enrollment_id=issued.token.enrollment_id, secret_hex=enrollment_token.new().secret_hex
    )
    return await one.knock("web-1", other.text())


async def _wrong_node(one: domain.Domain) -> domain.Said:
    return await one.knock("web-2", await one.new_token("web-1"))


async def _expired(one: domain.Domain) -> domain.Said:
    token = await one.new_token("web-1", ttl_minutes=1)
    one.clock.advance(60)
    return await one.knock("web-1", token)


async def _already_used(one: domain.Domain) -> domain.Said:
    token = await one.new_token("web-1")
    await one.knock("web-1", token)
    return await one.knock("web-1", token)


async def _replaced(one: domain.Domain) -> domain.Said:
    token = await one.new_token("web-1")
    await one.new_token("web-1", replace=True)
    return await one.knock("web-1", token)


async def _revoked(one: domain.Domain) -> domain.Said:
    await one.knock("web-1", await one.new_token("web-1"))
    again = await one.new_token("web-1", replace=True)
    await one.remove("web-1")
    return await one.knock("web-1", again)


async def _source(one: domain.Domain) -> domain.Said:
    token = await one.new_token("web-1", sources=["198.51.100.0/24"])
    return await one.knock("web-1", token, address="192.0.2.1")


async def _bad_signature(one: domain.Domain) -> domain.Said:
    forged = domain.certificate_of(domain.new_key(), signed_by=domain.new_key())
    return await one.knock("web-1", await one.new_token("web-1"), certificate=forged)


async def _key_in_use(one: domain.Domain) -> domain.Said:
    certificate = domain.new_certificate()
    await one.knock("web-1", await one.new_token("web-1"), certificate=certificate)
    await one.mark_ready("web-1")
    return await one.knock("web-2", await one.new_token("web-2"), certificate=certificate)


async def _removed(one: domain.Domain) -> domain.Said:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    await one.knock("web-1", token, certificate=certificate)
    await one.remove("web-1")
    return await one.knock("web-1", token, certificate=certificate)


async def _key_changed(one: domain.Domain) -> domain.Said:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    await one.knock("web-1", token, certificate=certificate)
    await one.knock("web-1", await one.new_token("web-1", replace=True))
    return await one.knock("web-1", token, certificate=certificate)


async def _phase(one: domain.Domain) -> domain.Said:
    token = await one.new_token("web-1")
    body = {"node_id": "web-1", "token": token.token.text(), "phase": "joining", "detail": "x"}
    return await one.send(json.dumps(body).encode())


REASONS: dict[str, Callable[[domain.Domain], Awaitable[domain.Said]]] = {
    "unknown-token": _unknown,
    "wrong-secret": _wrong_secret,
    "wrong-node": _wrong_node,
    "expired": _expired,
    "already-used": _already_used,
    "replaced": _replaced,
    "revoked": _revoked,
    "source-address": _source,
    "bad-certificate-signature": _bad_signature,
    "key-in-use": _key_in_use,
    "node-removed": _removed,
    "key-changed": _key_changed,
}


@pytest.mark.parametrize(("reason", "provoke"), REASONS.items(), ids=REASONS.keys())
async def test_every_refusal_is_the_same_answer_and_its_reason_stands_in_the_audit_alone(
    one: domain.Domain,
    reason: str,
    provoke: Callable[[domain.Domain], Awaitable[domain.Said]],
) -> None:
    said = await provoke(one)
    standard = await _unknown(one)
    assert said.status == 403
    assert said.raw == standard.raw
    assert said.body["title"] == "Enrollment refused."
    assert said.body["code"] == "enrollment-refused"
    assert (await one.audit())[-1 if reason == "unknown-token" else 1][1] == reason


async def test_a_phase_report_without_an_operation_is_refused_in_the_same_words(
    one: domain.Domain,
) -> None:
    assert (await _phase(one)).raw == (await _unknown(one)).raw


async def test_configured_nodes_and_the_platforms_own_id_cannot_be_taken(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    plain = await domain.build(store, folder=tmp_path)
    tokens = {name: await plain.new_token(name) for name in ("db-1", "local-2")}
    settings = domain.settings_of(
        platform={"node_id": "local-2"},
        nodes={"db-1": {"url": "https://10.0.0.9:8443", "pin": "sha256:" + "a" * 64}},
    )
    one = await domain.build(
        store, folder=tmp_path, settings=settings, keyring=plain.keyring, clock=plain.clock
    )
    for name, token in tokens.items():
        assert (await one.knock(name, token)).status == 403
        assert (await one.audit())[0][1] == "node-configured"
        with pytest.raises(issue.CannotIssue) as refused:
            await one.new_token(name.upper() + ".", replace=True)
        assert refused.value.code == "node-exists"


async def _field(one: domain.Domain, field: str, **change: Any) -> domain.Said:
    token = await one.new_token("web-1")
    certificate = domain.new_certificate()
    body: dict[str, Any] = {
        "node_id": "web-1",
        "token": token.token.text(),
        "certificate_pem": certificate,
        "version": product.VERSION,
    }
    refused = await one.send(json.dumps({**body, **change}).encode())
    assert refused.status == 422
    assert refused.body["field"].split(".")[0] == field
    assert (await one.audit())[0] == ("invalid", field, 1)
    fine = await one.send(json.dumps(body).encode())
    assert fine.status == 201
    return refused


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "a node id with a blank": ("node_id", {"node_id": "web 1"}),
    "a node id that is a number": ("node_id", {"node_id": 7}),
    "a token with a typing error": ("token", {"token": "ent_" + "0" * 89}),
    "an RSA certificate": (
        "certificate_pem",
        {"certificate_pem": domain.certificate_of(rsa.generate_private_key(65537, 2048))},
    ),
    "a P-384 certificate": (
        "certificate_pem",
        {"certificate_pem": domain.certificate_of(ec.generate_private_key(ec.SECP384R1()))},
    ),
    "two certificates": (
        "certificate_pem",
        {"certificate_pem": domain.new_certificate() + domain.new_certificate()},
    ),
    "no version": ("version", {"version": ""}),
    "a plain http address": ("url", {"url": "http://10.0.0.1:8443"}),
    "a path in the address": ("url", {"url": "https://10.0.0.1:8443/x"}),
    "a port below 1024": ("url", {"url": "https://10.0.0.1:443"}),
    "a loopback address from elsewhere": ("url", {"url": "https://127.0.0.1:8443"}),
    "the metadata service": ("url", {"url": "https://169.254.169.254:8443"}),
    "17 reported labels": (
        "reported_labels",
        {"reported_labels": {f"k{n}": "v" for n in range(17)}},
    ),
    "a limit of uses (B16)": ("max_uses", {"max_uses": 5}),
}


@pytest.mark.parametrize(("field", "change"), SHAPES.values(), ids=SHAPES.keys())
async def test_b4_a_misshapen_request_names_its_field_and_spends_nothing(
    one: domain.Domain, field: str, change: dict[str, Any]
) -> None:
    if field == "max_uses":
        token = await one.new_token("web-1")
        assert (await one.knock("web-1", token, **change)).status == 422
        assert (await one.knock("web-1", token)).status == 201
        return
    await _field(one, field, **change)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"{" * 60_000, b'{"a":"\\u0000"}']
)
async def test_a_body_that_is_no_request_is_refused_without_a_fault(
    one: domain.Domain, body: bytes
) -> None:
    said = await one.send(body)
    assert said.status in (400, 422)
    assert (await one.audit())[0][0] == "invalid"


async def test_a_body_beyond_64_kib_is_413(one: domain.Domain) -> None:
    assert (await one.send(b"x" * 65_537)).status == 413


async def test_an_invalid_request_leaves_no_word_of_its_own_in_the_audit(
    one: domain.Domain,
) -> None:
    secret = "ent_do-not-keep-me"
    await one.send(json.dumps({"node_id": secret, secret: 1, "version": secret}).encode())
    rows = await one.store.read(
        lambda tx: tx.fetch_all("SELECT reason, node_id, version FROM enrollment_attempts")
    )
    assert [(row["node_id"], row["version"]) for row in rows] == [(None, None)]
    assert secret not in rows[0]["reason"]


async def test_a_machine_newer_than_the_platform_is_told_so_and_its_token_stays_good(
    one: domain.Domain,
) -> None:
    token = await one.new_token("web-1")
    for _ in range(3):
        said = await one.knock("web-1", token, version="99.0.0")
        assert said.status == problems.CODES["worker-newer"].status
        assert said.body["code"] == "worker-newer"
        assert "99.0.0" in said.body["detail"]
        assert product.VERSION in said.body["detail"]
    assert (await one.audit())[0][0] == "worker-newer"
    assert (await one.audit())[0][2] == 3
    assert await one.count("action_log", "action = 'node.worker-newer'") == 1
    assert (await one.knock("web-1", token)).status == 201


async def test_a_stranger_with_a_newer_version_learns_nothing(one: domain.Domain) -> None:
    said = await one.knock("web-1", enrollment_token.new().text(), version="99.0.0")
    assert said.raw == (await _unknown(one)).raw


async def test_b6_an_expired_token_and_an_unknown_one_are_told_the_same(
    one: domain.Domain,
) -> None:
    assert (await _expired(one)).raw == (await _unknown(one)).raw
    assert {reason for _, reason, _ in await one.audit()} == {"expired", "unknown-token"}


async def test_b10_a_removed_node_does_not_bring_its_token_back(one: domain.Domain) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    await one.knock("web-1", token, certificate=certificate)
    await one.remove("web-1")
    assert (await one.knock("web-1", token)).status == 403
    assert (await one.audit())[0][1] == "already-used"
    await one.allow("web-1")
    assert (await one.knock("web-1", token)).status == 403
    assert (await one.knock("web-1", token, certificate=certificate)).status == 403


async def test_b12_a_token_minted_before_a_removal_opens_nothing_even_after_allow(
    one: domain.Domain,
) -> None:
    await one.knock("web-1", await one.new_token("web-1"))
    before = await one.new_token("web-1", replace=True)
    await one.remove("web-1")
    with pytest.raises(issue.CannotIssue) as refused:
        await one.new_token("web-1")
    assert refused.value.code == "node-removed"
    assert (await one.knock("web-1", before)).status == 403
    await one.allow("web-1")
    assert (await one.knock("web-1", before)).status == 403
    assert (await one.knock("web-1", await one.new_token("web-1"))).status == 201


async def test_e14_a_node_can_be_removed_and_allowed_five_times_in_a_row(
    one: domain.Domain,
) -> None:
    for _ in range(5):
        assert (await one.knock("web-1", await one.new_token("web-1"))).status == 201
        await one.remove("web-1")
        await one.allow("web-1")


async def test_a_reenrollment_keeps_the_old_key_until_the_new_one_is_there_then_ends_it(
    one: domain.Domain,
) -> None:
    old, new = domain.new_certificate(), domain.new_certificate()
    await one.knock("web-1", await one.new_token("web-1", labels={"a": "1"}), certificate=old)
    await one.mark_ready("web-1")
    with pytest.raises(issue.CannotIssue):
        await one.new_token("web-1")
    again = await one.new_token("web-1", replace=True)
    before = await _row(one, "SELECT pin, state FROM nodes")
    said = await one.knock("web-1", again, certificate=new)
    after = await _row(one, "SELECT pin, state, generation, labels, first_ready_at FROM nodes")
    assert (said.status, said.body["generation"]) == (201, 2)
    assert before["state"] == "ready"
    assert after["pin"] != before["pin"]
    assert (after["state"], after["first_ready_at"]) == ("enrolled", None)
    assert json.loads(after["labels"]) == {"a": "1"}
    assert await one.count("action_log", "action = 'node.key-changed'") == 1


async def test_one_unused_enrollment_stands_in_the_way_of_the_next_until_it_expires(
    one: domain.Domain,
) -> None:
    first = await one.new_token("web-1", ttl_minutes=5)
    with pytest.raises(issue.CannotIssue) as refused:
        await one.new_token("web-1")
    assert refused.value.code == "enrollment-pending"
    one.clock.advance(300)
    second = await one.new_token("web-1")
    assert await one.count("enrollments", "state = 'expired'") == 1
    assert (await one.knock("web-1", first)).status == 403
    assert (await one.knock("web-1", second)).status == 201


async def test_a_token_bound_to_networks_is_redeemed_from_there_alone(
    one: domain.Domain,
) -> None:
    token = await one.new_token("web-1", sources=["198.51.100.0/24", "2001:db8::/32"])
    for outside in ("192.0.2.1", "2001:db9::1", None, "nonsense"):
        assert (await one.knock("web-1", token, address=outside)).status == 403
    assert (await one.knock("web-1", token, address="::ffff:198.51.100.9")).status == 201


async def test_c6_a_node_id_is_the_same_in_capitals_and_with_a_trailing_dot(
    one: domain.Domain,
) -> None:
    token, certificate = await one.new_token("W1."), domain.new_certificate()
    assert (await one.knock("w1", token, certificate=certificate)).status == 201
    again = await one.knock("W1.", token, certificate=certificate)
    assert (again.status, again.body["node_id"]) == (200, "w1")


async def test_b14_an_enrollment_always_has_an_end_within_a_day(one: domain.Domain) -> None:
    issued = await one.new_token("web-1", ttl_minutes=1440)
    assert issued.enrollment.expires_at - one.clock.now() == datetime.timedelta(days=1)


async def test_a_key_that_was_never_ready_as_one_node_may_become_another(
    one: domain.Domain,
) -> None:
    certificate = domain.new_certificate()
    await one.knock("web-1", await one.new_token("web-1"), certificate=certificate)
    said = await one.knock("web-2", await one.new_token("web-2"), certificate=certificate)
    assert said.status == 201


async def test_failures_are_limited_but_a_good_token_never_is(one: domain.Domain) -> None:
    good = await one.new_token("web-1")
    said = [await _unknown(one) for _ in range(35)]
    assert [one_said.status for one_said in said] == [403] * 30 + [429] * 5
    assert said[-1].retry_after == said[-1].body["retry_after"] == 60
    assert (await one.audit())[0] == ("refused", "unknown-token", 30)
    assert (await one.knock("web-1", good)).status == 201


async def test_guessing_at_one_token_id_is_stopped_after_ten(one: domain.Domain) -> None:
    issued = await one.new_token("web-1")
    said = []
    for n in range(12):
        guess = enrollment_token.EnrollmentToken(
            enrollment_id=issued.token.enrollment_id,
            secret_hex=enrollment_token.new().secret_hex,
        )
        said.append(await one.knock("web-1", guess.text(), address=f"192.0.2.{n}"))
    assert [one_said.status for one_said in said] == [403] * 10 + [429] * 2
    assert (await one.knock("web-1", issued)).status == 201


async def test_all_addresses_together_are_stopped_at_the_ceiling(one: domain.Domain) -> None:
    statuses = []
    for n in range(125):
        said = await one.knock("web-1", enrollment_token.new().text(), address=f"198.51.100.{n}")
        statuses.append(said.status)
    assert statuses == [403] * 120 + [429] * 5


async def test_the_audit_keeps_500_refused_entries_and_every_enrolled_one(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(
        store,
        folder=tmp_path,
        cap=attempts.Cap(entries=10, days=30),
        limits=limiter.Limits(per_minute=1000, per_address=1000, per_token=1000),
    )
    assert (await one.knock("web-0", await one.new_token("web-0"))).status == 201
    for n in range(25):
        await one.knock(f"guess-{n}", enrollment_token.new().text())
    assert await one.count("enrollment_attempts", "outcome = 'refused'") == 10
    assert await one.count("enrollment_attempts", "outcome = 'enrolled'") == 1
    row = await _row(
        one, "SELECT MIN(node_id) AS oldest FROM enrollment_attempts WHERE outcome = 'refused'"
    )
    assert row["oldest"] == "guess-15"


async def test_refusals_older_than_30_days_are_forgotten(one: domain.Domain) -> None:
    await _unknown(one)
    one.clock.advance(29 * 86_400)
    await one.store.transact(lambda tx: attempts.purge(tx, now=one.clock.now(), cap=domain.CAP))
    assert len(await one.audit()) == 1
    one.clock.advance(2 * 86_400)
    await one.store.transact(lambda tx: attempts.purge(tx, now=one.clock.now(), cap=domain.CAP))
    assert not await one.audit()


async def test_no_table_holds_a_token_or_its_secret_after_an_enrollment(
    one: domain.Domain,
) -> None:
    issued = await one.new_token("web-1")
    await one.knock("web-1", issued)
    await one.knock("web-1", issued)
    for table in ("enrollment_attempts", "action_log", "events", "nodes", "platform_values"):
        rows = await one.store.read(functools.partial(_all_rows, table=table))
        text = repr([tuple(cast("Any", row)) for row in rows])
        assert issued.token.secret_hex not in text
        assert domain.PEER not in text


async def _all_rows(tx: contract.Tx, *, table: str) -> Sequence[contract.Row]:
    return await tx.fetch_all(f"SELECT * FROM {table} LIMIT 100")  # noqa: S608 - from the list


async def test_the_trust_question_is_answered_without_a_token_and_limited_by_itself(
    one: domain.Domain,
) -> None:
    answered = await one.door.answer_trust(b"{}", address=domain.PEER)
    assert answered.status == 200
    parsed = statements.parse_answer(answered.body)
    assert trust.accept_first(parsed, trust_key_ids=[]).statement.serial == 1
    assert (await one.door.answer_trust(b'{"a":1}', address="192.0.2.8")).status == 422
    many = [await one.door.answer_trust(b"{}", address=domain.PEER) for _ in range(130)]
    assert {one_said.status for one_said in many} == {200, 429}
    assert (await one.door.answer_trust(b"{}", address="192.0.2.9")).status == 200
