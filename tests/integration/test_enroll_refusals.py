"""What the enroll door refuses, in which words and how often, over a real store of either kind."""

import json
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from platform_server.endpoints import enroll_decision, enroll_door
from platform_server.store import contract
from platform_server.tokens import issue
from tests.support import domain
from wire_protocol import enrollment_token, product

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def one(store: contract.Store, tmp_path: pathlib.Path) -> domain.Domain:
    return await domain.build(store, folder=tmp_path)


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


async def _configured(one: domain.Domain, folder: pathlib.Path) -> tuple[domain.Domain, str]:
    """A token from before the settings named its node."""
    token = await one.new_token("web-1")
    named = {"web-1": {"url": "https://10.0.0.9:8443", "pin": "sha256:" + "a" * 64}}
    settings = domain.settings_of(nodes=named)
    again = await domain.build(
        one.store, folder=folder, settings=settings, keyring=one.keyring, clock=one.clock
    )
    return again, token.token.text()


async def _registered(one: domain.Domain, folder: pathlib.Path) -> tuple[domain.Domain, str]:
    """A token for a new node, of an id that a machine has taken meanwhile."""
    del folder
    assert (await one.knock("web-1", await one.new_token("web-1"))).status == 201

    async def ask(_tx: contract.Tx) -> issue.Standing:
        return issue.Standing.FREE

    token = await one.new_token("web-1", ask=ask)
    return one, token.token.text()


TAKEN = {"node-configured": _configured, "node-registered": _registered}


@pytest.mark.parametrize("reason", TAKEN)
async def test_an_id_that_is_taken_is_an_outcome_of_its_own_and_stands_in_both_logs(
    one: domain.Domain, tmp_path: pathlib.Path, reason: str
) -> None:
    one, token = await TAKEN[reason](one, tmp_path)
    for number in range(3):
        said = await one.knock("web-1", token, version=f"0.0.{number}")
        assert (said.status, said.raw) == (403, enroll_door.REFUSED.body)
    assert (await one.audit())[0] == ("node-exists", reason, 3)
    assert await one.count("action_log", "action = 'node.exists'") == 1


async def test_a_phase_report_without_an_operation_is_refused_in_the_same_words(
    one: domain.Domain,
) -> None:
    assert (await _phase(one)).raw == (await _unknown(one)).raw
    assert (await one.audit())[1] == ("refused", "no-operation", 1)


async def test_a_phase_report_keeps_no_version_that_is_out_of_shape(one: domain.Domain) -> None:
    token = (await one.new_token("web-1")).token.text()
    body = {"node_id": "web-1", "token": token, "phase": "failed", "version": "<b>1</b>"}
    assert (await one.send(json.dumps(body).encode())).status == 403
    assert await one.count("enrollment_attempts", "version IS NULL") == 1


async def test_where_nodes_are_turned_off_a_repeat_is_refused_before_it_changes_anything(
    one: domain.Domain,
) -> None:
    token, certificate = await one.new_token("web-1"), domain.new_certificate()
    await one.knock("web-1", token, certificate=certificate, url="https://10.0.0.1:8443")
    one.door = enroll_door.EnrollDoor(
        one.store,
        trust=None,
        operators=one.operators,
        reacher=None,
        rules=enroll_decision.Rules(
            infra="default", environment="test", limits=domain.LIMITS, cap=domain.CAP
        ),
        clock=one.clock,
    )
    events = await one.count("events")
    said = await one.knock("web-1", token, certificate=certificate, url="https://10.0.0.2:8443")
    assert said.raw == enroll_door.REFUSED.body
    assert (await one.audit())[0] == ("refused", "nodes-disabled", 1)
    assert await one.count("nodes", "url = 'https://10.0.0.1:8443'") == 1
    assert await one.count("events") == events


async def test_every_problem_but_the_uniform_refusal_carries_the_id_of_its_request(
    one: domain.Domain,
) -> None:
    token = await one.new_token("web-1")
    said = {
        422: await one.knock("_", token),
        413: await one.send(b"x" * 65_537),
        409: await one.knock("web-1", token, version="99.0.0"),
        403: await _unknown(one),
    }
    while (last := await _unknown(one)).status == 403:
        assert last.raw == said[403].raw
    said[last.status] = last
    assert {status: one_said.body["request_id"] for status, one_said in said.items()} == {
        422: domain.REQUEST,
        413: domain.REQUEST,
        409: domain.REQUEST,
        429: domain.REQUEST,
        403: "",
    }
    trusted = await one.door.answer_trust(b"[]", address=domain.PEER, request_id=domain.REQUEST)
    assert json.loads(trusted.body)["request_id"] == domain.REQUEST


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


async def test_a_stranger_with_a_newer_version_learns_nothing(one: domain.Domain) -> None:
    said = await one.knock("web-1", enrollment_token.new().text(), version="99.0.0")
    assert said.raw == (await _unknown(one)).raw


async def test_b6_an_expired_token_and_an_unknown_one_are_told_the_same(
    one: domain.Domain,
) -> None:
    assert (await _expired(one)).raw == (await _unknown(one)).raw
    assert {reason for _, reason, _ in await one.audit()} == {"expired", "unknown-token"}
