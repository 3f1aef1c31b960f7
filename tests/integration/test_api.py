"""The API over its sockets, on either store: who may call, what is refused, what is replayed."""

import asyncio
import json
import logging
import pathlib

import pytest

from platform_server.store import contract
from tests.support import api, waits

_TOKEN = {"name": "ci", "permissions": ["nodes.view"]}


async def test_every_error_is_a_problem_document(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path, settings={"api": {"body_bytes": 2048}}) as running:
        local = running.local
        json_type = {"Content-Type": "application/json"}
        cases = {
            "an unknown path": (local.get("/api/v1/nothing"), 404, "not-found"),
            "a doubled slash": (local.get("/api/v1//tokens"), 404, "not-found"),
            "a trailing slash": (local.get("/api/v1/tokens/"), 404, "not-found"),
            "another method": (local.put("/api/v1/tokens"), 405, "method-not-allowed"),
            "no JSON": (
                local.post("/api/v1/tokens", content=b"{", headers=json_type),
                400,
                "malformed",
            ),
            "another media type": (
                local.post("/api/v1/tokens", content=b"{}", headers={"Content-Type": "text/plain"}),
                415,
                "unsupported-media-type",
            ),
            "no media type": (
                local.post("/api/v1/tokens", content=b"{}"),
                415,
                "unsupported-media-type",
            ),
            "too long a body": (
                local.post("/api/v1/tokens", content=b" " * 3000, headers=json_type),
                413,
                "too-large",
            ),
            "a NUL": (
                local.post("/api/v1/tokens", json={"name": "a\0", "permissions": ["nodes.view"]}),
                422,
                "invalid",
            ),
            "an unknown field": (
                local.post("/api/v1/tokens", json={**_TOKEN, "uses": 5}),
                422,
                "invalid",
            ),
            "a text for a number": (
                local.post("/api/v1/tokens", json={**_TOKEN, "ttl_days": "3"}),
                422,
                "invalid",
            ),
            "an unknown query": (local.get("/api/v1/tokens?color=red"), 422, "invalid"),
            "a query given twice": (local.get("/api/v1/tokens?limit=1&limit=2"), 422, "invalid"),
            "a limit out of bounds": (local.get("/api/v1/tokens?limit=501"), 422, "invalid"),
            "a foreign cursor": (local.get("/api/v1/tokens?cursor=A.b"), 422, "invalid"),
            "an unreadable query": (local.get("/api/v1/tokens?%ff=1"), 400, "malformed"),
            "a misspelt check": (
                local.post("/api/v1/tokens?check=yes", json=_TOKEN),
                422,
                "invalid",
            ),
            "a token that is not there": (
                local.delete("/api/v1/tokens/0011223344556677"),
                404,
                "not-found",
            ),
            "a body where none is taken": (
                local.request("DELETE", "/api/v1/tokens/x", json={"a": 1}),
                422,
                "invalid",
            ),
        }
        found = {}
        for name, (call, _, _) in cases.items():
            answer = await call
            assert answer.headers["content-type"] == "application/problem+json", name
            assert answer.json()["request_id"] == answer.headers["x-request-id"], name
            found[name] = (answer.status_code, answer.json()["code"])
        assert found == {name: (status, code) for name, (_, status, code) in cases.items()}


async def test_a_405_says_what_is_allowed(store: contract.Store, tmp_path: pathlib.Path) -> None:
    async with api.running(store, tmp_path) as running:
        answer = await running.local.put("/api/v1/tokens")
        assert answer.headers["allow"] == "GET, POST"


async def test_a_wrong_field_is_named(store: contract.Store, tmp_path: pathlib.Path) -> None:
    async with api.running(store, tmp_path) as running:
        answer = await running.local.post(
            "/api/v1/tokens", json={"name": "x", "permissions": ["nodes.rule"]}
        )
        assert answer.json()["field"] == "permissions.0"
        assert "nodes.view" in answer.json()["detail"]


