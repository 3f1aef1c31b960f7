"""Giving, listing and taking back orders over HTTP, on either store."""

import functools
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from platform_server.endpoints import node_orders, nodes
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from tests.support import api, domain
from wire_protocol import ids, orders

pytestmark = pytest.mark.timeout(120)
CONFIGURED = {"db-1": {"url": "https://10.0.0.9:8443", "pin": "sha256:" + "a" * 64}}
ORDERS = "/api/v1/nodes/web-1/orders"


class Rig:
    """The routes over a domain with one node in it; `given` is what the delivery heard of."""

    def __init__(self, one: domain.Domain) -> None:
        self.one = one
        self.given: list[ids.NodeId] = []
        self.http: api.Api

    async def give(self, body: dict[str, Any] | None = None, **more: Any) -> httpx.Response:
        return await self.http.local.post(ORDERS, json=body or {"kind": "renew"}, **more)

    async def listed(self, query: str = "") -> list[dict[str, Any]]:
        answered = await self.http.local.get(f"{ORDERS}{query}")
        assert answered.status_code == 200, answered.text
        found = answered.json()["orders"]
        assert isinstance(found, list)
        return found


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
    made = Rig(one)
    routes = node_orders.NodeOrders(
        operators=one.operators,
        sign=functools.partial(one.trust.sign, context=orders.CONTEXT),
        given=made.given.append,
    )
    extra = (*nodes.Nodes(one.operators).served(), *routes.served())
    async with api.running(store, tmp_path, settings=settings, extra=extra) as http:
        made.http = http
        yield made


def _code(answered: httpx.Response) -> tuple[int, str]:
    return answered.status_code, answered.json()["code"]


async def test_an_order_is_stored_signed_and_the_delivery_hears_of_it(rig: Rig) -> None:
    answered = await rig.give({"kind": "renew", "ttl_seconds": 60, "purpose": "new disk"})
    assert answered.status_code == 201, answered.text
    order = answered.json()
    assert order["state"] == "queued"
    assert (order["epoch"], order["sequence"], order["tries"]) == (1, 1, 0)
    assert (order["purpose"], order["created_by"]) == ("new disk", "local:0")
    assert rig.given == ["web-1"]
    assert await rig.listed() == [order]
    row = await rig.one.store.read(lambda tx: tx.fetch_one("SELECT * FROM orders"))
    assert row is not None
    signed = json.loads(bytes(row["signed"]))
    assert signed == {
        "platform_id": rig.one.trust.published.statement.platform_id,
        "epoch": 1,
        "sequence": 1,
        "node_id": "web-1",
        "agent_id": "agent-web-1",
        "expires_at": order["expires_at"],
        "kind": "renew",
        "version": 1,
        "content": {},
    }
    (key,) = rig.one.trust.published.statement.trust_keys
    assert [key_id for key_id, _ in json.loads(row["signatures"])] == [key.key_id]


async def test_giving_and_taking_back_stand_in_the_action_log_and_the_events(rig: Rig) -> None:
    order = (await rig.give()).json()
    done = await rig.http.local.delete(f"{ORDERS}/{order['order_id']}")
    assert done.status_code == 200, done.text
    entries = (await rig.http.local.get("/api/v1/audit")).json()["entries"]
    said = [(one["action"], one["target"]) for one in reversed(entries)]
    assert said[-2:] == [("nodes.order", "web-1"), ("nodes.cancel-order", "web-1")]
    rows = await rig.one.store.read(
        lambda tx: tx.fetch_all("SELECT kind FROM events WHERE kind LIKE 'order.%' ORDER BY seq")
    )
    assert [row["kind"] for row in rows] == ["order.queued", "order.cancelled"]
    again = await rig.http.local.delete(f"{ORDERS}/{order['order_id']}")
    assert _code(again) == (409, "conflict")


async def test_under_check_nothing_is_given_and_nobody_is_woken(rig: Rig) -> None:
    answered = await rig.give(params={"check": "true"})
    assert answered.json()["changes"] == [
        {"action": "order", "target": "web-1", "detail": "renew, within 3600 s"}
    ]
    assert (rig.given, await rig.listed()) == ([], [])


async def test_the_same_key_gives_one_order_and_another_body_is_told(rig: Rig) -> None:
    headers = {"Idempotency-Key": "once"}
    first, again = await rig.give(headers=headers), await rig.give(headers=headers)
    assert first.json() == again.json()
    assert len(await rig.listed()) == 1
    other = await rig.give({"kind": "refresh-trust"}, headers=headers)
    assert _code(other) == (409, "idempotency-mismatch")
    assert other.json()["field"] == "kind"


