"""`enlist cloud issuer`: the static files that providers read to believe our assertions."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from enlist import cloud as calls
from enlist import errors
from operator_cli import arguments, columns, connection, global_options, lazy, moments, printing

_PUBLIC_FILE = 0o644
_PUBLIC_FOLDER = 0o755


@click.group("issuer", cls=lazy.Group, no_args_is_help=True)
def issuer() -> None:
    """The static files that providers read to believe this Platform without a stored secret.

    Examples:
      enlist cloud issuer show
      enlist cloud issuer export ./public
    """


@arguments.command(issuer, "show")
def show() -> None:
    """Show the issuer's address, its files, and until when its key signs.

    Example:
      enlist cloud issuer show -o json
    """
    found = connection.ask(calls.issuer())
    printing.show(found, lines=lambda: _facts(found))


@arguments.command(issuer, "export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def export(folder: Path) -> None:
    """Write the issuer's files into DIR, for any public https host to serve.

    They hold nothing secret. Serve DIR at exactly the address that [cloud] issuer_url names, and
    export again whenever a new key is announced (event cloud.issuer-key-shown).

    Example:
      enlist cloud issuer export /var/www/issuer
    """
    found = connection.ask(calls.issuer())
    if found["url"] is None:
        raise errors.NeedsOperator(
            "This Platform's issuer has no address. Set [cloud] issuer_url to the https address "
            "at which you will publish its files, restart, then: enlist cloud issuer export DIR"
        )
    paths = [_inside(folder, one["path"]) for one in found["files"]]
    changes = [
        {"action": "write", "target": str(path), "detail": f"{len(one['document'])} bytes"}
        for path, one in zip(paths, found["files"], strict=True)
    ]
    check = global_options.current().check
    if not check:
        for path, one in zip(paths, found["files"], strict=True):
            _write(path, one["document"])
    document = {"url": found["url"], "changes": changes}
    printing.show(document, lines=lambda: printing.changes(document, check=check))


@arguments.command(issuer, "rotate")
@click.option("--at-once", is_flag=True, help="The present key is feared to be in other hands.")
def rotate(*, at_once: bool) -> None:
    """Show a further key of the issuer, which signs in a month; keys rotate by themselves.

    Export and publish the files before it signs. With --at-once the present key ends now, and
    providers refuse this Platform until the new files are published.

    Examples:
      enlist cloud issuer rotate
      enlist cloud issuer rotate --at-once && enlist cloud issuer export /var/www/issuer
    """
    question = "End the present key of the issuer now?" if at_once else None
    done = connection.change(calls.rotate_issuer(at_once=at_once), question=question)
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _inside(folder: Path, name: str) -> Path:
    """Where it goes; an answer cannot name a place outside of the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise errors.Fault(f"The Platform named the file {columns.clean(name)}, outside of DIR.")
    return path


def _write(path: Path, text: str) -> None:
    """Whole or not at all, readable by the web server."""
    try:
        path.parent.mkdir(mode=_PUBLIC_FOLDER, parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.new")
        aside.unlink(missing_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PUBLIC_FILE)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, _PUBLIC_FILE)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        aside.replace(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _facts(found: Any) -> Iterator[str]:
    if found["url"] is None:
        yield "No issuer: set [cloud] issuer_url for credentials that federate."
        return
    yield from columns.facts(
        [
            ("url", found["url"]),
            ("signs until", moments.local(found["signs_until"])),
            ("files", columns.listed([one["path"] for one in found["files"]])),
        ]
    )
