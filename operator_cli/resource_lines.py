"""What the commands of volumes, snapshots and stable addresses have in common."""

from collections.abc import Callable, Iterator
from typing import Any

import click

from enlist import calls as call_kit
from enlist import cloud_resources as calls
from enlist import errors
from operator_cli import arguments, columns, connection, following, moments, money, printing

PAGE = 500
WAIT = click.option("--wait", is_flag=True, help="Follow it to its end; the exit code says how.")
RESOURCE = click.argument("name", metavar="NAME")
THROUGH = click.option("--connection", "connection_name", metavar="NAME", help="Only through this.")
_NAMED = {"volumes": "data", "snapshots": "before-update", "addresses": "front"}  # in examples
Listed = Callable[..., call_kit.Call[Any]]


def show_all(
    build: Listed,
    *,
    noun: str,
    connection_name: str | None,
    infra: str | None,
    label: tuple[str, ...],
) -> None:
    """Prints every one of them."""
    call = build(limit=PAGE, infra=infra, connection=connection_name, label=label)
    found = connection.every(call, of="children")
    printing.show({"children": found}, lines=lambda: _table(found, noun=noun))


def begin(call: call_kit.Call[Any], *, question: str | None, wait: bool) -> None:
    """Asks for it, and follows it where that was asked for."""
    begun = connection.change(call, question=question)
    if begun is not None:
        following.show_begun(begun["operation"], wait=wait)


def add_showing(group: click.Group, *, build: Listed, noun: str, one: str) -> None:
    """The command `show`, which all of them have."""

    @arguments.command(group, "show")
    @RESOURCE
    def show(name: str) -> None:
        every = connection.every(build(limit=PAGE), of="children")
        found = [each for each in every if name in (each["name"], each["child_id"])]
        if not found:
            raise errors.NotFound(f"There is no {one} {name}. See: enlist cloud {noun} list")
        printing.show(found[0], lines=lambda: _facts(found[0]))

    show.help = f"Show the {one} NAME.\n\nExample:\n  enlist cloud {noun} show {_NAMED[noun]}"


def add_ending(group: click.Group, *, noun: str, one: str) -> None:
    """The commands `delete` and `forget`, which all of them have."""

    @arguments.command(group, "delete")
    @RESOURCE
    @WAIT
    def delete(name: str, *, wait: bool) -> None:
        call = calls.delete(noun, name)
        begin(call, question=f"Delete the {one} {name}? What it holds is lost.", wait=wait)

    delete.help = (
        f"Have the {one} deleted, and confirmed gone.\n\nIt must be detached first.\n\n"
        f"Example:\n  enlist cloud {noun} delete {_NAMED[noun]} --wait"
    )

    @arguments.command(group, "forget")
    @RESOURCE
    @click.option("--reason", required=True, metavar="TEXT", help="How you know; kept in the log.")
    def forget(name: str, *, reason: str) -> None:
        question = f"Forget the {one} {name}? If it still exists, it goes on costing money."
        done = connection.change(calls.forget(noun, name, reason=reason), question=question)
        if done is not None:
            printing.show(done, lines=lambda: printing.changes(done, check=False))

    forget.help = (
        f"Say that a {one} is gone which its provider cannot confirm any more.\n\n"
        f'Example:\n  enlist cloud {noun} forget {_NAMED[noun]} --reason "the account is closed"'
    )


def add_attaching(group: click.Group, *, noun: str, one: str) -> None:
    """The commands `attach` and `detach`."""

    @arguments.command(group, "attach")
    @RESOURCE
    @click.argument("machine", metavar="ID", callback=arguments.node_id)
    @WAIT
    def attach(name: str, machine: str, *, wait: bool) -> None:
        begin(calls.attach(noun, name, machine=machine), question=None, wait=wait)

    attach.help = (
        f"Give the {one} NAME to the machine of node ID.\n\n"
        f"Example:\n  enlist cloud {noun} attach {_NAMED[noun]} web-1 --wait"
    )

    @arguments.command(group, "detach")
    @RESOURCE
    @WAIT
    def detach(name: str, *, wait: bool) -> None:
        begin(calls.detach(noun, name), question=f"Detach the {one} {name}?", wait=wait)

    detach.help = (
        f"Take the {one} NAME from its machine.\n\n"
        f"Example:\n  enlist cloud {noun} detach {_NAMED[noun]} --wait"
    )


def _facts(found: Any) -> Iterator[str]:
    rows = [
        (name, moments.local(value) if name.endswith("_at") and value else value)
        for name, value in found.items()
        if name not in ("price", "labels")
    ]
    rows.insert(3, ("labels", columns.pairs(found["labels"])))
    yield from columns.facts([*rows, ("price", money.full(found["price"]))])


def _table(found: list[Any], *, noun: str) -> Iterator[str]:
    if not found:
        yield f"No {noun}. Make one: enlist cloud {noun} create --help"
        return
    yield from columns.table(
        ("NAME", "CONNECTION", "REGION", "SIZE", "ADDRESS", "ON", "PRICE", "SINCE"),
        [
            (
                one["name"],
                one["connection"],
                one["region"],
                f"{one['size_gigabytes']} GB" if one["size_gigabytes"] else None,
                one["address"],
                one["node_id"],
                money.hourly(one["price"]),
                moments.local(one["present_at"]) if one["present_at"] else "not there yet",
            )
            for one in found
        ],
    )
