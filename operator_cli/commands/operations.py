"""`enlist operations`: what takes time, how it stands, following it to its end, and deciding."""

from typing import Any

import click

from enlist import calls as call_kit
from enlist import operations as calls
from operator_cli import arguments, connection, following, lazy, printing
from wire_protocol import cloud_words

_PAGE = 500
_ID = click.argument("operation_id", metavar="OPERATION")
_NAMED = click.argument("name", metavar="OPERATION|NODE")
_WAIT = click.option("--wait", is_flag=True, help="Follow it to its end; the exit code says how.")


@click.group(cls=lazy.Group, no_args_is_help=True)
def operations() -> None:
    """Look at what takes time, such as orders of machines and updates of nodes.

    Examples:
      enlist operations list --open
      enlist operations watch web-1
      enlist operations retry 0123456789abcdef --wait
    """


@arguments.command(operations, "list")
@click.option("--node", "node_id", metavar="ID", help="Only those on this node.")
@click.option("--open", "is_open", is_flag=True, help="Only those that have not ended.")
@click.option("--state", metavar="STATE", help="Only those in this state, such as failed.")
@arguments.INFRA
@arguments.LIMIT
def list_(
    *, node_id: str | None, is_open: bool, state: str | None, infra: str | None, limit: int
) -> None:
    """List operations, newest first.

    Examples:
      enlist operations list --open
      enlist operations list --state failed
      enlist operations list --node web-1 --limit 10 -o json
    """
    call = calls.list_(
        limit=_PAGE if state else min(limit, _PAGE),
        infra=infra,
        node_id=node_id,
        is_open=True if is_open else None,
    )
    found = connection.every(call, of="operations", limit=None if state else limit)
    if state:
        found = [one for one in found if one["state"] == state][:limit]
    printing.show({"operations": found}, lines=lambda: following.table(found))


@arguments.command(operations, "show")
@_NAMED
def show(name: str) -> None:
    """Show one operation with its steps and parts.

    A node's id means its newest operation that is open, else its newest.

    Examples:
      enlist operations show 0123456789abcdef
      enlist operations show web-1
    """
    found = following.get_named(name)
    printing.show(found, lines=lambda: following.lines(found))


@arguments.command(operations, "watch")
@_NAMED
def watch(name: str) -> None:
    """Follow one operation to its end.

    A node's id means its newest operation that is open, else its newest. Each change is a line on
    stderr, on a terminal with a bar below. The exit code says how it went: 0 done, 3 failed, 4
    cancelled, 6 a person must act, 75 it may work when asked for again.

    Examples:
      enlist operations watch 0123456789abcdef
      enlist operations watch web-1
    """
    found = following.follow_named(name)
    printing.show(found, lines=lambda: following.lines(found))
    following.tell_end(found)


@arguments.command(operations, "retry")
@_ID
@_WAIT
def retry(operation_id: str, *, wait: bool) -> None:
    """Begin a failed operation again, where it says that it is retryable.

    Never order the same machine a second time instead: what the first order may have made is looked
    for before anything is sent again.

    Example:
      enlist operations retry 0123456789abcdef --wait
    """
    _act(calls.retry(operation_id), question=None, wait=wait)


@arguments.command(operations, "cancel")
@_ID
@_WAIT
def cancel(operation_id: str, *, wait: bool) -> None:
    """End an operation that is open.

    What an order has made already is deleted, and confirmed gone before it counts as cancelled.

    Example:
      enlist operations cancel 0123456789abcdef --wait
    """
    question = f"Cancel the operation {operation_id}, and delete what it has made?"
    _act(calls.cancel(operation_id), question=question, wait=wait, is_ending=True)


@arguments.command(operations, "resolve")
@_ID
@click.argument("choice", type=click.Choice(cloud_words.CHOICES))
@click.option(
    "--ref", "provider_ref", metavar="REF", help="Which machine, by the provider's id; for adopt."
)
@_WAIT
def resolve(operation_id: str, choice: str, *, provider_ref: str | None, wait: bool) -> None:
    """Decide an operation whose outcome at the provider could not be found out.

    Look at the provider first. adopt: the machine is there and is this order's; only one that
    carries its tags is taken. retry: there is none, order again. give-up: there is none, end it.

    Examples:
      enlist operations resolve 0123456789abcdef adopt --ref 4711
      enlist operations resolve 0123456789abcdef give-up
    """
    call = calls.resolve(operation_id, choice=choice, provider_ref=provider_ref)
    question = f"Resolve the operation {operation_id} by {choice}?"
    _act(call, question=question, wait=wait)


def _act(
    call: call_kit.Call[Any], *, question: str | None, wait: bool, is_ending: bool = False
) -> None:
    given = connection.change(call, question=question)
    if given is not None:
        following.show_begun(given, wait=wait, is_ending=is_ending)
