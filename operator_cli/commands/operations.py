"""`enlist operations`: what takes time, how it stands, and following it to its end."""

import click

from enlist import operations as calls
from operator_cli import arguments, connection, following, lazy, printing

_PAGE = 500
_ID = click.argument("operation_id", metavar="OPERATION")


@click.group(cls=lazy.Group, no_args_is_help=True)
def operations() -> None:
    """Look at what takes time, such as updates of nodes.

    Examples:
      enlist operations list --open
      enlist operations watch 0123456789abcdef
    """


@arguments.command(operations, "list")
@click.option("--node", "node_id", metavar="ID", help="Only those on this node.")
@click.option("--open", "is_open", is_flag=True, help="Only those that have not ended.")
@arguments.INFRA
@arguments.LIMIT
def list_(*, node_id: str | None, is_open: bool, infra: str | None, limit: int) -> None:
    """List operations, newest first.

    Examples:
      enlist operations list --open
      enlist operations list --node web-1 --limit 10 -o json
    """
    call = calls.list_(
        limit=min(limit, _PAGE), infra=infra, node_id=node_id, is_open=True if is_open else None
    )
    found = connection.every(call, of="operations", limit=limit)
    printing.show({"operations": found}, lines=lambda: following.table(found))


@arguments.command(operations, "show")
@_ID
def show(operation_id: str) -> None:
    """Show one operation with its steps and parts.

    Example:
      enlist operations show 0123456789abcdef
    """
    found = connection.ask(calls.get(operation_id))
    printing.show(found, lines=lambda: following.lines(found))


@arguments.command(operations, "watch")
@_ID
def watch(operation_id: str) -> None:
    """Follow one operation to its end.

    Each change is a line on stderr. The exit code says how it went: 0 done, 3 failed, 4 cancelled,
    6 a person must act, 75 it may work when asked for again.

    Example:
      enlist operations watch 0123456789abcdef
    """
    found = following.follow(operation_id)
    printing.show(found, lines=lambda: following.lines(found))
    following.tell_end(found)
