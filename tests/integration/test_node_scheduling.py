"""Taking nodes out of and into service, over HTTP on either store."""

import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from platform_server.endpoints import node_scheduling, nodes
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from tests.support import api, domain

pytestmark = pytest.mark.timeout(120)
CONFIGURED = {"db-1": {"url": "https://10.0.0.9:8443", "pin": "sha256:" + "a" * 64}}


class Rig:
    """The routes of nodes over a domain with one node in it."""

    def __init__(self, http: api.Api, one: domain.Domain) -> None:
        self.api = http
        self.one = one

    async def order(self, verb: str, *, node: str = "web-1", reason: str = "") -> httpx.Response:
        path = f"/api/v1/nodes/{node}/{verb}"
        return await self.api.local.post(path, json={"reason": reason} if reason else {})

    async def scheduling(self) -> str:
        listed = (await self.api.local.get("/api/v1/nodes")).json()["nodes"]
        (found,) = (node["scheduling"] for node in listed if node["node_id"] == "web-1")
        return str(found)

    async def steps(self) -> list[tuple[str, str, str]]:
        """What the events say: from, to, reason."""
        rows = await self.one.store.read(
            lambda tx: tx.fetch_all(
                "SELECT data FROM events WHERE kind = ? ORDER BY seq", node_scheduling.KIND
            )
        )
        found = [json.loads(row["data"]) for row in rows]
        return [(one["from"], one["to"], one["reason"]) for one in found]

    async def actions(self) -> list[tuple[str, dict[str, Any]]]:
        entries = (await self.api.local.get("/api/v1/audit")).json()["entries"]
        return [
            (entry["action"], entry["details"])
            for entry in reversed(entries)
            if entry["action"] in ("nodes.maintenance", "nodes.drain", "nodes.resume")
        ]


@pytest.fixture
async def rig(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    settings = {"nodes": CONFIGURED}
    one = await domain.build(
        store,
        folder=tmp_path,
        settings=domain.settings_of(**settings),
        clock=clock_kit.ManualClock(api.START),
    )
    assert (await one.knock("web-1", await one.new_token("web-1"))).status == 201
    extra = (
        *nodes.Nodes(one.operators).served(),
        *node_scheduling.NodeScheduling(one.operators).served(),
    )
    async with api.running(store, tmp_path, settings=settings, extra=extra) as http:
        yield Rig(http, one)


def _code(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["code"]


async def test_a_node_is_taken_out_of_service_and_back_and_every_step_is_written_down(
    rig: Rig,
) -> None:
    assert await rig.scheduling() == "active"
    assert (await rig.order("maintenance", reason="new disk")).status_code == 200
    assert await rig.scheduling() == "maintenance"
    drained = await rig.order("drain")
    assert drained.json()["changes"] == [
        {"action": "drain", "target": "web-1", "detail": "no work is left on it"}
    ]
    assert await rig.scheduling() == "drained"
    assert (await rig.order("resume", reason="done")).status_code == 200
    assert await rig.scheduling() == "active"
    assert await rig.steps() == [
        ("active", "maintenance", "new disk"),
        ("maintenance", "draining", ""),
        ("draining", "drained", ""),
        ("drained", "active", "done"),
    ]
    assert await rig.actions() == [
        ("nodes.maintenance", {"from": "active", "to": "maintenance", "reason": "new disk"}),
        ("nodes.drain", {"from": "maintenance", "to": "drained", "reason": ""}),
        ("nodes.resume", {"from": "drained", "to": "active", "reason": "done"}),
    ]


@pytest.mark.parametrize("verb", ["maintenance", "drain", "resume"])
async def test_asking_for_what_stands_already_changes_nothing_and_writes_nothing(
    rig: Rig, verb: str
) -> None:
    await rig.order(verb)
    before = await rig.steps()
    again = await rig.order(verb)
    assert (again.status_code, again.json()) == (200, {"changes": []})
    assert await rig.steps() == before


async def test_a_drained_node_goes_to_maintenance_only_by_way_of_a_resume(rig: Rig) -> None:
    await rig.order("drain")
    refused = await rig.order("maintenance")
    assert _code(refused) == (409, "node-state")
    assert refused.json()["detail"].endswith("enlist nodes resume web-1")
    assert await rig.scheduling() == "drained"


async def test_under_check_the_plan_is_told_and_looking_is_enough(rig: Rig) -> None:
    looks = await rig.api.token("nodes.view")
    path = "/api/v1/nodes/web-1/drain"
    planned = await rig.api.public.post(f"{path}?check=true", json={}, headers=looks)
    assert planned.json()["changes"][0]["action"] == "drain"
    assert (await rig.scheduling(), await rig.steps()) == ("active", [])
    refused = await rig.api.public.post(path, json={}, headers=looks)
    assert _code(refused) == (403, "not-permitted")
    manages = await rig.api.token("nodes.manage")
    done = await rig.api.public.post(path, json={}, headers=manages)
    assert done.status_code == 200


async def test_an_idempotency_key_answers_the_same_again_and_no_other_reason(rig: Rig) -> None:
    async def keyed(reason: str) -> httpx.Response:
        return await rig.api.local.post(
            "/api/v1/nodes/web-1/maintenance",
            json={"reason": reason},
            headers={"Idempotency-Key": "k1"},
        )

    first = await keyed("a")
    await rig.order("resume")
    assert (await keyed("a")).json() == first.json()
    assert await rig.scheduling() == "active"
    mismatch = await keyed("b")
    assert _code(mismatch) == (409, "idempotency-mismatch")
    assert mismatch.json()["field"] == "reason"


@pytest.mark.parametrize("verb", ["maintenance", "drain", "resume"])
async def test_configured_missing_and_removed_nodes_take_no_orders(rig: Rig, verb: str) -> None:
    for node_id in ("db-1", "local"):
        assert _code(await rig.order(verb, node=node_id)) == (409, "node-exists")
    assert _code(await rig.order(verb, node="web-9")) == (404, "not-found")
    assert _code(await rig.order(verb, node="web_1")) == (422, "invalid")
    await rig.one.remove("web-1")
    late = await rig.order(verb)
    assert _code(late) == (409, "node-state")
    assert late.json()["detail"].endswith("enlist nodes allow web-1")
    assert await rig.steps() == []


async def test_an_order_outlasts_a_new_key_and_ends_with_the_node(rig: Rig) -> None:
    await rig.order("maintenance")
    token = await rig.one.new_token("web-1", replace=True)
    assert (await rig.one.knock("web-1", token)).status == 201
    assert await rig.scheduling() == "maintenance"
    await rig.one.remove("web-1")
    await rig.one.allow("web-1")
    assert (await rig.one.knock("web-1", await rig.one.new_token("web-1"))).status == 201
    assert await rig.scheduling() == "active"
