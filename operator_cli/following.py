"""Follows an operation to its end: a line for each change, and the exit code that says how it went.

Exit codes as everywhere: 0 done, 3 failed for good, 4 cancelled, 6 a person must act, 75 it may
work when asked for again.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from enlist import errors, operations
from operator_cli import columns, connection, moments, printing

_ASK_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 7 * 86_400.0  # every part of an operation has a limit of its own
_ENDED: Final = ("done", "failed", "cancelled")


def follow(operation_id: str) -> Any:
    """Waits for its end, telling each change on stderr; the operation as it is then."""
    told: set[tuple[str, int | str]] = set()
    until = time.monotonic() + _LONGEST_SECONDS
    with connection.client() as opened:
        while True:
            found = opened.document(operations.get(operation_id))
            for line in _news(found, told=told):
                printing.say(line)
            if found["state"] in _ENDED or time.monotonic() >= until:
                return found
            moments.pause(_ASK_SECONDS)


def tell_end(found: Any) -> None:
    """Ends with the code that says how it went."""
    said = f"The operation {found['operation_id']} ({found['kind']})"
    reason = found["reason"] or "no reason was written down"
    match found["state"], found["class"]:
        case "done", _:
            return
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
    moments_of = ("created_at", "updated_at", "ended_at", "deadline_at")
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
        yield "No operations so far."
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


def _news(found: Any, *, told: set[tuple[str, int | str]]) -> Iterator[str]:
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


def _line(node_id: str | None, state: str, detail: str | None) -> str:
    said = f"{columns.clean(node_id)}: {columns.clean(state)}"
    return f"{said}, {columns.clean(detail)}" if detail else said
