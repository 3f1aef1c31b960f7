"""Arguments that several commands take, read at the door: what is out of shape never leaves.

Each reader raises click's `BadParameter` (exit code 2) with the sentence of the shared parser.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from operator_cli import global_options
from wire_protocol import ids, labels

F = TypeVar("F", bound=Callable[..., Any])
MAX_LIMIT = 100_000


def node_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A node id in its one spelling."""
    try:
        return ids.parse_node_id(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error


def label_pairs(
    context: click.Context, parameter: click.Parameter, value: Sequence[str]
) -> dict[str, str]:
    """`K=V` arguments."""
    try:
        return labels.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error


def label_changes(
    context: click.Context, parameter: click.Parameter, value: Sequence[str]
) -> dict[str, str | None]:
    """`K=V` sets, `K-` takes away."""
    removed = [text[:-1] for text in value if "=" not in text and text.endswith("-")]
    kept = [text for text in value if "=" in text or not text.endswith("-")]
    try:
        labels.check(dict.fromkeys(removed, ""))
        found: dict[str, str | None] = {**labels.parse(kept)}
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=context, param=parameter) from error
    twice = sorted(set(found) & set(removed))
    if twice:
        raise click.BadParameter(
            f"The label {twice[0]!r} is both set and taken away.", ctx=context, param=parameter
        )
    return {**found, **dict.fromkeys(removed)}


NODE = click.argument("node_id", metavar="ID", callback=node_id)
REASON = click.option(
    "--reason", metavar="TEXT", default="", help="Why; kept in the action log and the events."
)
LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    default=100,
    show_default=True,
    help="How many entries at most, newest first.",
)
LABELS = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    callback=label_pairs,
    help="A label of it, to find it by. May repeat.",
)
LABELLED = click.option(
    "-l",
    "--label",
    "label",
    multiple=True,
    metavar="KEY[=VALUE]",
    help="Only those with this label. May repeat.",
)
INFRA = click.option("--infra", metavar="SCOPE", help="Only this scope.")


def command(group: click.Group, name: str) -> Callable[[F], click.Command]:
    """Makes a command of this package in that group."""

    def make(function: F) -> click.Command:
        made = click.command(name, cls=global_options.Command)(function)
        group.add_command(made)
        return made

    return make
