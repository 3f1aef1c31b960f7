"""`enlist cloud machines`: what was ordered, how it is, and its end."""

from collections.abc import Iterator
from typing import Any

import click

from enlist import cloud_machines as calls
from operator_cli import arguments, columns, connection, following, lazy, moments, money, printing
from operator_cli.commands import cloud_ordering

_PAGE = 500
_MACHINE = click.argument("machine", metavar="ID", callback=arguments.node_id)
_WAIT = click.option("--wait", is_flag=True, help="Follow it to its end; the exit code says how.")


@click.group("machines", cls=lazy.Group, no_args_is_help=True)
def machines() -> None:
    """Order machines that enlist themselves, look at them, delete them.

    ID is the node's id, or the machine's.

    Examples:
      enlist cloud machines create demo --provider local --wait
      enlist cloud machines list
      enlist cloud machines delete demo --wait
    """


machines.add_command(cloud_ordering.create)


@arguments.command(machines, "list")
@click.option("--connection", "connection_name", metavar="NAME", help="Only through this one.")
@click.option("--state", metavar="STATE", help="Only those in this state, such as active.")
@arguments.LABELLED
@click.option("--ended", is_flag=True, help="Also those that are gone or were forgotten.")
@arguments.INFRA
@arguments.LIMIT
def list_(
    *,
    connection_name: str | None,
    state: str | None,
    label: tuple[str, ...],
    ended: bool,
    infra: str | None,
    limit: int,
) -> None:
    """List machines, newest first, with what each costs.

    Examples:
      enlist cloud machines list
      enlist cloud machines list --state failed
      enlist cloud machines list -l tier=web
      enlist cloud machines list --ended -o json
    """
    call = calls.list_(
        limit=_PAGE if state else min(limit, _PAGE),
        infra=infra,
        connection=connection_name,
        ended=ended,
        label=label,
    )
    found = connection.every(call, of="machines", limit=None if state else limit)
    if state:
        found = [one for one in found if one["state"] == state][:limit]
    printing.show({"machines": found}, lines=lambda: _table(found))


@arguments.command(machines, "show")
@_MACHINE
@click.option("--refresh", is_flag=True, help="Have the provider asked now.")
def show(machine: str, *, refresh: bool) -> None:
    """Show one machine, what hangs on it, and what first boot told.

    Examples:
      enlist cloud machines show web-1
      enlist cloud machines show web-1 --refresh
    """
    found = connection.ask(calls.refresh(machine) if refresh else calls.get(machine))
    printing.show(found, lines=lambda: _facts(found))


@arguments.command(machines, "console")
@_MACHINE
def console(machine: str) -> None:
    """Show the end of what the machine's console showed, asked of its provider now.

    Where a machine never joined, its first boot says why there. Not every provider lets it be read.

    Example:
      enlist cloud machines console web-1
    """
    found = connection.ask(calls.console(machine))
    printing.show(found, lines=lambda: _console(found))


@arguments.command(machines, "delete")
@_MACHINE
@click.option("--keep-machine", is_flag=True, help="End the node; leave the machine, and its bill.")
@_WAIT
def delete(machine: str, *, keep_machine: bool, wait: bool) -> None:
    """Drain the node, revoke it, delete its machine, and see that it is gone.

    Everything that hangs on the machine goes with it, each confirmed by the provider; volumes and
    stable addresses of your own stay.

    Examples:
      enlist cloud machines delete web-1 --wait
      enlist cloud machines delete web-1 --keep-machine
    """
    what = "the node, keeping the machine" if keep_machine else "the node and its machine"
    begun = connection.change(
        calls.delete(machine, keep_machine=keep_machine),
        question=f"Delete {machine}: {what}?",
    )
    if begun is not None:
        following.show_begun(begun["operation"], wait=wait, is_ending=True)


