"""The commands of `enlist nodes` that change a node."""

from typing import Any

import click

from enlist import calls, nodes
from operator_cli import arguments, connection, global_options, printing
from operator_cli.commands import node_facts


def add_to(group: click.Group) -> None:
    """Hangs the commands into the group."""
    for command in (label, remove, allow, maintenance, drain, resume):
        group.add_command(command)


@click.command("label", cls=global_options.Command)
@arguments.NODE
@click.argument(
    "changes", nargs=-1, required=True, metavar="K=V|K-...", callback=arguments.label_changes
)
def label(node_id: str, changes: dict[str, str | None]) -> None:
    """Set (K=V) and take away (K-) placement labels.

    Example:
      enlist nodes label web-1 role=web rack-
    """
    node = connection.change(nodes.label(node_id, labels=changes))
    if node is not None:
        printing.show(node, lines=lambda: node_facts.lines(node))


@click.command("remove", cls=global_options.Command)
@arguments.NODE
@click.option("--force", is_flag=True, help="Even while work is placed on it.")
def remove(node_id: str, *, force: bool) -> None:
    """End the trust in node ID and leave a tombstone.

    The tombstone keeps the id from being reused by accident. Asks on a terminal; --yes answers.
    Refused (exit code 4) while work is placed on the node.

    Examples:
      enlist nodes remove web-1
      enlist nodes remove web-1 --check
    """
    _done(
        nodes.remove(node_id, force=force),
        question=f"Remove the node {node_id}? It can come back only by a new enrollment.",
    )


@click.command("allow", cls=global_options.Command)
@arguments.NODE
def allow(node_id: str) -> None:
    """Lift the tombstone of a removed node.

    Its id can then be enrolled again.

    Example:
      enlist nodes allow web-1
    """
    _done(nodes.allow(node_id))


@click.command("maintenance", cls=global_options.Command)
@arguments.NODE
@arguments.REASON
def maintenance(node_id: str, reason: str) -> None:
    """Give node ID no new work; what runs there stays.

    Ends with enlist nodes resume. Refused (exit code 4) once the node is drained.

    Example:
      enlist nodes maintenance web-1 --reason "new disk"
    """
    _done(nodes.maintenance(node_id, reason=reason))


@click.command("drain", cls=global_options.Command)
@arguments.NODE
@arguments.REASON
def drain(node_id: str, reason: str) -> None:
    """Move the work off node ID and give it no more.

    This version places no work yet, so the node is drained at once.

    Examples:
      enlist nodes drain web-1 --reason "to be replaced"
      enlist nodes drain web-1 --check
    """
    _done(nodes.drain(node_id, reason=reason))


@click.command("resume", cls=global_options.Command)
@arguments.NODE
@arguments.REASON
def resume(node_id: str, reason: str) -> None:
    """Take node ID back into service.

    Example:
      enlist nodes resume web-1
    """
    _done(nodes.resume(node_id, reason=reason))


def _done(call: calls.Call[Any], *, question: str | None = None) -> None:
    done = connection.change(call, question=question)
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))
