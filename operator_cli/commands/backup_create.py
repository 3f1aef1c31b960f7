"""`enlist backup create`: the Platform streams the encrypted file, and it is kept here.

The Platform is told recipients alone. With a passphrase a key is made here for this one file,
locked with the passphrase, and stands before it; the passphrase never leaves this process.
"""

import errno
import hashlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

from enlist import backups, calls
from operator_cli import columns, connection, global_options, new_file, printing
from runtime_kit import crash_points, locked_key, progress
from runtime_kit import secret as secret_kit
from wire_protocol import problems

_MOST_RECIPIENTS_BYTES = 65_536
_MEGABYTE = 1_000_000

BEGUN = crash_points.declare(
    "backup.begun", story="some of a backup is written to the disk, most of it not"
)


class CannotWrite(Exception):
    """The backup could not be written: the message says why; nothing was left behind."""

    def __init__(self, sentence: str, *, code: problems.Exit) -> None:
        super().__init__(sentence)
        self.exit_code = int(code)


class MissingPackages(click.ClickException):
    """A passphrase needs the Platform's packages here, a recipient does not."""

    exit_code = int(problems.Exit.NEEDS_OPERATOR)


@click.command("create", cls=global_options.Command)
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option(
    "--recipient",
    "recipients",
    multiple=True,
    metavar="age1…",
    help="Encrypt to this age recipient; may repeat, any one opens it.",
)
@click.option(
    "--recipients-file", metavar="FILE", help="Recipients, one a line, # begins a comment."
)
@click.option("--passphrase-file", metavar="FILE", help="File with a passphrase, - for stdin.")
@click.option("--passphrase", hidden=True)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def create(
    file: pathlib.Path,
    *,
    recipients: Sequence[str],
    recipients_file: str | None,
    passphrase_file: str | None,
    passphrase: str | None,
    force: bool,
) -> None:
    """Write the whole Platform into one encrypted file, while it runs.

    Encrypted on the Platform's side to age recipients (age-keygen makes a pair; keep the secret
    half elsewhere), or with a passphrase, which is asked for on a terminal when nothing is given.
    FILE appears when it is whole. Needs the permission backup.manage. With --check nothing is
    written: recipients are judged and rows counted.

    Examples:
      enlist backup create nightly.enlist --recipient age1…
      enlist backup create nightly.enlist --passphrase-file /root/backup.pass -o json
    """
    options = global_options.current()
    wanted = [*recipients, *_listed(recipients_file)]
    if wanted and (passphrase_file is not None or passphrase is not None):
        raise click.UsageError("Give recipients or a passphrase, not both.")
    _refuse_existing(file, force=force)
    locked = None
    if not wanted:
        chosen = _passphrase(passphrase_file, typed=passphrase)
        locked = _lock(chosen)
        wanted = [locked.recipient]
    call = backups.create(recipients=wanted)
    if options.check:
        document = connection.ask(calls.checked(call))
        printing.show(document, lines=lambda: printing.changes(document, check=True))
        return
    document = _write(file, call=call, locked=locked, force=force)
    printing.show(document, lines=lambda: _lines(document))


def _write(
    file: pathlib.Path,
    *,
    call: calls.Call[None],
    locked: locked_key.LockedKey | None,
    force: bool,
) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    try:
        with (
            connection.client() as client,
            client.download(call) as download,
            new_file.written(file, replace=force) as opened,
            progress.Progress("Writing") as told,
        ):
            facts = backups.facts_of(download.headers)
            for piece in _pieces(locked, rest=download.pieces):
                opened.write(piece)
                crash_points.reach(BEGUN)
                digest.update(piece)
                size += len(piece)
                told(len(piece))
    except FileExistsError:
        raise _exists(file) from None
    except OSError as fault:
        full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        raise CannotWrite(
            f"The backup cannot be written to {file}: {fault.strerror or fault}. Nothing was left "
            "there.",
            code=problems.Exit.TEMPORARY if full else problems.Exit.INVALID,
        ) from fault
    return {"file": str(file), "bytes": size, "sha256": digest.hexdigest(), **facts}


def _pieces(locked: locked_key.LockedKey | None, *, rest: Iterator[bytes]) -> Iterator[bytes]:
    if locked is not None:
        yield locked.block
    yield from rest


def _lines(document: dict[str, Any]) -> Iterator[str]:
    rows = document["rows"]
    yield (
        f"Wrote {document['file']}: {document['bytes'] / _MEGABYTE:.2f} MB, "
        f"{rows.get('nodes', 0)} nodes, {sum(rows.values())} rows."
    )
    yield from columns.facts(
        [
            ("platform_id", document["platform_id"]),
            ("made_at", document["made_at"]),
            ("sha256", document["sha256"]),
        ]
    )


def _refuse_existing(file: pathlib.Path, *, force: bool) -> None:
    if file.is_dir():
        raise click.UsageError(f"{file} is a folder: give the name of a file.")
    if file.exists() and not force:
        raise _exists(file)


def _exists(file: pathlib.Path) -> CannotWrite:
    return CannotWrite(
        f"{file} exists already: give another name, or --force to replace it.",
        code=problems.Exit.CONFLICT,
    )


def _listed(place: str | None) -> list[str]:
    if place is None:
        return []
    try:
        with pathlib.Path(place).open("rb") as opened:
            text = opened.read(_MOST_RECIPIENTS_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise click.UsageError(f"The recipients in {place} cannot be read: {reason}.") from error
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise click.UsageError(f"{place} names no recipient.")
    return found


def _passphrase(place: str | None, *, typed: str | None) -> secret_kit.Secret:
    if place is not None:
        text = connection.read_secret(place, what="passphrase")
        if len(text.splitlines()) > 1:
            raise click.UsageError("A passphrase is one line.")
        return secret_kit.Secret(text)
    if typed:
        printing.say(
            "Warning: a passphrase given as an argument can be read by others on this machine: use "
            "--passphrase-file."
        )
        return secret_kit.Secret(typed)
    if not connection.on_terminal():
        raise click.UsageError(
            "Say to whom the backup is encrypted: --recipient age1…, --recipients-file FILE or "
            "--passphrase-file FILE."
        )
    asked: str = click.prompt(
        "Passphrase for the backup", hide_input=True, confirmation_prompt=True, err=True
    )
    return secret_kit.Secret(asked)


def _lock(passphrase: secret_kit.Secret) -> locked_key.LockedKey:
    try:
        return locked_key.new(passphrase)
    except ModuleNotFoundError:
        raise MissingPackages(
            "A passphrase needs the Platform's packages on this machine: give --recipient instead, "
            "or install them: pip install 'enlist[platform]'"
        ) from None
