"""The operator routes of nodes, enrollments and the Platform, over HTTP on either store."""

import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from platform_server.endpoints import (
    enroll_server,
    enrollments,
    invitations,
    nodes,
    platform_routes,
)
from platform_server.store import contract
from platform_server.trust import statements
from runtime_kit import clock as clock_kit
from tests.support import api, domain
from wire_protocol import enrollment_token, join_token, pins, product

pytestmark = pytest.mark.timeout(120)
URL = "https://p.example.com:8444"
PIN = pins.Pin("sha256:" + "ab" * 32)
API_PIN = pins.Pin("sha256:" + "cd" * 32)
CONFIGURED = {"db-1": {"url": "https://10.0.0.9:8443", "pin": "sha256:" + "a" * 64}}


class Rig:
    """The API with the domain behind it."""

    def __init__(self, http: api.Api, one: domain.Domain) -> None:
        self.http = http.local
        self.api = http
        self.one = one

    async def issue(self, node_id: str, **more: Any) -> dict[str, Any]:
        answered = await self.http.post("/api/v1/enrollments", json={"node_id": node_id, **more})
        assert answered.status_code == 201, answered.text
        content: dict[str, Any] = answered.json()
        return content

    async def enrolled(self, node_id: str, **more: Any) -> None:
        issued = await self.issue(node_id, **more)
        assert (await self.one.knock(node_id, issued["token"])).status == 201

    async def listed(self, query: str = "") -> dict[str, Any]:
        answered = await self.http.get(f"/api/v1/nodes{query}")
        assert answered.status_code == 200, answered.text
        content: dict[str, Any] = answered.json()
        return content


@contextlib.asynccontextmanager
async def _running(
    store: contract.Store,
    folder: pathlib.Path,
    *,
    settings: Mapping[str, Any] | None = None,
    takes_nodes: bool = True,
    certificate_sha256: str | None = PIN,
) -> AsyncIterator[Rig]:
    one = await domain.build(
        store,
        folder=folder,
        settings=domain.settings_of(**(settings or {})),
        clock=clock_kit.ManualClock(api.START),
        facts=statements.Facts(enrollment_pins=(PIN,), enrollment_url=URL),
    )

    def invite() -> invitations.Invitation:
        return invitations.Invitation(
            platform_url=URL,
            gateway_url=None,
            pins=(PIN,),
            trust_key_ids=platform_routes.key_ids_of(one.trust.published),
        )

    async def ports_changed() -> None:
        return

    extra = (
        *nodes.Nodes(one.operators).served(),
        *enrollments.Enrollments(
            operators=one.operators, invitation=invite if takes_nodes else None, cap=domain.CAP
        ).served(),
        *platform_routes.PlatformRoutes(
            trust=one.trust if takes_nodes else None,
            keyring=one.keyring,
            whereabouts=lambda: platform_routes.Whereabouts(
                enrollment_url=URL if takes_nodes else None,
                api_pins=(API_PIN,),
                pins=(PIN,),
                certificate_sha256=certificate_sha256,
            ),
            ports_changed=ports_changed,
        ).served(),
        *enroll_server.routes_of(one.door, places=enroll_server.Places(64)),
    )
    async with api.running(store, folder, settings=settings, extra=extra) as http:
        yield Rig(http, one)


