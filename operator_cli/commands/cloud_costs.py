"""`enlist cloud costs`: the running totals, by connection and by machine."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import cloud as calls
from operator_cli import arguments, columns, connection, global_options, moments, money, printing


@click.command("costs", cls=global_options.Command)
@arguments.INFRA
def costs(infra: str | None) -> None:
    """Show what is paid by the hour, and what was paid so far.

    What is booting, unknown or not confirmed gone counts. The provider's bill is the truth; these
    are its prices times our hours.

    Example:
      enlist cloud costs -o json
    """
    found = connection.ask(calls.costs(infra=infra))
    printing.show(found, lines=lambda: _table(found))


def _table(found: Any) -> Iterator[str]:
    if not found["connections"]:
        yield "Nothing costs anything: there is no connection to a provider that does."
        return
    yield from columns.table(
        (
            "CONNECTION",
            "PROVIDER",
            "MACHINES",
            "MOST MACHINES",
            "COSTS NOW",
            "MOST HOURLY",
            "SPENT",
        ),
        [
            (
                one["connection"],
                one["provider"],
                one["machines"],
                one["most_machines"],
                money.rate(one["hourly_micros"], one["currency"]),
                money.rate(one["most_hourly_micros"], one["currency"]),
                money.amount(one["spent_micros"], one["currency"]),
            )
            for one in found["connections"]
        ],
    )
    if found["subjects"]:
        yield ""
        yield from columns.table(
            ("NODE", "WHAT", "CONNECTION", "PRICE", "SPENT", "SINCE", "UNTIL"),
            [
                (
                    one["node_id"],
                    one["what"],
                    one["connection"],
                    money.rate(one["hourly_micros"], one["currency"]),
                    money.amount(one["spent_micros"], one["currency"]),
                    moments.local(one["since"]),
                    moments.local(one["until"]),
                )
                for one in found["subjects"]
            ],
        )