async def test_only_root_and_the_platforms_own_uid_are_administrator(
    store: contract.Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_server.endpoints.http_door._peer_uid", lambda _request: 4711)
    async with api.running(store, tmp_path, own_uid=4712) as running:
        answer = await running.local.get("/api/v1/tokens")
        assert (answer.status_code, answer.json()["code"]) == (403, "not-permitted")
        assert (await running.local.get("/healthz")).status_code == 403
    async with api.running(store, tmp_path, own_uid=4711) as running:
        assert (await running.local.get("/api/v1/tokens")).status_code == 200


async def test_a_token_may_what_it_was_given_and_no_more(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        viewer = await running.token("audit.view")
        seen = {
            path: (await running.public.get(path, headers=viewer)).status_code
            for path in ("/api/v1/audit", "/api/v1/tokens", "/api/v1/events?follow=false")
        }
        assert seen == {
            "/api/v1/audit": 200,
            "/api/v1/tokens": 403,
            "/api/v1/events?follow=false": 403,
        }


async def test_without_a_good_token_nobody_is_signed_in(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        good = (await running.token("audit.view"))["Authorization"]
        flipped = good[:-20] + ("0" if good[-20] != "0" else "1") + good[-19:]
        for text in (None, "Basic eDp5", "Bearer", "Bearer enk_x", flipped, good + "0"):
            headers = {} if text is None else {"Authorization": text}
            answer = await running.public.get("/api/v1/audit", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "not-signed-in"), text
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "enk_" not in answer.text


async def test_a_token_ends_when_its_time_is_up_and_when_it_is_revoked(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        first, second = await running.token("audit.view"), await running.token("audit.view")
        token_id = first["Authorization"].split("_")[1]
        assert (await running.local.delete(f"/api/v1/tokens/{token_id}")).status_code == 200
        again = await running.local.delete(f"/api/v1/tokens/{token_id}")
        assert (again.status_code, again.json()["code"]) == (409, "conflict")
        assert (await running.public.get("/api/v1/audit", headers=first)).status_code == 401
        assert (await running.public.get("/api/v1/audit", headers=second)).status_code == 200
        running.clock.advance(90 * 86_400)
        assert (await running.public.get("/api/v1/audit", headers=second)).status_code == 401


async def test_a_token_cannot_give_away_more_than_it_has(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        keeper = await running.token("tokens.manage", "nodes.view")
        more = await running.public.post(
            "/api/v1/tokens",
            json={"name": "x", "permissions": ["platform.manage"]},
            headers=keeper,
        )
        assert (more.status_code, more.json()["code"]) == (403, "not-permitted")
        same = await running.public.post("/api/v1/tokens", json=_TOKEN, headers=keeper)
        assert same.status_code == 201


async def test_what_a_token_that_gives_more_would_do_may_be_asked_by_who_may_make_tokens(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        keeper = await running.token("tokens.manage")
        looked = await running.public.post(
            "/api/v1/tokens?check=true",
            json={"name": "x", "permissions": ["platform.manage"]},
            headers=keeper,
        )
        assert looked.status_code == 200, looked.text


async def test_no_list_shows_a_secret(store: contract.Store, tmp_path: pathlib.Path) -> None:
    async with api.running(store, tmp_path) as running:
        headers = await running.token("audit.view", "tokens.manage", "nodes.view")
        secret = headers["Authorization"].split("_")[2]
        seen = ""
        for path in ("tokens", "audit", "events?follow=false"):
            seen += (await running.public.get(f"/api/v1/{path}", headers=headers)).text
        assert secret not in seen
        assert "hash" not in (await running.local.get("/api/v1/tokens")).text


async def test_check_changes_nothing_and_lists_what_would(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        answer = await running.local.post(
            "/api/v1/tokens?check=true", json=_TOKEN, headers={"Idempotency-Key": "k"}
        )
        assert answer.status_code == 200
        assert answer.json()["check"] is True
        assert [change["action"] for change in answer.json()["changes"]] == ["create"]
        assert "enk_" not in answer.text
        for path, key in (("tokens", "tokens"), ("audit", "entries")):
            assert (await running.local.get(f"/api/v1/{path}")).json()[key] == []


async def test_check_needs_no_more_than_the_right_to_look(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        viewer = await running.token("nodes.view")
        path = "/api/v1/platform/rotate-master-key"
        assert (await running.public.post(path, headers=viewer)).status_code == 403
        looked = await running.public.post(f"{path}?check=true", headers=viewer)
        assert looked.status_code == 200


async def test_the_same_key_gives_the_same_record_and_shows_no_secret_again(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        headers = {"Idempotency-Key": "one"}
        first = await running.local.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        second = await running.local.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        assert (first.status_code, second.status_code) == (201, 200)
        assert second.json()["token"] is None
        assert second.json()["code"] == "token-already-shown"
        assert second.json()["record"] == first.json()["record"]
        assert len((await running.local.get("/api/v1/tokens")).json()["tokens"]) == 1


async def test_the_same_key_with_another_body_names_the_field(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        headers = {"Idempotency-Key": "one"}
        await running.local.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        other = await running.local.post(
            "/api/v1/tokens", json={**_TOKEN, "ttl_days": 5}, headers=headers
        )
        assert (other.status_code, other.json()["code"]) == (409, "idempotency-mismatch")
        assert other.json()["field"] == "ttl_days"
        elsewhere = await running.local.post("/api/v1/platform/rotate-master-key", headers=headers)
        assert (elsewhere.status_code, elsewhere.json()["field"]) == (409, "path")


async def test_a_key_is_the_callers_own_and_lasts_a_day(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        keeper = await running.token("tokens.manage", "nodes.view")
        headers = {"Idempotency-Key": "one"}
        await running.local.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        theirs = await running.public.post(
            "/api/v1/tokens", json=_TOKEN, headers={**headers, **keeper}
        )
        assert theirs.status_code == 201
        running.clock.advance(24 * 3600 + 1)
        later = await running.local.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        assert later.status_code == 201


async def test_twenty_tries_at_once_with_one_key_make_one_token(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        answers = await asyncio.gather(
            *(
                running.local.post(
                    "/api/v1/tokens", json=_TOKEN, headers={"Idempotency-Key": "one"}
                )
                for _ in range(20)
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len({answer.json()["record"]["token_id"] for answer in answers}) == 1


async def test_pages_follow_one_another_without_loss(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        for _ in range(7):
            await running.token("nodes.view")
        for path, key, name in (("tokens", "tokens", "token_id"), ("audit", "entries", "seq")):
            seen: list[object] = []
            cursor = None
            while True:
                query = {"limit": "3", **({"cursor": cursor} if cursor else {})}
                page = (await running.local.get(f"/api/v1/{path}", params=query)).json()
                seen += [entry[name] for entry in page[key]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert len(seen) == len(set(map(str, seen))) == 7


async def test_events_resume_behind_the_last_one_seen(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        for _ in range(3):
            await running.token("nodes.view")
        numbers = {}
        for name, path, headers in (
            ("all", "/api/v1/events?follow=false", {}),
            ("by query", "/api/v1/events?follow=false&after=2", {}),
            ("by header", "/api/v1/events?follow=false", {"Last-Event-ID": "1"}),
            ("the query wins", "/api/v1/events?follow=false&after=2", {"Last-Event-ID": "1"}),
            ("of another scope", "/api/v1/events?follow=false&infra=other", {}),
        ):
            answer = await running.local.get(path, headers=headers)
            assert answer.headers["content-type"] == "text/event-stream"
            numbers[name] = [
                json.loads(line.removeprefix("data: "))["seq"]
                for line in answer.text.splitlines()
                if line.startswith("data: ")
            ]
        assert numbers == {
            "all": [1, 2, 3],
            "by query": [3],
            "by header": [2, 3],
            "the query wins": [3],
            "of another scope": [],
        }
        bad = await running.local.get("/api/v1/events", headers={"Last-Event-ID": "-1"})
        assert (bad.status_code, bad.json()["field"]) == (422, "Last-Event-ID")


async def test_a_follower_sees_what_happens_and_is_let_go_when_the_engine_drains(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with (
        api.running(store, tmp_path, settings={"api": {"event_readers": 1}}) as running,
        running.local.stream("GET", "/api/v1/events") as follower,
    ):
        lines = follower.aiter_lines()
        assert await anext(lines) == ": Enlist events"
        refused = await running.public.get(
            "/api/v1/events", headers=await running.token("nodes.view")
        )
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"] == "10"
        running.clock.advance(1)
        seen = [await anext(lines) for _ in range(4)]
        assert seen[1:3] == ["id: 1", "event: token.created"]
        running.draining.set()
        assert [line async for line in lines if line.startswith("id:")] == []


async def test_a_follower_whose_token_is_revoked_is_let_go(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        headers = await running.token("nodes.view")
        async with running.public.stream("GET", "/api/v1/events", headers=headers) as follower:
            lines = follower.aiter_lines()
            assert await anext(lines) == ": Enlist events"
            token_id = headers["Authorization"].split("_")[1]
            assert (await running.local.delete(f"/api/v1/tokens/{token_id}")).status_code == 200
            async with waits.moving(running.clock), asyncio.timeout(30):
                told = [line async for line in lines]  # until the Platform ends the stream
            assert "event: token.revoked" in told


async def test_idle_connections_give_way_to_whoever_has_a_question(
    store: contract.Store, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api.running(store, tmp_path, settings={"api": {"connections": 3}}) as running:
        idle = [await asyncio.open_unix_connection(str(tmp_path / "local.sock")) for _ in range(6)]
        for _ in range(3):
            assert (await running.local.get("/healthz")).status_code == 200
        for _, writer in idle:
            writer.close()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_health_is_open_and_the_figures_are_not_beyond_loopback(
    store: contract.Store, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api.running(store, tmp_path) as running:
        viewer = await running.token("nodes.view")
        seen = {}
        for name, address in (("loopback", "127.0.0.1"), ("outside", "192.0.2.7")):
            monkeypatch.setattr(
                "platform_server.endpoints.http_door._peer_address",
                lambda _request, address=address: address,
            )
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
                plain = await running.public.get(path)
                signed = await running.public.get(path, headers=viewer)
                seen[name, path] = (plain.status_code, signed.status_code)
            for headers in (
                {"X-Forwarded-For": "127.0.0.1"},
                {"Host": "rebound.example"},
                {"Host": "["},
            ):
                answer = await running.public.get("/metrics", headers=headers)
                assert answer.status_code == 401
        assert seen == {
            ("loopback", "/healthz"): (200, 200),
            ("loopback", "/readyz"): (200, 200),
            ("loopback", "/metrics"): (200, 200),
            ("loopback", "/openapi.json"): (200, 200),
            ("outside", "/healthz"): (200, 200),
            ("outside", "/readyz"): (200, 200),
            ("outside", "/metrics"): (401, 200),
            ("outside", "/openapi.json"): (401, 200),
        }


async def test_the_figures_name_routes_and_states_and_sizes(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path) as running:
        await running.local.get("/api/v1/tokens")
        text = (await running.local.get("/metrics")).text
        for line in (
            'enlist_requests_total{method="GET",route="/api/v1/tokens",status="200"} 1.0',
            'enlist_nodes{state="ready"} 0.0',
            'enlist_enrollments{state="pending"} 0.0',
            'enlist_orders{state="queued"} 0.0',
            'enlist_enrollment_attempts{outcome="refused"} 0.0',
            "enlist_store_database_bytes",
        ):
            assert line in text


async def test_what_is_done_stands_in_the_log_with_who_did_it(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(
        store, tmp_path, settings={"platform": {"environment": "prod"}}
    ) as running:
        headers = await running.token("tokens.manage", "nodes.view")
        token_id = headers["Authorization"].split("_")[1]
        await running.public.post("/api/v1/tokens", json=_TOKEN, headers=headers)
        entries = (await running.local.get("/api/v1/audit")).json()["entries"]
        assert [(one["actor"], one["action"], one["environment"]) for one in entries] == [
            (f"token:{token_id}", "tokens.create", "prod"),
            (entries[1]["actor"], "tokens.create", "prod"),
        ]
        assert entries[1]["actor"].startswith("local:")
        assert entries[0]["mfa_verified"] is False
        verdict = (await running.local.get("/api/v1/audit/verify")).json()
        assert (verdict["intact"], verdict["entries"]) == (True, 2)


async def test_what_is_no_http_gets_a_problem_document_too(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    async with api.running(store, tmp_path):
        for raw in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "public.sock"))
            writer.write(raw)
            async with asyncio.timeout(5):
                answer = await reader.read(65_536)
            writer.close()
            assert answer.split(b"\r\n")[0].endswith(b"400 Bad Request"), answer
            assert b'"code":"malformed"' in answer
