"""Tokens and enrollment over a real store of either kind, without a server."""

import datetime
import json
import pathlib

import pytest

from platform_server.nodes import chores, register
from platform_server.store import contract
from platform_server.tokens import issue
from tests.support import domain
from wire_protocol import problems, product, statements, trust

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


async def test_what_a_repeat_changes_stands_in_the_action_log(one: domain.Domain) -> None:
    token, key = await one.new_token("web-1"), domain.new_key()
    first, second = domain.certificate_of(key), domain.certificate_of(key)
    await one.knock("web-1", token, certificate=first, url="https://10.0.0.1:8443")
    await one.knock("web-1", token, certificate=second, url="https://10.0.0.2:8443")
    await one.knock("web-1", token, certificate=second, url="https://10.0.0.2:8443")
    rows = await one.store.read(
        lambda tx: tx.fetch_all(
            "SELECT actor, action, target, details FROM action_log "
            "WHERE target = 'web-1' ORDER BY seq LIMIT 9"
        )
    )
    assert [(row["action"], row["target"]) for row in rows] == [
        ("node.enrolled", "web-1"),
        ("node.address-changed", "web-1"),
        ("node.certificate-changed", "web-1"),
    ]
    assert {row["actor"] for row in rows} == {f"enrollment:{token.enrollment.enrollment_id}"}
    moved = json.loads(rows[1]["details"])
    assert (moved["former_url"], moved["url"]) == (
        "https://10.0.0.1:8443",
        "https://10.0.0.2:8443",
    )
    node = await _row(one, "SELECT certificate_sha256 FROM nodes")
    assert json.loads(rows[2]["details"]) == {"certificate_sha256": node["certificate_sha256"]}


async def test_a_node_that_keeps_changing_is_answered_and_stays_as_it_is_for_the_hour(
    one: domain.Domain,
) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    for number in range(register.MOST_CHANGES_AN_HOUR + 5):
        url = f"https://10.0.0.{number}:8443"
        said = await one.knock("web-1", token, certificate=certificate, url=url)
        assert said.status == (200 if number else 201)
    written = await one.count("action_log", "action = 'node.address-changed'")
    assert written == register.MOST_CHANGES_AN_HOUR
    last = f"https://10.0.0.{register.MOST_CHANGES_AN_HOUR}:8443"
    assert (await _row(one, "SELECT url FROM nodes"))["url"] == last
    one.clock.advance(3601)
    await one.knock("web-1", token, certificate=certificate, url="https://10.0.0.99:8443")
    assert (await _row(one, "SELECT url FROM nodes"))["url"] == "https://10.0.0.99:8443"


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
        assert (await one.audit())[0] == ("node-exists", "node-configured", 1)
        with pytest.raises(issue.CannotIssue) as refused:
            await one.new_token(name.upper() + ".", replace=True)
        assert refused.value.code == "node-exists"


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


async def test_allowing_a_node_ends_every_unused_token_of_its_id(one: domain.Domain) -> None:
    """Also one that should not exist."""

    async def ask(_tx: contract.Tx) -> issue.Standing:
        return issue.Standing.FREE

    await one.knock("web-1", await one.new_token("web-1"))
    await one.remove("web-1")
    stray = await one.new_token("web-1", ask=ask)
    await one.allow("web-1")
    assert (await one.knock("web-1", stray)).status == 403
    assert (await one.audit())[0][1] == "revoked"


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


async def test_old_ended_enrollments_are_forgotten_but_not_the_one_a_node_lives_by(
    one: domain.Domain,
) -> None:
    certificate = domain.new_certificate()
    living = await one.new_token("web-1")
    await one.knock("web-1", living, certificate=certificate)
    await one.new_token("web-2", ttl_minutes=1)
    await one.new_token("web-3")
    await one.new_token("web-3", replace=True, ttl_minutes=1440)
    one.clock.advance(3600)
    await chores.clean(one.store, clock=one.clock, cap=domain.CAP)
    assert await one.count("enrollments", "state = 'expired'") == 1
    assert await one.count("enrollments") == 4
    one.clock.advance(30.5 * 86_400)
    await chores.clean(one.store, clock=one.clock, cap=domain.CAP)
    await chores.clean(one.store, clock=one.clock, cap=domain.CAP)
    states = await one.store.read(
        lambda tx: tx.fetch_all("SELECT node_id, state FROM enrollments ORDER BY node_id LIMIT 9")
    )
    assert [(row["node_id"], row["state"]) for row in states] == [
        ("web-1", "consumed"),
        ("web-3", "expired"),
    ]
    assert (await one.knock("web-1", living, certificate=certificate)).status == 200
