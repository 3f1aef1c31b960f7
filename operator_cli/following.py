"""Follows an operation to its end: a line for each change, a bar on a terminal, and the exit code.

It looks once a second, as the Platform's own stream of events does, and needs no right but that of
looking at operations. A Platform that is away meanwhile (a restart, an upgrade) is asked again for
a quarter of an hour.
Exit codes as everywhere: 0 done, 3 failed for good, 4 cancelled, 6 a person must act, 75 it may
work when asked for again.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from enlist import errors, operations
from operator_cli import columns, connection, moments, printing, progress_bar
from wire_protocol import ids

_AN_ID: Final = re.compile(r"[0-9a-f]{16}")
_ASK_SECONDS: Final = 1.0
_AWAY_SECONDS: Final = 900.0  # an upgrade with its backup takes minutes
_LONGEST_SECONDS: Final = 7 * 86_400.0  # every part of an operation has a limit of its own
_ENDED: Final = ("done", "active", "deleted", "failed", "cancelled")
_UNRESOLVED: Final = "unresolved"
_WAYS: Final = (
    ("requested", "validating", "creating", "booting", "bootstrapping", "enrolling", "verifying",
     "active"),
    ("requested", "deleting", "deleted"),
    ("requested", "cancelling", "cancelled"),
    ("requested", "preparing", "staging", "restarting", "resuming", "done"),
    ("requested", "running", "done"),
)  # fmt: skip


def get_named(name: str) -> Any:
    """An operation by its id, or the newest on the node of that id; raises `NotFound`."""
    if _AN_ID.fullmatch(name):
        with contextlib.suppress(errors.NotFound):
            return connection.ask(operations.get(name))
    return connection.ask(operations.get(_newest_of(name)))


def follow_named(name: str) -> Any:
    """As `follow`, for what `get_named` gives."""
    if _AN_ID.fullmatch(name):
        with contextlib.suppress(errors.NotFound):
            return follow(name)
    return follow(_newest_of(name))


def _newest_of(name: str) -> str:
    """The operation on that node that is open, else its newest."""
    try:
        node_id = ids.parse_node_id(name)
    except ValueError as fault:
        raise errors.NotFound(f"{name!r} is no operation and no node: {fault}") from None
    for is_open in (True, None):
        call = operations.list_(node_id=node_id, is_open=is_open, limit=1)
        found = connection.ask(call)["operations"]
        if found:
            return str(found[0]["operation_id"])
    raise errors.NotFound(f"There is no operation {node_id}, and none on a node of that id.")


def follow(operation_id: str) -> Any:
    """Waits for its end, telling each change on stderr; the operation as it is then.

    Who stops waiting (Ctrl-C) stops nothing else, and is told so.
    """
    try:
        return _follow(operation_id)
    except KeyboardInterrupt:
        again = f"enlist operations watch {operation_id}"
        click.echo(f"The operation goes on. Follow it again: {again}", err=True)
        raise


def _follow(operation_id: str) -> Any:
    told: set[tuple[str, float | str]] = set()
    begun = time.monotonic()
    heard = begun
    bar = progress_bar.Bar()
    with connection.client() as opened, contextlib.closing(bar):
        while True:
            try:
                found = opened.document(operations.get(operation_id))
            except errors.Temporary as away:
                if time.monotonic() - heard >= _AWAY_SECONDS:
                    raise
                if ("away", heard) not in told:
                    told.add(("away", heard))
                    bar.say(f"{away} The operation goes on; asking again.")
                moments.pause(_ASK_SECONDS)
                continue
            heard = time.monotonic()
            for line in _news(found, told=told):
                bar.say(line)
            waited = time.monotonic() - begun
            if found["state"] in (*_ENDED, _UNRESOLVED) or waited >= _LONGEST_SECONDS:
                return found
            done, total = how_far(found)
            bar.draw(f"{_about(found)}: {found['state']}, {waited:.0f} s", done=done, total=total)
            moments.pause(_ASK_SECONDS)


def how_far(found: Any) -> tuple[int, int]:
    """How many of how many: of parts those that have ended, else of the states on its way."""
    if found["parts"]:
        return sum(part["state"] in _ENDED for part in found["parts"]), len(found["parts"])
    for way in _WAYS:
        if found["state"] in way and all(step["state"] in way for step in found["steps"]):
            return way.index(found["state"]), len(way) - 1
    return 0, 0


def show_begun(operation: Any, *, wait: bool, is_ending: bool = False) -> None:
    """Prints an operation that was begun, or follows it to its end.

    With `is_ending` that it was cancelled is what was wished for: a cancel, or the deletion of a
    machine that still boots.
    """
    if not wait:
        printing.show(operation, lines=lambda: [how_to_follow(operation)])
        return
    found = follow(operation["operation_id"])
    printing.show(found, lines=lambda: lines(found))
    if not (is_ending and found["state"] == "cancelled"):
        tell_end(found)


def how_to_follow(operation: Any) -> str:
    """The sentence about one that was begun."""
    return f"Begun. Follow it: enlist operations watch {operation['operation_id']}"


def tell_end(found: Any) -> None:
    """Ends with the code that says how it went."""
    said = f"The operation {found['operation_id']} ({found['kind']})"
    reason = found["reason"] or "no reason was written down"
    match found["state"], found["class"]:
        case (("done" | "active" | "deleted"), _):
            return
        case "unresolved", _:
            raise errors.NeedsOperator(
                f"{said} is unresolved: {reason} Look at the provider, then decide: enlist "
                f"operations resolve {found['operation_id']} adopt|retry|give-up"
            )
        case "failed", "transient":
            raise errors.Temporary(f"{said} failed: {reason}")
        case "failed", "needs-operator":
            raise errors.NeedsOperator(f"{said} failed: {reason}")
        case "failed", _:
            raise errors.Refused(f"{said} failed: {reason}")
        case "cancelled", _:
            raise errors.Conflict(f"{said} was cancelled: {reason}")
        case _:
            raise errors.Temporary(
                f"{said} is {found['state']}. Go on: enlist operations watch "
                f"{found['operation_id']}"
            )


def lines(found: Any) -> list[str]:
    """An operation for a person: its facts, its steps, its parts."""
    moments_of = ("created_at", "updated_at", "ended_at", "deadline_at", "waiting_since")
    apart = ("steps", "parts")
    shown = columns.facts(
        [
            (name, moments.local(value) if name in moments_of and value else value)
            for name, value in found.items()
            if name not in apart
        ]
    )
    if found.get("steps"):
        shown += ["", *columns.table(("AT", "STATE", "DETAIL"), _steps(found))]
    if found.get("parts"):
        shown += ["", *table(found["parts"])]
    return shown


def table(found: list[Any]) -> Iterator[str]:
    """Operations, one a line."""
    if not found:
        yield "No such operations."
        return
    yield from columns.table(
        ("OPERATION", "KIND", "NODE", "STATE", "TARGET", "BEGUN", "REASON"),
        [
            (
                one["operation_id"],
                one["kind"],
                one["node_id"],
                one["state"],
                one["target"],
                moments.local(one["created_at"]),
                one["reason"],
            )
            for one in found
        ],
    )


def _steps(found: Any) -> list[tuple[str | None, ...]]:
    return [(moments.local(one["at"]), one["state"], one["detail"]) for one in found["steps"]]


def _news(found: Any, *, told: set[tuple[str, float | str]]) -> Iterator[str]:
    """What has changed since the last look; of parts their states, of one without its steps."""
    for part in found["parts"]:
        key = (part["operation_id"], part["state"])
        if part["state"] != "requested" and key not in told:
            told.add(key)
            yield _line(part["node_id"], part["state"], part["reason"])
    if found["parts"]:
        return
    for position, step in enumerate(found["steps"]):
        step_key = (found["operation_id"], position)
        if step_key not in told:
            told.add(step_key)
            yield _line(found["node_id"], step["state"], step["detail"])
    waiting = found.get("waiting")
    if waiting and (found["operation_id"], waiting) not in told:
        told.add((found["operation_id"], waiting))
        since = moments.local(found.get("waiting_since"))
        yield _line(found["node_id"], found["state"], f"waiting since {since}: {waiting}")


def _about(found: Any) -> str:
    return str(found["node_id"] or found["kind"])


def _line(node_id: str | None, state: str, detail: str | None) -> str:
    said = f"{columns.clean(node_id)}: {columns.clean(state)}"
    return f"{said}, {columns.clean(detail)}" if detail else said
