"""The commands of `enlist nodes` that order a node's Agent to do something."""

import datetime
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from enlist import errors, nodes
from operator_cli import arguments, columns, connection, global_options, moments, printing
from wire_protocol import times

KINDS: Final = ("refresh-trust", "renew")
_MOST_MINUTES: Final = 7 * 24 * 60
_ASK_SECONDS: Final = 0.5
_LONGER_SECONDS: Final = 30.0  # after the order's end: its result may be under way
_OPEN: Final = ("queued", "accepted")


def add_to(group: click.Group) -> None:
    """Hangs the commands into the group."""
    for command in (order, orders, cancel_order):
        group.add_command(command)


@click.command("order", cls=global_options.Command)
@arguments.NODE
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.option("--wait", is_flag=True, help="Wait until the node has answered or the time is over.")
@click.option(
    "--ttl-minutes",
    type=click.IntRange(1, _MOST_MINUTES),
    default=60,
    show_default=True,
    help="After that it is not carried out any more.",
)
@click.option("--purpose", metavar="TEXT", help="Why; kept beside the order.")
def order(node_id: str, kind: str, *, wait: bool, ttl_minutes: int, purpose: str | None) -> None:
    """Order the Agent of node ID to do KIND.

    refresh-trust: ask the Platform for its trust keys now. renew: renew the certificate now.

    The order is signed and waits until the node can be reached; the Agent carries it out once at
    most. With --wait the exit code says what became of it: 0 done, 3 failed, 4 taken back, 75 not
    taken in time.

    Examples:
      enlist nodes order web-1 refresh-trust
      enlist nodes order web-1 renew --wait --ttl-minutes 5
    """
    call = nodes.order(node_id, kind=kind, ttl_seconds=ttl_minutes * 60, purpose=purpose)
    given = connection.change(call)
    if given is None:
        return
    if wait:
        given = _until_ended(given)
    printing.show(given, lines=lambda: _lines(given))
    if wait:
        _tell_end(given)


@click.command("orders", cls=global_options.Command)
@arguments.NODE
@arguments.LIMIT
def orders(node_id: str, limit: int) -> None:
    """Show the orders to node ID, newest first.

    Example:
      enlist nodes orders web-1 --limit 10
    """
    call = nodes.orders(node_id, limit=min(limit, 500))
    found = connection.every(call, of="orders", limit=limit)
    printing.show({"orders": found}, lines=lambda: _table(found))


@click.command("cancel-order", cls=global_options.Command)
@arguments.NODE
@click.argument("order_id", metavar="ORDER")
def cancel_order(node_id: str, order_id: str) -> None:
    """Take back an ORDER that node ID has not taken.

    Refused (exit code 4) once the node has taken it.

    Example:
      enlist nodes cancel-order web-1 0123456789abcdef
    """
    done = connection.change(nodes.cancel_order(node_id, order_id=order_id))
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _until_ended(given: dict[str, Any]) -> dict[str, Any]:
    """Asks until the order has ended; the last answer where it does not."""
    longest = times.from_rfc3339(given["expires_at"]) - times.from_rfc3339(given["created_at"])
    longest += datetime.timedelta(seconds=_LONGER_SECONDS)
    before = (given["epoch"], given["sequence"] + 1)
    call = nodes.orders(
        given["node_id"], limit=1, cursor=".".join(str(number) for number in before)
    )
    until = time.monotonic() + longest.total_seconds()
    with connection.client() as opened:
        while given["state"] in _OPEN and time.monotonic() < until:
            moments.pause(_ASK_SECONDS)
            given = opened.document(call)["orders"][0]
    return given


def _tell_end(given: dict[str, Any]) -> None:
    """Ends with the code that says what became of it."""
    said = f"The order {given['kind']} to {given['node_id']}"
    match given["state"]:
        case "done":
            return
        case "failed":
            raise errors.Refused(f"{said} failed: {given['detail']}")
        case "cancelled":
            raise errors.Conflict(f"{said} was taken back: {given['detail'] or 'by an operator'}")
        case "expired":
            raise errors.Temporary(f"{said} was not taken in time. Is the node there?")
        case _:
            raise errors.Temporary(f"{said} was taken, and its result is not known yet.")


def _lines(given: dict[str, Any]) -> list[str]:
    moments_of = ("created_at", "expires_at", "accepted_at", "ended_at")
    return columns.facts(
        [
            (name, moments.local(value) if name in moments_of else value)
            for name, value in given.items()
        ]
    )


def _table(found: list[Any]) -> Iterator[str]:
    if not found:
        yield "No orders so far."
        return
    now = moments.now()
    yield from columns.table(
        ("ORDER", "KIND", "STATE", "GIVEN", "BY", "EXPIRES", "DETAIL"),
        [
            (
                one["order_id"],
                one["kind"],
                one["state"],
                moments.local(one["created_at"]),
                one["created_by"],
                moments.ago(one["expires_at"], now=now) if one["state"] in _OPEN else None,
                one["detail"],
            )
            for one in found
        ],
    )
