"""`enlist cloud volumes`: disks that outlive machines."""

import click

from enlist import cloud_resources as calls
from operator_cli import arguments, lazy, resource_lines

_NOUN, _ONE = "volumes", "volume"


@click.group(_NOUN, cls=lazy.Group, no_args_is_help=True)
def volumes() -> None:
    """Disks that outlive machines: create, attach, detach, delete.

    Examples:
      enlist cloud volumes create data --connection hetzner --region fsn1 --size-gigabytes 50 --wait
      enlist cloud volumes attach data web-1 --wait
    """


@arguments.command(volumes, "list")
@resource_lines.THROUGH
@arguments.LABELLED
@arguments.INFRA
def list_(*, connection_name: str | None, label: tuple[str, ...], infra: str | None) -> None:
    """List the volumes, with the node whose machine has each.

    Example:
      enlist cloud volumes list
    """
    resource_lines.show_all(
        calls.list_volumes, noun=_NOUN, connection_name=connection_name, infra=infra, label=label
    )


@arguments.command(volumes, "create")
@resource_lines.RESOURCE
@click.option("--connection", "connection_name", required=True, metavar="NAME")
@click.option("--region", required=True, metavar="REGION", help="Where its machine is.")
@click.option("--size-gigabytes", required=True, type=click.IntRange(1, 16_384), metavar="N")
@arguments.LABELS
@resource_lines.WAIT
def create(
    name: str,
    *,
    connection_name: str,
    region: str,
    size_gigabytes: int,
    labels: dict[str, str],
    wait: bool,
) -> None:
    """Have a volume made; it hangs on no machine until it is attached.

    Example:
      enlist cloud volumes create data --connection hetzner --region fsn1 --size-gigabytes 50 --wait
    """
    call = calls.create_volume(
        name,
        connection=connection_name,
        region=region,
        size_gigabytes=size_gigabytes,
        labels=labels,
    )
    question = f"Have a volume of {size_gigabytes} GB made in {region}? It costs until deleted."
    resource_lines.begin(call, question=question, wait=wait)


resource_lines.add_attaching(volumes, noun=_NOUN, one=_ONE)
resource_lines.add_showing(volumes, build=calls.list_volumes, noun=_NOUN, one=_ONE)
resource_lines.add_ending(volumes, noun=_NOUN, one=_ONE)
