"""`enlist config`: the named Platforms in this person's config file."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import click

from enlist import errors, targets
from operator_cli import arguments, columns, connection, contexts, global_options, lazy, printing


@click.group(cls=lazy.Group, no_args_is_help=True)
def config() -> None:
    """Which Platform commands talk to.

    Examples:
      enlist config add-context prod --url https://platform.example.org:8440 --pin sha256:...
      enlist config use prod
    """


@arguments.command(config, "add-context")
@click.argument("name")
@click.option("--url", required=True, help="The Platform's API, https://host:8440.")
@click.option("--pin", "pins", multiple=True, metavar="PIN", help="sha256: of its public key.")
@click.option("--ca-file", metavar="FILE", help="Certificates that issued the Platform's.")
def add_context(name: str, url: str, pins: tuple[str, ...], ca_file: str | None) -> None:
    """Keep a Platform under NAME; the first one becomes the current one.

    With --pin the Platform is known by its key (enlist platform show on its machine tells it).
    With the global --token-file, the file's place is kept, not the token.

    Example:
      enlist config add-context prod --url https://p.example.org:8440 --pin sha256:9f86...
    """
    contexts.check_name(name)
    token_file = global_options.current().token_file
    if token_file == connection.STDIN:
        raise click.UsageError("A context keeps where the token lies: give a file, not stdin.")
    target = targets.parse(url, pins=pins)
    context = contexts.Context(
        url=url if target.socket else target.origin,
        pins=tuple(sorted(target.pins)),
        ca_file=_absolute(ca_file),
        token_file=_absolute(token_file),
    )
    book = _read()
    book = dataclasses.replace(
        book, contexts={**book.contexts, name: context}, current=book.current or name
    )
    _write(book, said=f"Context {name} is kept.")


@arguments.command(config, "use")
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the Platform that commands talk to.

    Example:
      enlist config use prod
    """
    book = _read()
    _require(book, name=name)
    _write(dataclasses.replace(book, current=name), said=f"Commands now talk to {name}.")


@arguments.command(config, "remove-context")
@click.argument("name")
def remove_context(name: str) -> None:
    """Forget the context NAME; the Platform and the token file stay.

    Example:
      enlist config remove-context prod
    """
    book = _read()
    _require(book, name=name)
    kept = {other: context for other, context in book.contexts.items() if other != name}
    current = None if book.current == name else book.current
    _write(contexts.Book(contexts=kept, current=current), said=f"Context {name} is forgotten.")


@arguments.command(config, "list")
def list_() -> None:
    """List the contexts.

    Example:
      enlist config list
    """
    book = _read()
    document = {
        "current": book.current,
        "contexts": [
            {"name": name, **dataclasses.asdict(context), "pins": list(context.pins)}
            for name, context in sorted(book.contexts.items())
        ],
    }
    printing.show(document, lines=lambda: _table(book))


def _table(book: contexts.Book) -> Iterator[str]:
    if not book.contexts:
        yield "No contexts: commands talk to this machine's Platform."
        return
    yield from columns.table(
        ("CURRENT", "NAME", "URL", "KNOWN BY", "TOKEN FILE"),
        [
            (
                "*" if name == book.current else "",
                name,
                context.url,
                "pin" if context.pins else "CA file" if context.ca_file else "public roots",
                context.token_file,
            )
            for name, context in sorted(book.contexts.items())
        ],
    )


def _read() -> contexts.Book:
    return contexts.read(contexts.place(global_options.current().environment))


def _write(book: contexts.Book, *, said: str) -> None:
    if global_options.current().check:
        printing.say(f"Would say, nothing has been changed: {said}")
        return
    contexts.write(contexts.place(global_options.current().environment), book)
    printing.say(said)


def _require(book: contexts.Book, *, name: str) -> None:
    if name not in book.contexts:
        raise errors.NotFound(
            f"There is no context {columns.clean(name[:80])}. Those there are: "
            f"{columns.listed(sorted(book.contexts))}.",
            code="not-found",
        )


def _absolute(place: str | None) -> str | None:
    return None if place is None else str(Path(place).expanduser().absolute())
