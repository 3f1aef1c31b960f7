"""The commands of `enlist nodes` that change which release nodes run."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from enlist import nodes
from operator_cli import arguments, columns, connection, following, global_options, printing
from wire_protocol import ids, versions

_WAIT = click.option("--wait", is_flag=True, help="Follow it to its end; the exit code says how.")


def add_to(group: click.Group) -> None:
    """Hangs the commands into the group."""
    for command in (update, roll_back):
        group.add_command(command)


def _node_ids(
    context: click.Context, parameter: click.Parameter, value: Sequence[str]
) -> list[str]:
    try:
        return [ids.parse_node_id(one) for one in value]
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error


def _version(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            versions.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error
    return value


@click.command("update", cls=global_options.Command)
@click.argument("node_ids", metavar="[ID]...", nargs=-1, callback=_node_ids)
@click.option(
    "--version",
    "release_version",
    metavar="V",
    callback=_version,
    help="To this version.  [default: the newest that the Platform has]",
)
@_WAIT
def update(*, node_ids: list[str], release_version: str | None, wait: bool) -> None:
    """Have nodes run another release, one after the other.

    Without ID: all that are ready and do not run it. Each node takes no new work, fetches the
    release, is restarted by its root helper, and takes work again once it was heard with the
    release and stayed. The first failure stops the rest; that node goes back to the release it
    had. What the Platform can give out: enlist platform bundles list

    Examples:
      enlist nodes update --check
      enlist nodes update web-1 web-2 --wait
    """
    question = None if node_ids else "Update all nodes, one after the other?"
    given = connection.change(nodes.update(node_ids, version=release_version), question=question)
    if given is None:
        return
    if wait and given["operation"] is not None:
        found = following.follow(given["operation"]["operation_id"])
        printing.show(
            {**given, "operation": found, "parts": found["parts"]},
            lines=lambda: following.table(found["parts"]),
        )
        following.tell_end(found)
    else:
        printing.show(given, lines=lambda: _begun(given))


@click.command("roll-back", cls=global_options.Command)
@arguments.NODE
@arguments.REASON
@_WAIT
def roll_back(node_id: str, *, reason: str, wait: bool) -> None:
    """Have node ID run the release before its present one.

    Example:
      enlist nodes roll-back web-1 --wait
    """
    given = connection.change(nodes.roll_back(node_id, reason=reason))
    if given is None:
        return
    if not wait:
        printing.show(given, lines=lambda: [_how_to_follow(given)])
        return
    found = following.follow(given["operation_id"])
    printing.show(found, lines=lambda: following.lines(found))
    following.tell_end(found)


def _begun(given: Any) -> Iterator[str]:
    if given["operation"] is None:
        yield "There is nothing to update."
    else:
        yield from following.table(given["parts"])
        yield _how_to_follow(given["operation"])
    for one in given["passed"]:
        yield f"{columns.clean(one['node_id'])} is passed over. {columns.clean(one['reason'])}"


def _how_to_follow(operation: Any) -> str:
    return f"Begun. Follow it: enlist operations watch {operation['operation_id']}"
