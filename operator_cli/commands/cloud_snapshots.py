"""`enlist cloud snapshots`: images of machines, for other machines."""

import click

from enlist import cloud_resources as calls
from operator_cli import arguments, lazy, resource_lines

_NOUN, _ONE = "snapshots", "snapshot"


@click.group(_NOUN, cls=lazy.Group, no_args_is_help=True)
def snapshots() -> None:
    """Images of machines, for other machines: create, delete.

    Examples:
      enlist cloud snapshots create before-update web-1 --wait
      enlist cloud machines create web-2 --provider hetzner --image before-update
    """


@arguments.command(snapshots, "list")
@resource_lines.THROUGH
@arguments.LABELLED
@arguments.INFRA
def list_(*, connection_name: str | None, label: tuple[str, ...], infra: str | None) -> None:
    """List the snapshots.

    Example:
      enlist cloud snapshots list
    """
    resource_lines.show_all(
        calls.list_snapshots, noun=_NOUN, connection_name=connection_name, infra=infra, label=label
    )


@arguments.command(snapshots, "create")
@resource_lines.RESOURCE
@click.argument("machine", metavar="ID", callback=arguments.node_id)
@arguments.LABELS
@resource_lines.WAIT
def create(name: str, machine: str, *, labels: dict[str, str], wait: bool) -> None:
    """Have a snapshot NAME made of the machine of node ID.

    It holds what the machine holds, its identity as a node included: a machine that is made of it
    joins anew with a ticket of its own.

    Example:
      enlist cloud snapshots create before-update web-1 --wait
    """
    question = f"Have a snapshot of {machine} made? It costs until deleted."
    call = calls.create_snapshot(name, machine=machine, labels=labels)
    resource_lines.begin(call, question=question, wait=wait)


resource_lines.add_showing(snapshots, build=calls.list_snapshots, noun=_NOUN, one=_ONE)
resource_lines.add_ending(snapshots, noun=_NOUN, one=_ONE)