@pytest.fixture
async def rig(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    async with _running(store, tmp_path, settings={"nodes": CONFIGURED}) as running:
        yield running


def _code(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["code"]


async def test_an_issued_token_comes_with_all_that_a_machine_needs(rig: Rig) -> None:
    issued = await rig.issue("Web-1.", labels={"zone": "a"}, ttl_minutes=5)
    join = join_token.decode(issued["join_token"])
    assert (join.url, join.node_id, tuple(join.pins)) == (URL, "web-1", (PIN,))
    assert join.token.text() == issued["token"]
    assert list(join.trust_key_ids) == [
        key.key_id for key in rig.one.trust.published.statement.trust_keys
    ]
    assert issued["pins"] == [PIN]
    first, inside, last = issued["command"].splitlines()
    assert first.startswith("enlist worker join - <<")
    assert issued["token"] not in first
    assert (inside, last) == (issued["join_token"], "ENLIST_JOIN_TOKEN")
    said = await rig.http.post(
        "/api/v1/enroll",
        json={
            "node_id": "web-1",
            "token": issued["token"],
            "certificate_pem": domain.new_certificate(),
            "version": product.VERSION,
        },
    )
    assert said.status_code == 201
    (shown,) = (node for node in (await rig.listed())["nodes"] if node["node_id"] == "web-1")
    assert shown["labels"] == {"zone": "a"}


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("node_id", {"node_id": "-web"}),
        ("node_id", {"node_id": ""}),
        ("ttl_minutes", {"node_id": "web-1", "ttl_minutes": 0}),
        ("ttl_minutes", {"node_id": "web-1", "ttl_minutes": 1441}),
        ("ttl_minutes", {"node_id": "web-1", "ttl_minutes": None}),
        ("labels", {"node_id": "web-1", "labels": {"Not Good": "x"}}),
        ("from", {"node_id": "web-1", "from": ["10.0.0.1/8"]}),
        ("from", {"node_id": "web-1", "from": ["anywhere"]}),
        ("max_uses", {"node_id": "web-1", "max_uses": 5}),
    ],
)
async def test_b16_what_is_out_of_shape_is_named_and_nothing_is_minted(
    rig: Rig, field: str, body: dict[str, Any]
) -> None:
    answered = await rig.http.post("/api/v1/enrollments", json=body)
    assert _code(answered) == (422, "invalid")
    assert answered.json()["field"].split(".")[0] == field
    assert await rig.one.count("enrollments") == 0


async def test_taken_ids_are_refused_and_the_attempt_stands_in_both_logs(rig: Rig) -> None:
    await rig.enrolled("web-1")
    for node_id in ("web-1", "db-1", "local"):
        answered = await rig.http.post("/api/v1/enrollments", json={"node_id": node_id})
        assert _code(answered) == (409, "node-exists")
    log = (await rig.http.get("/api/v1/enrollments/audit")).json()["attempts"]
    assert [(one["outcome"], one["node_id"]) for one in log[:3]] == [
        ("node-exists", "local"),
        ("node-exists", "db-1"),
        ("node-exists", "web-1"),
    ]
    actions = (await rig.http.get("/api/v1/audit")).json()["entries"]
    assert [one["action"] for one in actions[:3]] == ["enrollments.issue-refused"] * 3


async def test_an_unused_enrollment_is_replaced_only_when_asked_for(rig: Rig) -> None:
    first = await rig.issue("web-1")
    answered = await rig.http.post("/api/v1/enrollments", json={"node_id": "web-1"})
    assert _code(answered) == (409, "enrollment-pending")
    second = await rig.issue("web-1", replace=True)
    assert (await rig.one.knock("web-1", first["token"])).status == 403
    assert (await rig.one.knock("web-1", second["token"])).status == 201


async def test_a_reenrollment_needs_the_right_to_manage_nodes_too(rig: Rig) -> None:
    await rig.enrolled("web-1")
    may_enroll = await rig.api.token("nodes.enroll")
    may_both = await rig.api.token("nodes.enroll", "nodes.manage")
    body = {"node_id": "web-1", "replace": True}
    refused = await rig.api.public.post("/api/v1/enrollments", json=body, headers=may_enroll)
    assert _code(refused) == (403, "not-permitted")
    allowed = await rig.api.public.post("/api/v1/enrollments", json=body, headers=may_both)
    assert allowed.status_code == 201


