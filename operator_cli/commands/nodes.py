"""`enlist nodes`: what is there, and what became of enrollments."""

import datetime
from collections.abc import Iterator
from typing import Any

import click

from enlist import enrollments
from enlist import nodes as node_calls
from operator_cli import arguments, columns, connection, lazy, moments, printing
from operator_cli.commands import (
    enrolling,
    node_changes,
    node_facts,
    node_orders,
    node_updates,
    platform,
)

_PAGE = 500  # the Platform's largest page, so that a long list takes few questions


@click.group(cls=lazy.Group, no_args_is_help=True)
def nodes() -> None:
    """List, enroll and remove nodes.

    Examples:
      enlist nodes list
      enlist nodes enroll-token web-1
      enlist nodes remove web-1
    """


@arguments.command(nodes, "list")
@click.option("--label", "label", multiple=True, metavar="K=V", help="Only with this label.")
@arguments.INFRA
def list_(label: tuple[str, ...], infra: str | None) -> None:
    """List nodes and the enrollments that are still open.

    Shows each node's state, compatibility with the Platform's version, clock offset, when it was
    last heard, and the reason where it is not ready.

    Examples:
      enlist nodes list
      enlist nodes list --label role=web -o json
    """
    found: dict[str, list[Any]] = {"nodes": [], "enrollments": []}
    call = node_calls.list_(limit=_PAGE, infra=infra, label=label)
    with connection.client() as opened:
        for page in connection.pages(opened, call):
            found["nodes"] += page["nodes"]
            known = {one["enrollment_id"] for one in found["enrollments"]}
            found["enrollments"] += [
                one for one in page["enrollments"] if one["enrollment_id"] not in known
            ]
    printing.show(found, lines=lambda: _table(found))


@arguments.command(nodes, "show")
@arguments.NODE
def show(node_id: str) -> None:
    """Show one node.

    Example:
      enlist nodes show web-1
    """
    node = connection.ask(node_calls.get(node_id))
    printing.show(node, lines=lambda: node_facts.lines(node))


@arguments.command(nodes, "platform")
def platform_() -> None:
    """Show what machines are told: addresses, pins, keys.

    Example:
      enlist nodes platform -o json
    """
    platform.print_platform()


@arguments.command(nodes, "audit")
@arguments.LIMIT
@arguments.INFRA
def audit(limit: int, infra: str | None) -> None:
    """Show the latest attempts to enroll, newest first.

    Repeats of one reason are counted in one line. The log is capped; what was done by people
    stands in enlist audit list.

    Example:
      enlist nodes audit --limit 20
    """
    call = enrollments.audit(limit=min(limit, _PAGE), infra=infra)
    attempts = connection.every(call, of="attempts", limit=limit)
    printing.show({"attempts": attempts}, lines=lambda: _attempts(attempts))


def _table(found: dict[str, list[Any]]) -> Iterator[str]:
    now = moments.now()
    if found["nodes"]:
        yield from _nodes(found["nodes"], now=now)
    elif found["enrollments"]:
        yield "No nodes yet."
    else:
        yield "No nodes yet. To enroll the first: enlist nodes enroll-token web-1"
    if found["enrollments"]:
        yield ""
        yield from columns.table(
            ("OPEN ENROLLMENT", "NODE", "EXPIRES", "BY"),
            [
                (
                    one["enrollment_id"],
                    one["node_id"],
                    moments.ago(one["expires_at"], now=now),
                    one["created_by"],
                )
                for one in found["enrollments"]
            ],
        )


def _nodes(nodes: list[Any], *, now: datetime.datetime) -> Iterator[str]:
    heads = ("NODE", "STATE", "VERSION", "COMPATIBILITY", "CLOCK", "LAST SEEN", "REASON")
    rows = [
        (
            node["node_id"],
            _state(node),
            node["version"],
            node["compatibility"],
            moments.offset(node["clock_offset_ms"]),
            moments.ago(node["last_seen_at"], now=now),
            node["reason"],
        )
        for node in nodes
    ]
    lines = columns.table(heads, rows)
    yield lines[0]
    for node, line in zip(nodes, lines[1:], strict=True):
        # Coloured after the columns have their widths, which escape sequences would spoil.
        shown = _state(node)
        yield line.replace(f"{columns.GAP}{shown}", f"{columns.GAP}{printing.state(shown)}", 1)


def _state(node: dict[str, Any]) -> str:
    scheduling = node.get("scheduling", "active")
    return node["state"] if scheduling == "active" else f"{node['state']},{scheduling}"


def _attempts(attempts: list[Any]) -> Iterator[str]:
    if not attempts:
        yield "No attempts to enroll so far."
        return
    yield from columns.table(
        ("LAST", "OUTCOME", "COUNT", "NODE", "VERSION", "REASON"),
        [
            (
                moments.local(one["last_at"]),
                one["outcome"],
                one["count"],
                one["node_id"],
                one["version"],
                one["reason"],
            )
            for one in attempts
        ],
    )


enrolling.add_to(nodes)
node_changes.add_to(nodes)
node_orders.add_to(nodes)
node_updates.add_to(nodes)
