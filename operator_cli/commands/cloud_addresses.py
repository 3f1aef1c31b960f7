"""`enlist cloud addresses`: stable addresses that outlive machines."""

import click

from enlist import cloud_resources as calls
from operator_cli import arguments, lazy, resource_lines

_NOUN, _ONE = "addresses", "address"


@click.group(_NOUN, cls=lazy.Group, no_args_is_help=True)
def addresses() -> None:
    """Stable addresses that outlive machines: create, attach, detach, delete.

    Examples:
      enlist cloud addresses create front --connection hetzner --region fsn1 --wait
      enlist cloud addresses attach front web-1 --wait
    """


@arguments.command(addresses, "list")
@resource_lines.THROUGH
@arguments.LABELLED
@arguments.INFRA
def list_(*, connection_name: str | None, label: tuple[str, ...], infra: str | None) -> None:
    """List the addresses; most providers bill one that hangs on nothing.

    Example:
      enlist cloud addresses list
    """
    resource_lines.show_all(
        calls.list_addresses, noun=_NOUN, connection_name=connection_name, infra=infra, label=label
    )


@arguments.command(addresses, "create")
@resource_lines.RESOURCE
@click.option("--connection", "connection_name", required=True, metavar="NAME")
@click.option("--region", required=True, metavar="REGION", help="Where its machine is.")
@arguments.LABELS
@resource_lines.WAIT
def create(
    name: str, *, connection_name: str, region: str, labels: dict[str, str], wait: bool
) -> None:
    """Have a stable address reserved.

    Example:
      enlist cloud addresses create front --connection hetzner --region fsn1 --wait
    """
    call = calls.create_address(name, connection=connection_name, region=region, labels=labels)
    question = f"Have an address reserved in {region}? It costs until deleted."
    resource_lines.begin(call, question=question, wait=wait)


resource_lines.add_attaching(addresses, noun=_NOUN, one=_ONE)
resource_lines.add_showing(addresses, build=calls.list_addresses, noun=_NOUN, one=_ONE)
resource_lines.add_ending(addresses, noun=_NOUN, one=_ONE)
