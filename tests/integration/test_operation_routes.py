"""Asking for updates and roll backs over HTTP, and looking at operations, on either store."""

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from platform_server.backup import aftermath, manifest
from platform_server.endpoints import nodes as node_routes
from platform_server.endpoints import operations
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from tests.support import api, domain, operating

pytestmark = pytest.mark.timeout(120)
UPDATE, LIST = "/api/v1/nodes/update", "/api/v1/operations"


class Rig:
    """The routes over a domain with two nodes; `changed` counts what the reconciler heard of."""

    def __init__(self, one: domain.Domain) -> None:
        self.one = one
        self.engine = operating.Engine(one)
        self.changed = 0
        self.http: api.Api

    def hear(self) -> None:
        self.changed += 1

    async def update(self, *node_ids: str, **more: Any) -> httpx.Response:
        return await self.http.local.post(UPDATE, json={"node_ids": list(node_ids)}, **more)

    async def listed(self, query: str = "") -> dict[str, Any]:
        answered = await self.http.local.get(f"{LIST}{query}")
        assert answered.status_code == 200, answered.text
        found = answered.json()
        assert isinstance(found, dict)
        return found


@pytest.fixture
async def rig(store: contract.Store, tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    one = await domain.build(store, folder=tmp_path, clock=clock_kit.ManualClock(api.START))
    made = Rig(one)
    for node_id in ("web-1", "web-2"):
        await operating.node(one, node_id)
    served = operations.Operations(
        operators=one.operators, archives=made.engine.archives, changed=made.hear
    ).served()
    extra = (*node_routes.Nodes(one.operators).served(), *served)
    async with api.running(store, tmp_path, extra=extra) as http:
        made.http = http
        yield made


def _code(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["code"]


async def test_an_update_is_stored_with_a_part_for_each_node_and_the_reconciler_hears_of_it(
    rig: Rig,
) -> None:
    answered = await rig.update()
    assert answered.status_code == 201, answered.text
    given = answered.json()
    assert [part["node_id"] for part in given["parts"]] == ["web-1", "web-2"]
    assert given["parts"][0]["target"] == operating.RELEASE
    assert {part["state"] for part in given["parts"]} == {"requested"}
    assert rig.changed == 1
    shown = (await rig.http.local.get(f"{LIST}/{given['operation']['operation_id']}")).json()
    assert [part["operation_id"] for part in shown["parts"]] == [
        part["operation_id"] for part in given["parts"]
    ]
    assert shown["parts"][1]["depends_on"] == [given["parts"][0]["operation_id"]]
    actions = await operating.actions_of(rig.one.store)
    assert ("nodes.update", given["operation"]["operation_id"], None) in actions


async def test_under_check_the_plan_is_told_and_nothing_is_stored(rig: Rig) -> None:
    await operating.Node(rig.one, "web-2").is_lost()
    answered = await rig.update(params={"check": "true"})
    changes = answered.json()["changes"]
    assert [(one["action"], one["target"]) for one in changes] == [
        ("update-node", "web-1"),
        ("pass", "web-2"),
    ]
    assert changes[0]["detail"] == f"to {operating.RELEASE}"
    assert (rig.changed, (await rig.listed())["operations"]) == (0, [])


async def test_the_same_key_begins_one_and_another_body_is_told(rig: Rig) -> None:
    headers = {"Idempotency-Key": "once"}
    first, again = (
        await rig.update("web-1", headers=headers),
        await rig.update("web-1", headers=headers),
    )
    assert first.json() == again.json()
    assert len((await rig.listed())["operations"]) == 2
    other = await rig.update("web-2", headers=headers)
    assert _code(other) == (409, "idempotency-mismatch")
    assert other.json()["field"] == "node_ids"


async def test_what_cannot_be_is_refused_with_what_to_do(rig: Rig) -> None:
    assert _code(await rig.update("web-9")) == (404, "not-found")
    assert _code(await rig.update("no node")) == (422, "invalid")
    post = rig.http.local.post
    assert _code(await post(UPDATE, json={"version": "two"})) == (422, "invalid")
    assert _code(await post(UPDATE, json={"version": "99.0.0"})) == (409, "conflict")
    await operating.Node(rig.one, "web-2").is_lost()
    assert _code(await rig.update("web-2")) == (409, "node-state")
    await rig.update("web-1")
    busy = await post("/api/v1/nodes/web-1/roll-back", json={})
    assert _code(busy) == (409, "conflict")
    assert "enlist operations watch" in busy.json()["detail"]


async def test_a_roll_back_is_stored_as_one_operation(rig: Rig) -> None:
    path = "/api/v1/nodes/web-1/roll-back"
    given = await rig.http.local.post(path, json={"reason": "slow"})
    assert given.status_code == 201, given.text
    assert (given.json()["kind"], given.json()["node_id"]) == ("roll-back-node", "web-1")
    assert rig.changed == 1


async def test_a_list_is_narrowed_and_paged(rig: Rig) -> None:
    given = (await rig.update()).json()
    ids = [given["parts"][1]["operation_id"], given["parts"][0]["operation_id"]]
    ids.append(given["operation"]["operation_id"])
    found: list[str] = []
    page = await rig.listed("?limit=1")
    while True:
        found += [one["operation_id"] for one in page["operations"]]
        if page["next_cursor"] is None:
            break
        page = await rig.listed(f"?limit=1&cursor={page['next_cursor']}")
    assert found == ids
    of_node = await rig.listed("?node_id=WEB-2&open=true")
    assert [one["operation_id"] for one in of_node["operations"]] == ids[:1]
    assert (await rig.listed("?open=false"))["operations"] == []
    assert (await rig.listed("?infra=other"))["operations"] == []
    unknown = await rig.http.local.get(f"{LIST}/{'0' * 16}")
    assert _code(unknown) == (404, "not-found")


async def test_looking_and_changing_take_rights_of_their_own(rig: Rig) -> None:
    post, get = rig.http.public.post, rig.http.public.get
    nothing = await rig.http.token("nodes.view")
    look = await rig.http.token("operations.view")
    half = await rig.http.token("operations.view", "operations.manage")
    both = await rig.http.token("operations.view", "operations.manage", "nodes.manage")
    assert _code(await get(LIST, headers=nothing)) == (403, "not-permitted")
    assert (await get(LIST, headers=look)).status_code == 200
    body = {"node_ids": ["web-1"]}
    assert _code(await post(UPDATE, json=body, headers=look)) == (403, "not-permitted")
    check = {"check": "true"}
    assert (await post(UPDATE, json=body, headers=look, params=check)).status_code == 200
    refused = await post(UPDATE, json=body, headers=half)
    assert _code(refused) == (403, "not-permitted")
    assert "nodes.manage" in refused.json()["detail"]
    assert (await post(UPDATE, json=body, headers=both)).status_code == 201


async def test_a_node_may_be_called_update(rig: Rig) -> None:
    await operating.node(rig.one, "update")
    shown = await rig.http.local.get("/api/v1/nodes/update")
    assert shown.json()["node_id"] == "update"
    assert (await rig.http.local.put("/api/v1/nodes/update")).status_code == 405


async def test_where_dispatch_is_off_nothing_can_be_asked_for(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(store, folder=tmp_path)
    off = operations.Operations(
        operators=one.operators, archives=operating.Archives(), changed=None
    )
    async with api.running(store, tmp_path, extra=off.served()) as http:
        assert _code(await http.local.post(UPDATE, json={})) == (409, "nodes-disabled")
        assert (await http.local.get(LIST)).json() == {"operations": [], "next_cursor": None}


async def test_a_restore_carries_nothing_on(rig: Rig) -> None:
    await rig.update()
    await rig.engine.carry_on(rounds=2)
    restore = aftermath.Restore(
        restore_id="r1",
        actor="local:0",
        now=rig.one.clock.now(),
        head=manifest.Head(
            backup_id="b1",
            made_at=rig.one.clock.now(),
            environment="test",
            enlist_version="0.1.0",
            schema=3,
            platform_id=rig.one.trust.published.statement.platform_id,
            epoch=1,
            rows={},
        ),
    )
    await rig.one.store.transact(
        lambda tx: aftermath.settle(tx, restore=restore, keyring=rig.one.keyring)
    )
    found = {one["kind"]: one for one in (await rig.listed("?node_id=web-1"))["operations"]}
    assert found["update-node"]["state"] == "failed"
    assert found["update-node"]["class"] == "needs-operator"
    assert "restored" in found["update-node"]["reason"]
    waiting = (await rig.listed("?node_id=web-2"))["operations"]
    assert [one["state"] for one in waiting] == ["cancelled"]
    await rig.engine.carry_on(rounds=2)
    assert (await rig.listed("?open=true"))["operations"] == []
