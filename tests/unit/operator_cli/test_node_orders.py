"""`enlist nodes order`, `orders` and `cancel-order`, for people and as JSON, and the exit codes."""

import pytest

from tests.support import standin
from tests.support.cli_runs import Enlist


@pytest.fixture(autouse=True)
def _node(platform: standin.StandIn) -> None:
    platform.add_node("web-1")


def test_an_order_is_given_and_shown_as_it_stands(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist("nodes", "order", "web-1", "renew", "--purpose", "new disk", "-o", "json")
    assert done.code == 0
    assert done.json["state"] == "queued"
    seen = platform.seen[-1]
    assert (seen.method, seen.path) == ("POST", "/nodes/web-1/orders")
    assert seen.body == {"kind": "renew", "ttl_seconds": 3600, "purpose": "new disk"}
    assert "idempotency-key" in seen.headers


def test_the_time_is_given_in_minutes_up_to_a_week(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    enlist("nodes", "order", "web-1", "renew", "--ttl-minutes", "10080")
    assert platform.seen[-1].body["ttl_seconds"] == 7 * 86_400
    assert enlist("nodes", "order", "web-1", "renew", "--ttl-minutes", "10081").code == 2


ENDS = {
    "done": (0, ""),
    "failed": (3, "failed: The disk is full."),
    "cancelled": (4, "was taken back"),
    "expired": (75, "was not taken in time"),
}


@pytest.mark.parametrize("state", ENDS)
def test_a_command_that_waits_ends_with_what_became_of_the_order(
    enlist: Enlist, platform: standin.StandIn, state: str
) -> None:
    code, said = ENDS[state]
    platform.becomes = [("queued", None), ("accepted", None), (state, "The disk is full.")]
    done = enlist("nodes", "order", "web-1", "refresh-trust", "--wait", "-o", "json")
    assert done.code == code
    assert done.json["state"] == state
    assert said in done.err
    looks = [seen for seen in platform.seen if seen.method == "GET"]
    assert len(looks) == 3
    assert looks[0].query == {"limit": ["1"], "cursor": ["1.2"]}


def test_check_changes_nothing_and_waits_for_nothing(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist("nodes", "order", "web-1", "renew", "--wait", "--check")
    assert done.code == 0
    assert platform.orders == []
    assert len(platform.seen) == 1


def test_a_kind_that_is_none_is_told_before_anything_is_sent(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    done = enlist("nodes", "order", "web-1", "reboot")
    assert done.code == 2
    assert "refresh-trust" in done.err
    assert platform.seen == []


def test_orders_are_a_table_and_what_a_node_says_cannot_steer_the_terminal(
    enlist: Enlist, platform: standin.StandIn
) -> None:
    assert enlist("nodes", "orders", "web-1").out == "No orders so far.\n"
    platform.orders = [standin.order("web-1", state="failed", detail="\x1b[2Jgone")]
    lines = enlist("nodes", "orders", "web-1").out.splitlines()
    assert lines[0].split() == ["ORDER", "KIND", "STATE", "GIVEN", "BY", "EXPIRES", "DETAIL"]
    assert lines[1].split()[1:3] == ["renew", "failed"]
    assert "\x1b" not in lines[1]
    found = enlist("nodes", "orders", "web-1", "-o", "json").json
    assert [one["order_id"] for one in found["orders"]] == ["00112233445566ff"]


def test_an_order_is_taken_back_by_its_id(enlist: Enlist, platform: standin.StandIn) -> None:
    assert enlist("nodes", "cancel-order", "web-1", "00112233445566ff").code == 0
    assert platform.seen[-1].path == "/nodes/web-1/orders/00112233445566ff"
    assert platform.seen[-1].method == "DELETE"