async def test_a_replayed_issue_gives_the_record_and_no_secret(rig: Rig) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"node_id": "web-1"}
    first = await rig.http.post("/api/v1/enrollments", json=body, headers=headers)
    again = await rig.http.post("/api/v1/enrollments", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    shown = again.json()
    assert shown["enrollment_id"] == first.json()["enrollment_id"]
    assert (shown["token"], shown["join_token"], shown["command"]) == (None, None, None)
    assert shown["code"] == "token-already-shown"
    assert await rig.one.count("enrollments") == 1


async def test_issuing_under_check_plans_and_leaves_nothing_behind(rig: Rig) -> None:
    await rig.enrolled("web-1")
    planned = await rig.http.post(
        "/api/v1/enrollments?check=true", json={"node_id": "web-1", "replace": True}
    )
    assert planned.status_code == 200
    assert "re-enrollment" in planned.json()["changes"][0]["detail"]
    assert "token" not in planned.json()
    refused = await rig.http.post("/api/v1/enrollments?check=true", json={"node_id": "db-1"})
    assert _code(refused) == (409, "node-exists")
    assert await rig.one.count("enrollments") == 1
    assert await rig.one.count("action_log", "action = 'enrollments.issue-refused'") == 0


async def test_whoever_may_look_may_ask_what_an_issue_would_do_even_of_a_reenrollment(
    rig: Rig,
) -> None:
    await rig.enrolled("web-1")
    viewer = await rig.api.token("nodes.view")
    body = {"node_id": "web-1", "replace": True}
    looked = await rig.api.public.post("/api/v1/enrollments?check=true", json=body, headers=viewer)
    assert looked.status_code == 200, looked.text
    refused = await rig.api.public.post("/api/v1/enrollments", json=body, headers=viewer)
    assert _code(refused) == (403, "not-permitted")


async def test_with_nodes_turned_off_nothing_is_issued_and_trust_keys_stay_unpublished(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with _running(store, tmp_path, takes_nodes=False) as rig:
        answered = await rig.http.post("/api/v1/enrollments", json={"node_id": "web-1"})
        assert _code(answered) == (409, "nodes-disabled")
        shown = (await rig.http.get("/api/v1/platform")).json()
        assert (shown["trust_keys"], shown["nodes_enabled"]) == ([], False)
        rotated = await rig.http.post("/api/v1/platform/rotate-trust-key")
        assert _code(rotated) == (409, "nodes-disabled")


async def test_a_withdrawn_enrollment_opens_nothing_and_cannot_be_withdrawn_twice(
    rig: Rig,
) -> None:
    issued = await rig.issue("web-1")
    path = f"/api/v1/enrollments/{issued['enrollment_id']}"
    assert (await rig.http.delete(path)).status_code == 200
    assert (await rig.one.knock("web-1", issued["token"])).status == 403
    assert _code(await rig.http.delete(path)) == (409, "enrollment-ended")
    missing = await rig.http.delete("/api/v1/enrollments/0123456789abcdef")
    assert _code(missing) == (404, "not-found")
    listed = (await rig.http.get("/api/v1/enrollments")).json()["enrollments"]
    assert [(one["node_id"], one["state"]) for one in listed] == [("web-1", "revoked")]


async def test_no_list_shows_a_token_a_hash_or_a_certificate(rig: Rig) -> None:
    await rig.enrolled("web-1")
    issued = await rig.issue("web-2")
    text = ""
    for path in ("nodes", "nodes/web-1", "enrollments", "enrollments/audit", "audit", "platform"):
        answered = await rig.http.get(f"/api/v1/{path}")
        assert answered.status_code == 200
        text += answered.text
    parsed = enrollment_token.parse(issued["token"])
    assert parsed.secret_hex not in text
    assert parsed.stored_hash().hex() not in text
    node = json.dumps((await rig.http.get("/api/v1/nodes/web-1")).json())
    assert "BEGIN CERTIFICATE" not in node


async def test_the_list_has_every_promised_field_and_the_open_enrollments(rig: Rig) -> None:
    await rig.enrolled("web-1")
    await rig.issue("web-2")
    listed = await rig.listed()
    promised = {
        "node_id", "agent_id", "state", "scheduling", "connectivity", "certificate_sha256",
        "pin", "generation", "version", "compatibility", "labels", "reported_labels", "roles",
        "capacity", "infra", "enrolled_at", "last_seen_at", "clock_offset_ms", "address",
        "provider_state", "heartbeat_age_ms", "probe_answered_at", "reason",
    }  # fmt: skip
    assert all(promised <= node.keys() for node in listed["nodes"])
    assert [node["node_id"] for node in listed["nodes"]] == ["db-1", "web-1"]
    assert [one["node_id"] for one in listed["enrollments"]] == ["web-2"]
    configured = listed["nodes"][0]
    assert (configured["configured"], configured["state"]) == (True, "unreachable")


async def test_pages_of_nodes_follow_one_another_without_loss_configured_ones_among_them(
    rig: Rig,
) -> None:
    for name in ("aa", "cc", "dd", "ee", "zz"):
        await rig.enrolled(name)
    seen: list[str] = []
    query = "?limit=2"
    while True:
        page = await rig.listed(query)
        seen += [node["node_id"] for node in page["nodes"]]
        if page["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={page['next_cursor']}"
    assert seen == ["aa", "cc", "db-1", "dd", "ee", "zz"]


async def test_nodes_are_found_by_label_and_scope(rig: Rig) -> None:
    await rig.enrolled("web-1", labels={"zone": "a", "kind/os": "linux"})
    await rig.enrolled("web-2", labels={"zone": "b"})
    for query, expected in {
        "?label=zone=a": ["web-1"],
        "?label=zone": ["web-1", "web-2"],
        "?label=zone&label=kind/os=linux": ["web-1"],
        "?label=zone=c": [],
        "?infra=default": ["db-1", "web-1", "web-2"],
        "?infra=other": [],
    }.items():
        assert [node["node_id"] for node in (await rig.listed(query))["nodes"]] == expected, query
    for bad in ('?label=z"one', "?label=%27", "?label=zone%3Da%20b"):
        assert (await rig.http.get(f"/api/v1/nodes{bad}")).status_code == 422


async def test_enrollments_are_found_by_label(rig: Rig) -> None:
    await rig.issue("web-1", labels={"zone": "a"})
    await rig.issue("web-2", labels={"zone": "b"})
    for query, expected in {"?label=zone=a": ["web-1"], "?label=zone": ["web-2", "web-1"]}.items():
        listed = (await rig.http.get(f"/api/v1/enrollments{query}")).json()["enrollments"]
        assert sorted(one["node_id"] for one in listed) == sorted(expected)
        open_ones = (await rig.listed(query))["enrollments"]
        assert sorted(one["node_id"] for one in open_ones) == sorted(expected)


async def test_labels_are_set_and_taken_away(rig: Rig) -> None:
    await rig.enrolled("web-1", labels={"zone": "a", "old": "1"})
    changed = await rig.http.patch(
        "/api/v1/nodes/web-1", json={"labels": {"zone": "b", "old": None, "new": ""}}
    )
    assert changed.json()["labels"] == {"zone": "b", "new": ""}
    bad = await rig.http.patch("/api/v1/nodes/web-1", json={"labels": {"Bad Key": "x"}})
    assert _code(bad) == (422, "invalid")
    configured = await rig.http.patch("/api/v1/nodes/db-1", json={"labels": {"zone": "b"}})
    assert _code(configured) == (409, "node-exists")


async def test_a_removed_node_leaves_a_tombstone_that_allow_lifts(rig: Rig) -> None:
    await rig.enrolled("web-1")
    planned = await rig.http.delete("/api/v1/nodes/web-1?check=true")
    assert planned.json()["changes"][0]["action"] == "remove"
    assert (await rig.http.delete("/api/v1/nodes/web-1")).status_code == 200
    assert (await rig.listed())["nodes"][-1]["state"] == "removed"
    labels = {"labels": {"zone": "a"}}
    for late in (
        await rig.http.delete("/api/v1/nodes/web-1"),
        await rig.http.patch("/api/v1/nodes/web-1", json=labels),
    ):
        assert _code(late) == (409, "node-state")
        assert "is removed already" in late.json()["detail"]
        assert late.json()["detail"].endswith("enlist nodes allow web-1")
    refused = await rig.http.post("/api/v1/enrollments", json={"node_id": "web-1"})
    assert _code(refused) == (409, "node-removed")
    assert (await rig.http.post("/api/v1/nodes/web-1/allow")).status_code == 200
    again = await rig.http.post("/api/v1/nodes/web-1/allow")
    assert _code(again) == (404, "not-found")
    await rig.enrolled("web-1")
    untimely = await rig.http.post("/api/v1/nodes/web-1/allow")
    assert untimely.json()["detail"].endswith("enlist nodes show web-1")


async def test_configured_nodes_are_neither_removed_nor_allowed(rig: Rig) -> None:
    for node_id in ("db-1", "local"):
        assert _code(await rig.http.delete(f"/api/v1/nodes/{node_id}")) == (409, "node-exists")
        allowed = await rig.http.post(f"/api/v1/nodes/{node_id}/allow")
        assert allowed.status_code in (404, 409)


async def test_an_id_out_of_shape_is_422_and_one_that_is_not_there_404(rig: Rig) -> None:
    assert _code(await rig.http.get("/api/v1/nodes/web_1")) == (422, "invalid")
    assert _code(await rig.http.get("/api/v1/nodes/web-9")) == (404, "not-found")
    assert _code(await rig.http.delete("/api/v1/nodes/web-9")) == (404, "not-found")


async def test_the_audit_of_attempts_is_read_in_pages_newest_first(rig: Rig) -> None:
    for number in range(5):
        await rig.one.knock(f"no-{number}", enrollment_token.new().text())
        rig.one.clock.advance(1)
    seen: list[str] = []
    query = "?limit=2"
    while True:
        page = (await rig.http.get(f"/api/v1/enrollments/audit{query}")).json()
        seen += [one["node_id"] for one in page["attempts"]]
        if page["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={page['next_cursor']}"
    assert seen == ["no-4", "no-3", "no-2", "no-1", "no-0"]


async def test_the_platform_tells_its_keys_pins_and_number_and_rotates_on_demand(
    rig: Rig,
) -> None:
    before = (await rig.http.get("/api/v1/platform")).json()
    assert (before["enrollment_url"], before["pins"]) == (URL, [PIN])
    assert before["api_pins"] == [API_PIN]
    planned = await rig.http.post("/api/v1/platform/rotate-trust-key?check=true")
    assert planned.json()["changes"][0]["action"] == "publish"
    assert (await rig.http.post("/api/v1/platform/rotate-trust-key")).status_code == 200
    after = (await rig.http.get("/api/v1/platform")).json()
    assert len(after["trust_keys"]) == len(before["trust_keys"]) + 1 == 2
    assert after["serial"] == before["serial"] + 1
    assert after["platform_id"] == before["platform_id"]


async def test_a_ports_key_is_turned_over_on_demand_and_a_second_time_only_sooner(
    rig: Rig,
) -> None:
    body = {"port": "enrollment", "after_seconds": 600}
    planned = await rig.http.post("/api/v1/platform/rotate-tls-key?check=true", json=body)
    assert planned.json()["changes"][0]["target"] == "enrollment next TLS key"
    made = await rig.http.post("/api/v1/platform/rotate-tls-key", json=body)
    assert made.status_code == 200, made.text
    again = await rig.http.post("/api/v1/platform/rotate-tls-key", json=body)
    assert _code(again) == (409, "conflict")
    sooner = await rig.http.post(
        "/api/v1/platform/rotate-tls-key", json={"port": "enrollment", "after_seconds": 0}
    )
    assert sooner.status_code == 200


async def test_without_an_enrollment_port_there_is_no_key_of_it_to_change(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with _running(store, tmp_path, certificate_sha256=None) as rig:
        refused = await rig.http.post("/api/v1/platform/rotate-tls-key", json={})
        assert _code(refused) == (409, "conflict")
        assert await rig.one.count("sealed_secrets", "name LIKE '%tls-key%'") == 0


async def test_without_a_gateway_there_is_no_key_of_it_to_change(rig: Rig) -> None:
    refused = await rig.http.post("/api/v1/platform/rotate-tls-key", json={"port": "gateway"})
    assert _code(refused) == (409, "conflict")
    assert refused.json()["detail"] == "The gateway is off, so there is no key of it to change."


async def test_the_anonymous_routes_answer_on_the_api_like_on_the_listener(rig: Rig) -> None:
    trusted = await rig.api.public.post("/api/v1/trust", json={})
    assert trusted.status_code == 200
    assert trusted.headers["cache-control"] == "no-store"
    body = {
        "node_id": "web-1",
        "token": enrollment_token.new().text(),
        "certificate_pem": domain.new_certificate(),
        "version": product.VERSION,
    }
    refused = await rig.api.public.post("/api/v1/enroll", json=body)
    assert _code(refused) == (403, "enrollment-refused")
    assert refused.content == (await rig.one.send(json.dumps(body).encode())).raw
    misshapen = await rig.api.public.post("/api/v1/enroll", json={**body, "node_id": "_"})
    assert misshapen.json()["field"] == "node_id"
    assert misshapen.json()["request_id"] == misshapen.headers["x-request-id"]
    checked = await rig.api.public.post("/api/v1/enroll?check=true", json=body)
    assert checked.status_code == 422
