"""What goes to stdout: one document for programs, or lines for people; all else to stderr.

JSON keeps the Platform's names and times and is escaped to ASCII, so that nothing in it can steer
a terminal.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from operator_cli import columns, global_options

Lines = Callable[[], Iterable[str]]


def show(document: Any, *, lines: Lines) -> None:
    """Prints the document in the form that was asked for."""
    output = global_options.current().output
    if output == "table":
        for line in lines():
            click.echo(line)
    elif output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        # Here, since nothing else needs it.
        import yaml  # noqa: PLC0415

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=False), nl=False)


def say(sentence: str) -> None:
    """A message for the person, beside what is printed."""
    click.echo(sentence, err=True)


def changes(document: Any, *, check: bool) -> Iterable[str]:
    """The lines that say what a call did, or would do."""
    found: Sequence[Mapping[str, Any]] = (document or {}).get("changes", [])
    if not found:
        yield "Nothing would change." if check else "Nothing had to change."
        return
    if check:
        yield "Would do, nothing has been changed:"
    for change in found:
        words = [columns.clean(change.get(name)) for name in ("action", "target", "detail")]
        yield f"{words[0]} {words[1]}: {words[2]}" if words[2] != "-" else f"{words[0]} {words[1]}"


def state(word: str) -> str:
    """A node's state in the colour of a traffic light, where the terminal shows colours."""
    color = {"ready": "green", "unreachable": "yellow", "needs-operator": "red"}.get(word)
    return click.style(word, fg=color) if color else word
