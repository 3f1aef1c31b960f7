"""`enlist cloud providers`: which can be used, and what is missing for the rest."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import cloud as calls
from operator_cli import columns, connection, global_options, printing


@click.command("providers", cls=global_options.Command)
def providers() -> None:
    """Show which providers can be used, and what is missing for the rest.

    KINDS are the kinds of credential that the Platform's policy takes, HAS what Enlist can do there
    beside ordering and deleting machines.

    Examples:
      enlist cloud providers
      enlist cloud providers -o json
    """
    found = connection.ask(calls.show())
    printing.show(found, lines=lambda: _lines(found))


def _lines(found: Any) -> Iterator[str]:
    yield from columns.table(
        ("PROVIDER", "TITLE", "COSTS", "USABLE", "KINDS", "HAS"),
        [
            (
                one["provider"],
                one["title"],
                "yes" if one["costs_money"] else "no",
                "yes" if one["available"] else "no",
                columns.listed(one["credential_kinds"]),
                columns.listed(one["capabilities"]),
            )
            for one in found["providers"]
        ],
    )
    for one in found["providers"]:
        for sentence in one["missing"]:
            yield f"{columns.clean(one['provider'])}: {columns.clean(sentence)}"
