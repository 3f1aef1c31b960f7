"""`enlist events`: what has happened, and with `--follow` what happens now."""

import json
from collections.abc import Iterator
from typing import Any

import click

from operator_cli import arguments, columns, connection, global_options, moments, printing


@click.command("events", cls=global_options.Command)
@click.option("--follow", is_flag=True, help="Stay, and print each event as it happens.")
@click.option("--after", type=click.IntRange(min=0), help="Only what came after this number.")
@arguments.INFRA
def events(*, follow: bool, after: int | None, infra: str | None) -> None:
    """Print events, oldest first.

    With --follow it goes on until it is interrupted, and resumes where it was after a lost
    connection. With -o json, --follow prints one JSON object a line, otherwise one document.

    Examples:
      enlist events
      enlist events --follow --after 1200 -o json
    """
    with connection.client() as opened:
        found = opened.event_documents(opened.tail(after=after, infra=infra, follow=follow))
        if follow:
            for event in found:
                click.echo(_line(event))
            return
        documents = list(found)
    printing.show({"events": documents}, lines=lambda: _table(documents))


def _line(event: dict[str, Any]) -> str:
    if global_options.current().output == "table":
        return "  ".join(columns.clean(cell) for cell in _row(event))
    return json.dumps(event, separators=(",", ":"))


def _row(event: dict[str, Any]) -> tuple[object, ...]:
    return (
        event["seq"],
        moments.local(event["at"]),
        event["kind"],
        event["subject"],
        columns.pairs(event["data"]),
    )


def _table(documents: list[Any]) -> Iterator[str]:
    if not documents:
        yield "No events."
        return
    yield from columns.table(
        ("SEQ", "AT", "KIND", "SUBJECT", "DATA"), [_row(event) for event in documents]
    )
