"""`enlist platform`: the Platform's addresses, keys and bundles, and turning the keys over."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import calls, platforms
from operator_cli import arguments, columns, connection, lazy, moments, printing
from operator_cli.commands import platform_bundles


@click.group(cls=lazy.Group, no_args_is_help=True)
def platform() -> None:
    """The Platform and its keys.

    Examples:
      enlist platform show
      enlist platform rotate-trust-key
      enlist platform bundles list
    """


platform.add_command(platform_bundles.bundles)


@arguments.command(platform, "show")
def show() -> None:
    """Show addresses, pins, trust keys, environment and version.

    Example:
      enlist platform show -o json
    """
    print_platform()


@arguments.command(platform, "rotate-tls-key")
@click.option(
    "--port",
    type=click.Choice(["enrollment", "gateway"]),
    default="enrollment",
    show_default=True,
    help="The port whose key it is.",
)
@click.option("--after", metavar="SPAN", help="How long both pins count.  [default: 7d]")
@click.option("--now", "at_once", is_flag=True, help="Serve the new key at once.")
def rotate_tls_key(port: str, after: str | None, *, at_once: bool) -> None:
    """Change the TLS key of a port, which machines know by its pin.

    The next key's pin is published now, in new join tokens and to machines that have joined, and
    the key is served after 7 days, or after --after. With --now, for a key that is in the wrong
    hands, it is served at once: machines that have joined follow by a statement that a trust key
    signs, and with the enrollment port's key join tokens made before no longer match (exit code 6
    on the machine). Sessions on the gateway stay open. Run again, it can only bring the day
    forward.

    Examples:
      enlist platform rotate-tls-key
      enlist platform rotate-tls-key --port gateway
      enlist platform rotate-tls-key --after 2d
      enlist platform rotate-tls-key --now
    """
    if at_once and after is not None:
        raise click.UsageError("Give --now or --after, not both.")
    _rotate(
        platforms.rotate_tls_key(port=port, after_seconds=0 if at_once else _seconds(after)),
        question=_question(port, at_once=at_once),
    )


@arguments.command(platform, "rotate-trust-key")
def rotate_trust_key() -> None:
    """Publish the next trust key now.

    Machines learn it from a statement that the old key signs, and the old key stays trusted until
    its end, so no node is lost. It is done by itself 30 days before a key ends.

    Example:
      enlist platform rotate-trust-key
    """
    _rotate(platforms.rotate_trust_key(), question="Publish a new trust key?")


@arguments.command(platform, "rotate-master-key")
def rotate_master_key() -> None:
    """Make a new master key and wrap every sealed value with it.

    The Platform runs on meanwhile.

    Example:
      enlist platform rotate-master-key
    """
    _rotate(
        platforms.rotate_master_key(),
        question="Make a new master key? Backups of the old key open only older backups.",
    )


def print_platform() -> None:
    """Asks for the Platform and prints it."""
    found = connection.ask(platforms.show())
    printing.show(found, lines=lambda: _lines(found))


def _question(port: str, *, at_once: bool) -> str:
    name = "gateway" if port == "gateway" else "enrollment port"
    if not at_once:
        return f"Publish the {name}'s next key?"
    if port == "gateway":
        return "Serve a new key at once? Nodes that are away follow by the signed statement."
    return "Serve a new key at once? Join tokens made before will no longer match."


def _seconds(after: str | None) -> int | None:
    if after is None:
        return None
    try:
        return int(moments.parse_span(after).total_seconds())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--after") from error


def _rotate(call: calls.Call[Any], *, question: str) -> None:
    done = connection.change(call, question=question)
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    rows = []
    for name, value in found.items():
        if name == "trust_keys":
            continue
        rows.append((name, columns.listed(value) if isinstance(value, list) else value))
    yield from columns.facts(rows)
    yield ""
    yield from columns.table(
        ("TRUST KEY", "FROM", "UNTIL"),
        [
            (key["key_id"], moments.local(key["not_before"]), moments.local(key["not_after"]))
            for key in found["trust_keys"]
        ],
    )
