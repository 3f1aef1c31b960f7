"""`enlist cloud machines create`: the price first, then the order, then following it."""

import datetime
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from enlist import calls as call_kit
from enlist import cloud_machines as calls
from enlist import errors
from operator_cli import (
    arguments,
    columns,
    connection,
    following,
    global_options,
    moments,
    money,
    printing,
)
from wire_protocol import cloud_words

_MOST_KEY_BYTES = 4096
_BUILD_SECONDS = 900.0
_LOOK_SECONDS = 5.0


def _ssh_key(context: click.Context, parameter: click.Parameter, value: Path | None) -> str | None:
    """The public key in the file; a private one is refused and never sent."""
    if value is None:
        return None
    try:
        with value.open("rb") as file:
            text = file.read(_MOST_KEY_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise click.BadParameter(f"{value}: {reason}.", ctx=context, param=parameter) from error
    if "PRIVATE KEY" in text:
        raise click.BadParameter(
            f"{value} is a private key: give the public one, {value}.pub.",
            ctx=context,
            param=parameter,
        )
    if len(text.splitlines()) != 1 or len(text.split()) < 2:
        raise click.BadParameter(
            f"{value} does not hold one public SSH key.", ctx=context, param=parameter
        )
    return text


def _span(context: click.Context, parameter: click.Parameter, value: str) -> datetime.timedelta:
    try:
        return moments.parse_span(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error


@click.command("create", cls=global_options.Command)
@arguments.NODE
@click.option("--provider", required=True, type=click.Choice(cloud_words.PROVIDERS))
@click.option(
    "--connection",
    "connection_name",
    metavar="NAME",
    help="Through this connection.  [default: the provider's only one]",
)
@click.option("--region", metavar="REGION", help="Where.  [default: the catalogue's first]")
@click.option("--tier", metavar="TIER", help="Which tested tier.  [default: the catalogue's first]")
@click.option("--size", metavar="SIZE", help="The provider's own size, in place of a tier.")
@click.option("--untested", is_flag=True, help="Take a size or region that nobody has tried yet.")
@click.option("--image", metavar="IMAGE", help="A provider's image, or one of our snapshots.")
@click.option(
    "--role",
    type=click.Choice(cloud_words.ROLES),
    default="general",
    show_default=True,
    help="What the node is for.",
)
@click.option("--network", metavar="NET", help="The provider's network.")
@click.option("--subnet", metavar="NET", help="The subnet in it.")
@click.option("--nested-virt", is_flag=True, help="It must run virtual machines itself.")
@click.option(
    "--disk", type=click.IntRange(1, 16_384), metavar="GB", help="The disk, where it can be chosen."
)
@click.option("--no-ipv4", is_flag=True, help="No public IPv4 address.")
@click.option("--no-ipv6", is_flag=True, help="No public IPv6 address.")
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    callback=arguments.label_pairs,
    help="A label of the node. May repeat.",
)
@click.option(
    "--first-boot",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File joined to our first boot: a #cloud-config or a script; no secrets in it.",
)
@click.option(
    "--ssh-key",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_ssh_key,
    help="File with your public key, to be put on the machine.",
)
@click.option(
    "--ssh-from",
    multiple=True,
    metavar="CIDR",
    help="From where SSH may reach it; without any, from nowhere. May repeat.",
)
@click.option(
    "--ssh-for",
    default="1h",
    show_default=True,
    metavar="SPAN",
    callback=_span,
    help="For how long --ssh-from holds.",
)
@click.option("--purpose", metavar="TEXT", help="What for; kept with the order.")
@click.option("--wait", is_flag=True, help="Follow it until the node is ready.")
def create(
    node_id: str,
    *,
    provider: str,
    connection_name: str | None,
    region: str | None,
    tier: str | None,
    size: str | None,
    untested: bool,
    image: str | None,
    role: str,
    network: str | None,
    subnet: str | None,
    nested_virt: bool,
    disk: int | None,
    no_ipv4: bool,
    no_ipv6: bool,
    labels: dict[str, str],
    first_boot: Path | None,
    ssh_key: str | None,
    ssh_from: Sequence[str],
    ssh_for: datetime.timedelta,
    purpose: str | None,
    wait: bool,
) -> None:
    """Order a machine that enlists itself as node ID.

    On a terminal the price is shown and asked about first. `local` is a container machine on the
    Platform's own host and costs nothing. The command may be repeated, as after a lost answer: the
    same wish for the same node finds the same order, and --wait follows it.

    Examples:
      enlist cloud machines create demo --provider local --wait
      enlist cloud machines create web-1 --provider hetzner --region fsn1 --tier starter --wait
      enlist cloud machines create web-2 --provider aws --ssh-key ~/.ssh/id_ed25519.pub
        --ssh-from 203.0.113.7/32 --ssh-for 2h
    """
    if ssh_from and ssh_key is None:
        raise click.UsageError("--ssh-from is for a key: give --ssh-key FILE as well.")
    if size is not None and tier is not None:
        raise click.UsageError("Give --tier or --size, not both.")
    call = calls.create(
        node_id,
        provider=provider,
        connection=connection_name,
        region=region,
        tier=tier,
        size=size,
        untested=untested,
        image=image,
        role=role,
        network=network,
        subnet=subnet,
        nested_virt=nested_virt,
        disk_gigabytes=disk,
        public_ipv4=not no_ipv4,
        public_ipv6=not no_ipv6,
        labels=labels,
        first_boot=_text_of(first_boot),
        ssh_key=ssh_key,
        ssh_from=ssh_from,
        ssh_seconds=int(ssh_for.total_seconds()) if ssh_key else None,
        purpose=purpose,
    )
    _show_price(call)
    ordered = _order(call, wait=wait)
    if ordered is None:
        return
    for warning in ordered["warnings"]:
        printing.say(f"Warning: {columns.clean(warning)}")
    if not wait:
        printing.show(ordered, lines=lambda: _begun(ordered))
        return
    printing.say(_priced(ordered))
    found = following.follow(ordered["operation"]["operation_id"])
    shown = {**ordered, "operation": found}
    if found["state"] == "active":
        shown["machine"] = connection.ask(calls.get(ordered["machine"]["machine_id"]))
    printing.show(shown, lines=lambda: following.lines(found))
    following.tell_end(found)


def _text_of(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read as text.") from error


def _order(call: call_kit.Call[Any], *, wait: bool) -> Any:
    """Orders it; with --wait also waits for a Platform that still builds what machines install."""
    question: str | None = "Order it?"
    until = time.monotonic() + _BUILD_SECONDS
    while True:
        try:
            return connection.change(call, question=question)
        except errors.Temporary as refused:
            if not wait or not refused.fields.get("building") or time.monotonic() >= until:
                raise
            if question is not None:
                printing.say(str(refused))
                printing.say("The order follows as soon as it is there.")
            question = None
            moments.pause(_LOOK_SECONDS)


def _show_price(call: call_kit.Call[Any]) -> None:
    """Before a person is asked: what would be ordered, for how much."""
    options = global_options.current()
    if options.check or options.yes or not connection.on_terminal():
        return
    document = connection.ask(call_kit.checked(call))
    for line in printing.changes(document, check=True):
        printing.say(line)


def _priced(ordered: Any) -> str:
    machine = ordered["machine"]
    place = f"{machine['size']} in {machine['region']} at {machine['provider']}"
    return f"{columns.clean(machine['node_id'])}: {columns.clean(place)}, " + money.full(
        ordered["price"]
    )


def _begun(ordered: Any) -> Iterator[str]:
    yield _priced(ordered)
    if ordered.get("found"):
        state = columns.clean(ordered["operation"]["state"])
        yield f"It was ordered before, and is {state}; nothing more is ordered."
        yield f"Follow it: enlist operations watch {ordered['operation']['operation_id']}"
        return
    yield following.how_to_follow(ordered["operation"])