@arguments.command(machines, "reboot")
@_MACHINE
@_WAIT
def reboot(machine: str, *, wait: bool) -> None:
    """Have the provider restart the machine.

    Example:
      enlist cloud machines reboot web-1 --wait
    """
    begun = connection.change(calls.reboot(machine), question=f"Restart {machine}?")
    if begun is not None:
        following.show_begun(begun["operation"], wait=wait)


@arguments.command(machines, "forget")
@_MACHINE
@click.option("--reason", required=True, metavar="TEXT", help="How you know; kept in the log.")
def forget(machine: str, *, reason: str) -> None:
    """Say that a machine is gone which its provider cannot confirm any more.

    Nothing is asked of the provider and nothing is deleted there: if it exists it goes on costing
    money. Who said so is recorded.

    Example:
      enlist cloud machines forget web-1 --reason "deleted by hand, the account is closed"
    """
    question = f"Forget {machine}? If it still exists, it goes on costing money."
    done = connection.change(calls.forget(machine, reason=reason), question=question)
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


@arguments.command(machines, "resume-template")
@click.argument("template", metavar="TEMPLATE")
def resume_template(template: str) -> None:
    """Let machines be ordered again of which too many failed in a row.

    Look at one of the failed ones first: enlist cloud machines show ID

    Example:
      enlist cloud machines resume-template 0f3a5c7e9b1d2468
    """
    done = connection.change(
        calls.resume_template(template), question=f"Let machines of {template} be ordered again?"
    )
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _console(found: Any) -> Iterator[str]:
    if found["text"] is None:
        yield "Its provider has nothing of its console yet; try again in a minute."
        return
    for line in found["text"].splitlines():
        yield columns.clean(line.expandtabs()) if line else ""


def _table(found: list[Any]) -> Iterator[str]:
    if not found:
        yield "No machines. Order one: enlist cloud machines create demo --provider local --wait"
        return
    yield from columns.table(
        ("NODE", "STATE", "POWER", "CONNECTION", "REGION", "SIZE", "PRICE", "SPENT", "ORDERED"),
        [
            (
                one["node_id"],
                _state(one),
                one["power"],
                one["connection"],
                one["region"],
                one["size"],
                money.hourly(one["price"]),
                money.amount(one["spent_micros"], (one["price"] or {}).get("currency"))
                if one["price"]
                else None,
                moments.ago(one["ordered_at"], now=moments.now()),
            )
            for one in found
        ],
    )


def _state(one: Any) -> str:
    if one["gone_at"]:
        return "gone"
    if one["forgotten_at"]:
        return "forgotten"
    if one.get("waiting"):
        return f"{one['state']}, waiting"
    if one["power"] == "off" and one["still_billed"]:
        return f"{one['state']}, still billed"
    return str(one["state"])


def _facts(found: Any) -> Iterator[str]:
    apart = ("children", "phases", "price", "addresses", "spent_micros")
    rows: list[tuple[str, object]] = [
        (name, moments.local(value) if name.endswith(("_at", "_since")) and value else value)
        for name, value in found.items()
        if name not in apart
    ]
    rows.append(("addresses", columns.listed(found["addresses"])))
    rows.append(("price", money.full(found["price"])))
    if found["price"]:
        rows.append(
            ("spent so far", money.amount(found["spent_micros"], found["price"]["currency"]))
        )
    yield from columns.facts(rows)
    if found["children"]:
        yield ""
        yield from columns.table(
            ("KIND", "REF", "NAME", "KEPT", "ADDRESS", "GONE"),
            [
                (
                    one["kind"],
                    one["provider_ref"],
                    one["name"],
                    "yes" if one["keep"] else "no",
                    one["address"],
                    moments.local(one["gone_at"]),
                )
                for one in found["children"]
            ],
        )
    if found["phases"]:
        yield ""
        yield from columns.table(
            ("AT", "PHASE", "DETAIL"),
            [(moments.local(one["at"]), one["phase"], one["detail"]) for one in found["phases"]],
        )
