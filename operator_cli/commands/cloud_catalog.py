"""`enlist cloud catalog`: what can be ordered now, where, and for how much."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import cloud as calls
from operator_cli import columns, connection, global_options, money, printing
from wire_protocol import cloud_words

_GIGABYTE = 1_000_000_000
_GIBIBYTE = 1 << 30
_FEW = 2  # sentences about providers that nobody has asked for


@click.command("catalog", cls=global_options.Command)
@click.option("--provider", type=click.Choice(cloud_words.PROVIDERS), help="Only at this one.")
@click.option("--connection", "connection_name", metavar="NAME", help="Only through this one.")
@click.option("--region", metavar="REGION", help="Only there.")
@click.option(
    "--role",
    type=click.Choice(cloud_words.ROLES),
    help="What for; for build a larger tier is advised.",
)
@click.option("--nested-virt", is_flag=True, help="Only what can run virtual machines itself.")
@click.option("--untested", is_flag=True, help="Also what nobody has tried yet.")
def catalog(
    *,
    provider: str | None,
    connection_name: str | None,
    region: str | None,
    role: str | None,
    nested_virt: bool,
    untested: bool,
) -> None:
    """Show what can be ordered, and for how much.

    The tested regions and tiers, as the operator's policy allows them and the provider has them
    now. A price with ~ is an estimate of the day that -o json names.

    Examples:
      enlist cloud catalog --provider hetzner --region fsn1
      enlist cloud catalog --provider aws --nested-virt -o json
    """
    found = connection.ask(
        calls.catalog(
            provider=provider,
            connection=connection_name,
            region=region,
            role=role,
            nested_virt=nested_virt,
            untested=untested,
        )
    )
    shown = found["missing"] if provider else found["missing"][:_FEW]
    for sentence in shown:
        printing.say(columns.clean(sentence))
    if len(found["missing"]) > len(shown):
        more = len(found["missing"]) - len(shown)
        printing.say(f"The same or the like is missing for {more} more: enlist cloud providers")
    is_narrow = any((provider, connection_name, region, nested_virt))
    printing.show(found, lines=lambda: _table(found["offered"], is_narrow=is_narrow))


def _table(found: list[Any], *, is_narrow: bool) -> Iterator[str]:
    if not found:
        yield (
            "Nothing like that can be ordered. What can be: enlist cloud catalog"
            if is_narrow
            else "Nothing can be ordered. What is missing: enlist cloud providers"
        )
        return
    heads = ("CONNECTION", "REGION", "TIER", "SIZE", "CORES", "MEMORY", "DISK", "ARCH", "PRICE",
             "NOTE")  # fmt: skip
    yield from columns.table(
        heads,
        [
            (
                one["connection"],
                one["region"],
                one["tier"],
                one["size"],
                one["cores"],
                _gibibytes(one["memory_bytes"]),
                _gigabytes(one["disk_bytes"]),
                one["architecture"],
                money.hourly(one["price"]),
                _note(one),
            )
            for one in found
        ],
    )


def _gibibytes(count: int) -> str:
    return f"{count / _GIBIBYTE:.3g} GiB" if count else columns.NOTHING


def _gigabytes(count: int) -> str:
    return f"{count / _GIGABYTE:.3g} GB" if count else columns.NOTHING


def _note(one: Any) -> str | None:
    if not one["available"]:
        return str(one["reason"] or "not available now")
    notes = [] if one["tested"] else ["untested"]
    if one["withdrawn_after"]:
        notes.append(f"ends {one['withdrawn_after']}")
    if one["nested_virt"]:
        notes.append("nested-virt")
    if one["advice"]:
        notes.append(str(one["advice"]))
    return ", ".join(notes) or None
