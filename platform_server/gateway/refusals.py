"""The refusals of the gateway in words: each says what to do, as the machine's log will show it."""

import datetime

from runtime_kit.mux import link as links
from wire_protocol import ids, product, session, times


def of(code: session.Refusal, detail: str) -> links.Refusal:
    """A refusal with a code of the protocol."""
    return links.Refusal(code.value, detail)


def removed(node_id: ids.NodeId) -> links.Refusal:
    """The node is a tombstone, or unknown."""
    return of(
        session.Refusal.NODE_REMOVED,
        f"The node {node_id} was removed on the Platform. To let it in again: enlist nodes allow "
        f"{node_id}, then join with a new token.",
    )


def newer(version: str) -> links.Refusal:
    """The machine is newer than the Platform."""
    return of(
        session.Refusal.WORKER_NEWER,
        f"This machine runs Enlist {version}, the Platform {product.VERSION}. Update the Platform.",
    )


def conflict(
    node_id: ids.NodeId,
    *,
    address: str,
    first_at: datetime.datetime,
    running_at: str | None,
    running_since: datetime.datetime | None,
) -> links.Refusal:
    """The identity is used twice: both addresses, and since when each is known."""
    if running_at is None or running_since is None:
        runs = f"The node {node_id} has gone on elsewhere since this identity was stored."
    else:
        runs = f"The node {node_id} runs at {running_at} since {times.to_rfc3339(running_since)}."
    return of(
        session.Refusal.GENERATION_CONFLICT,
        f"{runs} This machine, at {address}, uses a copy of its identity (first seen "
        f"{times.to_rfc3339(first_at)}). If this one is the true {node_id}: enlist nodes "
        f"enroll-token {node_id} --replace, and join again here.",
    )


def out_of_turn(method: str) -> links.Refusal:
    """A question that has no place on this connection at this point."""
    return of(session.Refusal.INVALID, f"The question {method[:32]!r} has no place here.")


def invalid(detail: str) -> links.Refusal:
    """The question is out of shape."""
    return of(session.Refusal.INVALID, detail)


def not_now(detail: str) -> links.Refusal:
    """Try again later."""
    return of(session.Refusal.NOT_NOW, detail)
