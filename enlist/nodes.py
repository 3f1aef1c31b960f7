"""Nodes: list, show, label, remove, take out of and into service, give orders, update."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin
    from wire_protocol import operations as models


def list_(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    infra: str | None = None,
    label: Sequence[str] = (),
) -> "calls.Call[admin.NodeList]":
    """One page of the nodes, with the enrollments that are still open."""
    return calls.Call(
        method="GET",
        path="/nodes",
        answer="admin:NodeList",
        query=calls.page_query(limit=limit, cursor=cursor, infra=infra, label=label),
    )


def get(node_id: str) -> "calls.Call[admin.Node]":
    """One node; raises `NotFound`."""
    return calls.Call(method="GET", path=_path(node_id), answer="admin:Node")


def label(node_id: str, *, labels: Mapping[str, str | None]) -> "calls.Call[admin.Node]":
    """Sets placement labels and takes away those given as None; answers the node."""
    return calls.Call(
        method="PATCH",
        path=_path(node_id),
        answer="admin:Node",
        body={"labels": dict(labels)},
        repeatable=True,
    )


def remove(node_id: str, *, force: bool = False) -> "calls.Call[admin.Done]":
    """Ends the node's trust, leaves a tombstone; raises `Conflict` while work is placed on it."""
    return calls.Call(
        method="DELETE",
        path=_path(node_id),
        answer="admin:Done",
        query=calls.given(force="true" if force else None),
    )


def allow(node_id: str) -> "calls.Call[admin.Done]":
    """Lifts the tombstone of a removed node, so that its id can be enrolled again."""
    return calls.Call(
        method="POST", path=f"{_path(node_id)}/allow", answer="admin:Done", keyed=True
    )


def maintenance(node_id: str, *, reason: str = "") -> "calls.Call[admin.Done]":
    """Gives the node no new work; what runs stays. Raises `Conflict` once it is drained."""
    return _schedule(node_id, verb="maintenance", reason=reason)


def drain(node_id: str, *, reason: str = "") -> "calls.Call[admin.Done]":
    """Moves the work off the node and gives it no more; raises `Conflict` in `fenced`."""
    return _schedule(node_id, verb="drain", reason=reason)


def resume(node_id: str, *, reason: str = "") -> "calls.Call[admin.Done]":
    """Takes the node back into service."""
    return _schedule(node_id, verb="resume", reason=reason)


def order(
    node_id: str, *, kind: str, ttl_seconds: int | None = None, purpose: str | None = None
) -> "calls.Call[admin.Order]":
    """Orders the node's Agent to do something; answers at once, the order is `queued` then."""
    return calls.Call(
        method="POST",
        path=f"{_path(node_id)}/orders",
        answer="admin:Order",
        body=calls.given(kind=kind, ttl_seconds=ttl_seconds, purpose=purpose),
        keyed=True,
    )


def orders(
    node_id: str, *, limit: int | None = None, cursor: str | None = None
) -> "calls.Call[admin.OrderList]":
    """One page of the node's orders, newest first."""
    return calls.Call(
        method="GET",
        path=f"{_path(node_id)}/orders",
        answer="admin:OrderList",
        query=calls.page_query(limit=limit, cursor=cursor, infra=None),
    )


def cancel_order(node_id: str, *, order_id: str) -> "calls.Call[admin.Done]":
    """Takes back an order that the node has not taken; raises `Conflict` otherwise."""
    return calls.Call(
        method="DELETE",
        path=f"{_path(node_id)}/orders/{calls.part(order_id)}",
        answer="admin:Done",
    )


def update(
    node_ids: Sequence[str] = (), *, version: str | None = None
) -> "calls.Call[models.UpdateAnswer]":
    """Has nodes run another release, one after the other; none named: all that can be.

    Answers at once; `client.operations.get` says how it goes. Raises `Conflict` where a named node
    cannot be updated.
    """
    return calls.Call(
        method="POST",
        path="/nodes/update",
        answer="operations:UpdateAnswer",
        body=calls.given(node_ids=list(node_ids), version=version),
        keyed=True,
    )


def roll_back(node_id: str, *, reason: str = "") -> "calls.Call[models.Operation]":
    """Has the node run the release before its present one; answers at once, as `update` does."""
    return calls.Call(
        method="POST",
        path=f"{_path(node_id)}/roll-back",
        answer="operations:Operation",
        body=calls.given(reason=reason or None),
        keyed=True,
    )


def _schedule(node_id: str, *, verb: str, reason: str) -> "calls.Call[admin.Done]":
    return calls.Call(
        method="POST",
        path=f"{_path(node_id)}/{verb}",
        answer="admin:Done",
        body=calls.given(reason=reason or None),
        keyed=True,
    )


def _path(node_id: str) -> str:
    return f"/nodes/{calls.part(node_id)}"


class Nodes(methods.Noun):
    """`client.nodes`."""

    list = methods.Sync(list_)
    iterate = methods.Items(list_, of=lambda page: page.nodes)
    get = methods.Sync(get)
    label = methods.Sync(label)
    remove = methods.Sync(remove)
    allow = methods.Sync(allow)
    maintenance = methods.Sync(maintenance)
    drain = methods.Sync(drain)
    resume = methods.Sync(resume)
    order = methods.Sync(order)
    iterate_orders = methods.Items(orders, of=lambda page: page.orders)
    orders = methods.Sync(orders)
    cancel_order = methods.Sync(cancel_order)
    update = methods.Sync(update)
    roll_back = methods.Sync(roll_back)


class AsyncNodes(methods.AsyncNoun):
    """`client.nodes`, to be awaited."""

    list = methods.Async(list_)
    iterate = methods.AsyncItems(list_, of=lambda page: page.nodes)
    get = methods.Async(get)
    label = methods.Async(label)
    remove = methods.Async(remove)
    allow = methods.Async(allow)
    maintenance = methods.Async(maintenance)
    drain = methods.Async(drain)
    resume = methods.Async(resume)
    order = methods.Async(order)
    iterate_orders = methods.AsyncItems(orders, of=lambda page: page.orders)
    orders = methods.Async(orders)
    cancel_order = methods.Async(cancel_order)
    update = methods.Async(update)
    roll_back = methods.Async(roll_back)
