"""`enlist platform`: the Platform's addresses and keys, and turning the keys over."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import calls, platforms
from operator_cli import arguments, columns, connection, lazy, moments, printing


@click.group(cls=lazy.Group, no_args_is_help=True)
def platform() -> None:
    """The Platform and its keys.

    Examples:
      enlist platform show
      enlist platform rotate-trust-key
    """


@arguments.command(platform, "show")
def show() -> None:
    """Show addresses, pins, trust keys, environment and version.

    Example:
      enlist platform show -o json
    """
    print_platform()


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
