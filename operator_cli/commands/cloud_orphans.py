"""`enlist cloud orphans`: what is ours at a provider and belongs to nothing that is known."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import cloud_resources as calls
from operator_cli import (
    arguments,
    columns,
    connection,
    lazy,
    moments,
    money,
    printing,
    resource_lines,
)
from wire_protocol import cloud_words


@click.group("orphans", cls=lazy.Group, no_args_is_help=True)
def orphans() -> None:
    """What carries this installation's id at a provider and belongs to nothing that is known.

    Examples:
      enlist cloud orphans list
      enlist cloud orphans delete hetzner machine 4711 --wait
      enlist cloud orphans adopt hetzner 4711 web-1
    """


@arguments.command(orphans, "list")
@resource_lines.THROUGH
@arguments.INFRA
def list_(*, connection_name: str | None, infra: str | None) -> None:
    """List orphans, with what each costs, as the last sweep found them.

    Examples:
      enlist cloud orphans list
      enlist cloud orphans list --connection hetzner
    """
    found = connection.ask(calls.orphans(infra=infra))
    if connection_name is not None:
        kept = [one for one in found["orphans"] if one["connection"] == connection_name]
        found = {**found, "orphans": kept}
    printing.show(found, lines=lambda: _table(found))


@arguments.command(orphans, "delete")
@click.argument("through", metavar="CONNECTION")
@click.argument("kind", type=click.Choice(cloud_words.ORPHAN_KINDS))
@click.argument("ref", metavar="REF")
@resource_lines.WAIT
def delete(through: str, kind: str, ref: str, *, wait: bool) -> None:
    """Have the orphan of that kind with the provider's id REF deleted, and confirmed gone.

    Looked at once more before: what has become known meanwhile is left alone.

    Example:
      enlist cloud orphans delete hetzner machine 4711 --wait
    """
    call = calls.delete_orphan(connection=through, kind=kind, provider_ref=ref)
    resource_lines.begin(call, question=f"Delete the {kind} {ref} at {through}?", wait=wait)


@arguments.command(orphans, "adopt")
@click.argument("through", metavar="CONNECTION")
@click.argument("ref", metavar="REF")
@click.argument("node", metavar="NODE")
def adopt(through: str, ref: str, node: str) -> None:
    """Say that the orphan machine with the provider's id REF is the one of NODE.

    It is a machine like any other from then on: listed, billed since it was made, rebooted and
    deleted. The node itself is not touched; where it has never enrolled, delete the machine and
    order another.

    Example:
      enlist cloud orphans adopt hetzner 4711 web-1
    """
    call = calls.adopt_orphan(connection=through, provider_ref=ref, node_id=node)
    done = connection.change(call, question=f"Adopt the machine {ref} at {through} as {node}?")
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _table(found: Any) -> Iterator[str]:
    if not found["orphans"]:
        yield "No orphans."
        return
    yield from columns.table(
        ("CONNECTION", "KIND", "REF", "NAME", "REGION", "PRICE", "SINCE", "DELETING"),
        [
            (
                one["connection"],
                one["kind"],
                one["provider_ref"],
                one["name"],
                one["region"],
                money.hourly(one["price"]),
                moments.local(one["first_seen_at"]),
                "yes" if one["delete_asked_at"] else "no",
            )
            for one in found["orphans"]
        ],
    )
    if found["more"]:
        yield "There are more: delete these first."
