"""`enlist audit`: the append-only, hash-chained log of authenticated actions."""

import json
from collections.abc import Iterator
from typing import Any

import click

from enlist import audit as audit_calls
from enlist import errors
from operator_cli import arguments, columns, connection, global_options, lazy, moments, printing

_PAGE = 500


@click.group(cls=lazy.Group, no_args_is_help=True)
def audit() -> None:
    """The log of what was done, by whom.

    Examples:
      enlist audit list --since 7d
      enlist audit verify
      enlist audit export > audit.jsonl
    """


@arguments.command(audit, "list")
@click.option("--actor", metavar="A", help="Only what this actor did.")
@click.option("--action", metavar="X", help="Only this action, such as nodes.remove.")
@click.option("--since", metavar="T", help="30m, 12h, 7d, or 2026-01-31T12:00:00Z.")
@arguments.LIMIT
@arguments.INFRA
def list_(
    actor: str | None, action: str | None, since: str | None, limit: int, infra: str | None
) -> None:
    """List actions, newest first.

    Examples:
      enlist audit list --limit 20
      enlist audit list --actor local:0 --since 2026-01-01T00:00:00Z -o json
    """
    call = audit_calls.list_(
        limit=min(limit, _PAGE), infra=infra, actor=actor, action=action, since=_since(since)
    )
    entries = connection.every(call, of="entries", limit=limit)
    printing.show({"entries": entries}, lines=lambda: _table(entries))


@arguments.command(audit, "verify")
def verify() -> None:
    """Check the chain of hashes from the first entry to the last.

    Ends with exit code 6 where the chain is broken.

    Example:
      enlist audit verify
    """
    verdict = connection.ask(audit_calls.verify())
    printing.show(verdict, lines=lambda: [columns.clean(verdict["detail"])])
    if not verdict["intact"]:
        raise errors.NeedsOperator(
            f"The log is broken at entry {verdict['broken_at']}: somebody changed the store. Keep "
            "what is there: enlist audit export"
        )


@arguments.command(audit, "export")
def export() -> None:
    """Print the whole log, newest first, one JSON object a line.

    With -o json it is one document with all entries. Each line's hash covers the line and the
    hash before it, so a copy kept elsewhere proves later changes.

    Example:
      enlist audit export > audit.jsonl
    """
    call = audit_calls.list_(limit=_PAGE)
    if global_options.current().output != "table":
        entries = connection.every(call, of="entries")
        printing.show({"entries": entries}, lines=list)
        return
    with connection.client() as opened:
        for page in connection.pages(opened, call):
            for entry in page["entries"]:
                click.echo(json.dumps(entry, separators=(",", ":")))


def _since(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return moments.parse_since(text, now=moments.now())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error


def _table(entries: list[Any]) -> Iterator[str]:
    if not entries:
        yield "No such actions."
        return
    yield from columns.table(
        ("SEQ", "AT", "ACTOR", "ACTION", "TARGET", "DETAILS"),
        [
            (
                entry["seq"],
                moments.local(entry["at"]),
                entry["actor"],
                entry["action"],
                entry["target"],
                columns.pairs(entry["details"]),
            )
            for entry in entries
        ],
    )
