"""One node as lines for people."""

from collections.abc import Iterator
from typing import Any

from operator_cli import columns, moments


def lines(node: dict[str, Any]) -> Iterator[str]:
    """One node as lines of name and value."""
    special = {
        "labels": columns.pairs(node.get("labels")),
        "reported_labels": columns.pairs(node.get("reported_labels")),
        "capacity": columns.pairs(node.get("capacity")),
        "roles": columns.listed(node.get("roles")),
        "mesh": mesh(node.get("mesh")),
        "clock_offset_ms": moments.offset(node.get("clock_offset_ms")),
        **{
            name: moments.local(node.get(name))
            for name in ("enrolled_at", "last_seen_at", "probe_answered_at")
        },
    }
    yield from columns.facts([(name, special.get(name, node[name])) for name in node])


def mesh(place: dict[str, Any] | None) -> str | None:
    """The place in the mesh in one line; None where there is none."""
    if place is None:
        return None
    words = [str(place["address"]), str(place["state"])]
    if place["state"] != "up" and place["said_reason"]:
        words.append(f"({place['said_reason']})")
    return " ".join(words)