async def test_giving_needs_the_right_to_manage_and_looking_the_right_to_look(rig: Rig) -> None:
    look = await rig.http.token("nodes.view")
    manage = await rig.http.token("nodes.manage")
    body = {"kind": "renew"}
    refused = await rig.http.public.post(ORDERS, json=body, headers=look)
    assert _code(refused) == (403, "not-permitted")
    checked = await rig.http.public.post(f"{ORDERS}?check=true", json=body, headers=look)
    assert checked.status_code == 200
    given = await rig.http.public.post(ORDERS, json=body, headers=manage)
    assert given.status_code == 201
    assert (await rig.http.public.get(ORDERS, headers=look)).status_code == 200
    order_id = given.json()["order_id"]
    refused = await rig.http.public.delete(f"{ORDERS}/{order_id}", headers=look)
    assert _code(refused) == (403, "not-permitted")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "reboot"}, "kind"),
        ({"kind": "renew", "ttl_seconds": 0}, "ttl_seconds"),
        ({"kind": "renew", "ttl_seconds": 7 * 86_400 + 1}, "ttl_seconds"),
        ({"kind": "renew", "purpose": "a\u001b[2J"}, "purpose"),
        ({"kind": "renew", "content": {}}, "content"),
        ({}, "kind"),
    ],
)
async def test_what_is_out_of_shape_is_named(rig: Rig, body: dict[str, Any], field: str) -> None:
    answered = await rig.http.local.post(ORDERS, json=body)
    assert _code(answered) == (422, "invalid")
    assert answered.json()["field"] == field


async def test_nodes_that_take_no_orders_are_told_apart(rig: Rig) -> None:
    async def give(node_id: str) -> httpx.Response:
        return await rig.http.local.post(f"/api/v1/nodes/{node_id}/orders", json={"kind": "renew"})

    assert _code(await give("nobody")) == (404, "not-found")
    assert _code(await give("db-1")) == (409, "node-exists")
    await rig.one.remove("web-1")
    assert _code(await give("web-1")) == (409, "node-state")
    assert _code(await rig.http.local.get("/api/v1/nodes/nobody/orders")) == (404, "not-found")


async def test_removing_a_node_ends_its_orders_in_the_same_step(rig: Rig) -> None:
    await rig.give()
    assert (await rig.http.local.delete("/api/v1/nodes/web-1")).status_code == 200
    assert [one["state"] for one in await rig.listed()] == ["cancelled"]


async def test_the_list_has_pages_newest_first_and_shows_what_is_over_at_once(rig: Rig) -> None:
    for _ in range(5):
        await rig.give()
    await rig.give({"kind": "renew", "ttl_seconds": 1})
    rig.http.clock.advance(2)
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = (await rig.http.local.get(f"{ORDERS}?limit=4{cursor}")).json()
        found += page["orders"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [one["sequence"] for one in found] == [6, 5, 4, 3, 2, 1]
    assert [one["state"] for one in found] == ["expired", *["queued"] * 5]
    late = await rig.http.local.delete(f"{ORDERS}/{found[0]['order_id']}")
    assert _code(late) == (409, "conflict")


async def test_an_order_of_another_node_is_not_found_here(rig: Rig) -> None:
    assert (await rig.one.knock("web-2", await rig.one.new_token("web-2"))).status == 201
    order = (await rig.give()).json()
    other = await rig.http.local.delete(f"/api/v1/nodes/web-2/orders/{order['order_id']}")
    assert _code(other) == (404, "not-found")


async def test_so_many_orders_and_no_more(rig: Rig) -> None:
    for _ in range(32):
        assert (await rig.give()).status_code == 201
    answered = await rig.give()
    assert _code(answered) == (409, "conflict")
    assert "enlist nodes orders web-1" in answered.json()["detail"]


async def test_with_dispatch_off_orders_are_refused_and_shown(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    one = await domain.build(store, folder=tmp_path, clock=clock_kit.ManualClock(api.START))
    assert (await one.knock("web-1", await one.new_token("web-1"))).status == 201
    off = node_orders.NodeOrders(operators=one.operators, sign=None, given=lambda _: None)
    async with api.running(store, tmp_path, extra=off.served()) as http:
        answered = await http.local.post(ORDERS, json={"kind": "renew"})
        assert _code(answered) == (409, "nodes-disabled")
        assert (await http.local.get(ORDERS)).json() == {"orders": [], "next_cursor": None}
