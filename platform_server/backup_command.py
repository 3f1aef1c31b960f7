"""`enlist backup restore` and `enlist backup verify`: beside a Platform that does not run.

Making a backup is a question to the Platform that runs (operator_cli); reading one needs its file
and its key, and filling an empty place needs nobody's permission but the file system's. Not for:
any decision about what a restore does.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from platform_server.app import data_dir as data_dirs
from platform_server.app import store_lock
from platform_server.backup import contents, encryption, failures, manifest, restore
from platform_server.settings import layers, listing
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import locked_key, progress
from runtime_kit import secret as secret_kit
from wire_protocol import problems, times

_STDIN: Final = "-"
_MOST_SECRET_BYTES: Final = 65_536
_OUTPUTS: Final = ("table", "json", "yaml")


class InvalidUse(click.ClickException):
    """The options or settings are out of shape; the message names them."""

    exit_code = int(problems.Exit.INVALID)


class StoreRefused(Exception):
    """The database could not be used: the message says why and what to do."""

    def __init__(self, fault: contract.StoreError) -> None:
        super().__init__(str(fault))
        passing = isinstance(fault, contract.StoreBusy | contract.StoreFull | contract.StoreAway)
        code = problems.Exit.TEMPORARY if passing else problems.Exit.NEEDS_OPERATOR
        self.exit_code = int(code)


def _key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--passphrase", hidden=True),
        click.option(
            "--passphrase-file", metavar="FILE", help="File with the passphrase, - for stdin."
        ),
        click.option(
            "--identity-file",
            metavar="FILE",
            help="File with the recipient's secret key (AGE-SECRET-KEY-1…), - for stdin.",
        ),
        click.option("--output", "-o", type=click.Choice(_OUTPUTS), help="How to print."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@_key_options
def verify(
    file: pathlib.Path,
    *,
    identity_file: str | None,
    passphrase_file: str | None,
    passphrase: str | None,
    output: str | None,
) -> None:
    """Read a backup to its end and say what it holds.

    Decrypts it, checks every part against the manifest and reads every row; needs no Platform and
    writes nothing. Exit code 3 for a damaged or cut file, 7 for a wrong key, 6 for a backup of a
    newer Enlist.

    Example:
      enlist backup verify nightly.enlist --identity-file key.txt
    """
    key = _key(
        file, identity_file=identity_file, passphrase_file=passphrase_file, passphrase=passphrase
    )
    proven = _verified(file, key=key)
    _show(described(proven, file=file), output=output, lines=lambda: _verify_lines(proven))


@click.command("restore")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option("--database-url", metavar="URL", help="An empty database.  [SQLite in the directory]")
@click.option("--data-dir", metavar="DIR", help="An empty directory; made if need be.")
@click.option("--check", is_flag=True, help="Read and judge everything; change nothing.")
@_key_options
def restore_(
    file: pathlib.Path,
    *,
    database_url: str | None,
    data_dir: str | None,
    check: bool,
    identity_file: str | None,
    passphrase_file: str | None,
    passphrase: str | None,
    output: str | None,
) -> None:
    """Fill an empty data directory and an empty database from a backup.

    The Platform must not run there. Pending enrollments, API tokens and open orders are void
    afterwards; machines that had joined come back by themselves once the Platform runs. Where it
    was interrupted, the same command goes on. Exit code 4 when the target is not empty, 3 for a
    damaged or cut file, 7 for a wrong key, 6 for a backup of a newer Enlist, 75 when the disk is
    full or the database away.

    Examples:
      enlist backup restore nightly.enlist --identity-file key.txt --data-dir DIR
      enlist backup restore nightly.enlist --passphrase-file - --check
    """
    key = _key(
        file, identity_file=identity_file, passphrase_file=passphrase_file, passphrase=passphrase
    )
    target = _target(data_dir, database_url=database_url)
    proven = _verified(file, key=key)
    with _told():
        if check:
            mark = asyncio.run(restore.judge(target, head=proven.head))
            document = _checked(proven, target=target, goes_on=mark is not None)
            _show(document, output=output, lines=lambda: _check_lines(document))
            return
        asyncio.run(restore.judge(target, head=proven.head))  # before anything is made
        done = _restored(file, key=key, target=target, proven=proven)
    document = _done(done, proven=proven, target=target)
    for warning in document["warnings"]:
        sys.stderr.write(f"Warning: {warning}\n")
    _show(document, output=output, lines=lambda: _restore_lines(document))


def _restored(
    file: pathlib.Path,
    *,
    key: encryption.Key,
    target: restore.Target,
    proven: manifest.Manifest,
) -> restore.Restored:
    lock = data_dirs.lock(data_dirs.ensure(target.data_dir))
    try:
        with (
            store_lock.held(target.database_url),
            progress.Progress("Restoring", total=file.stat().st_size) as told,
        ):
            return asyncio.run(
                restore.restore(
                    file,
                    key=key,
                    target=target,
                    proven=proven,
                    actor=f"local:{os.geteuid()}",
                    clock=clock_kit.SystemClock(),
                    told=told,
                )
            )
    finally:
        os.close(lock)


def _verified(file: pathlib.Path, *, key: encryption.Key) -> manifest.Manifest:
    size = file.stat().st_size if file.is_file() else None
    with progress.Progress("Reading", total=size) as told:
        return contents.verify(file, key=key, told=told)


def _target(data_dir: str | None, *, database_url: str | None) -> restore.Target:
    """The place: `--data-dir`, and the database that its settings name unless one is given."""
    place = (
        pathlib.Path(data_dir) if data_dir else data_dirs.default(environ=os.environ)
    ).absolute()
    if database_url is not None and listing.hide_password(database_url) != database_url:
        sys.stderr.write(
            "Warning: every account on this machine can read a password on the command line; put "
            "the URL into ENLIST_STORE__DATABASE_URL.\n"
        )
    url = database_url or _database_of(place)
    key_path = data_dirs.master_key_path(place, environ=os.environ)
    return restore.Target(data_dir=place, key_path=key_path, database_url=url)


def _database_of(place: pathlib.Path) -> str:
    try:
        loaded = layers.load(place, config_file=None, environ=os.environ, flags={})
    except layers.InvalidSettings as fault:
        raise InvalidUse(str(fault)) from None
    return loaded.settings.store.database_url or f"sqlite:///{place}/enlist.db"


def _key(
    file: pathlib.Path,
    *,
    identity_file: str | None,
    passphrase_file: str | None,
    passphrase: str | None,
) -> encryption.Key:
    given = [one for one in (identity_file, passphrase_file, passphrase) if one is not None]
    if len(given) > 1:
        raise click.UsageError("Give --identity-file or --passphrase-file, not both.")
    if identity_file is not None:
        return encryption.Identities(_secret(identity_file, what="identity"))
    if passphrase_file is not None:
        return encryption.Passphrase(_first_line(_secret(passphrase_file, what="passphrase")))
    if passphrase is not None:
        sys.stderr.write(
            "Warning: a passphrase given as an argument can be read by others on this machine: use "
            "--passphrase-file.\n"
        )
        return encryption.Passphrase(secret_kit.Secret(passphrase))
    if not (_has_passphrase(file) and sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(
            "Give the key of the backup: --identity-file FILE, or --passphrase-file FILE."
        )
    typed = click.prompt("Passphrase of the backup", hide_input=True, err=True)
    return encryption.Passphrase(secret_kit.Secret(typed))


def _has_passphrase(file: pathlib.Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(locked_key.BEGIN)) == locked_key.BEGIN
    except FileNotFoundError:
        raise failures.NotFound(f"There is no file {file}.") from None
    except OSError:
        return False


def _secret(place: str, *, what: str) -> secret_kit.Secret:
    try:
        if place == _STDIN:
            raw = sys.stdin.buffer.read(_MOST_SECRET_BYTES + 1)
        else:
            with pathlib.Path(place).open("rb") as opened:
                raw = opened.read(_MOST_SECRET_BYTES + 1)
        text = raw.decode().strip("\ufeff \t\r\n")
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is not text"
        raise click.UsageError(f"The {what} in {place} cannot be read: {reason}.") from None
    if not text or len(raw) > _MOST_SECRET_BYTES:
        raise click.UsageError(f"{place} does not hold a {what}.")
    return secret_kit.Secret(text)


def _first_line(text: secret_kit.Secret) -> secret_kit.Secret:
    if len(text.reveal().splitlines()) > 1:
        raise click.UsageError("A passphrase is one line.")
    return text


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except contract.StoreError as fault:
        raise StoreRefused(fault) from fault


def described(proven: manifest.Manifest, *, file: pathlib.Path) -> dict[str, Any]:
    """What a proven file holds, as a document."""
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "plain_bytes": proven.plain_bytes,
        **_head(proven.head),
        "parts": len(proven.parts),
    }


def _head(head: manifest.Head) -> dict[str, Any]:
    return {
        "backup_id": head.backup_id,
        "platform_id": head.platform_id,
        "epoch": head.epoch,
        "made_at": times.to_rfc3339(head.made_at),
        "enlist_version": head.enlist_version,
        "schema_version": head.schema,
        "rows": dict(head.rows),
    }


def _checked(proven: manifest.Manifest, *, target: restore.Target, goes_on: bool) -> dict[str, Any]:
    shown = listing.hide_password(target.database_url)
    return {
        "check": True,
        "changes": [
            {
                "action": "go on filling" if goes_on else "fill",
                "target": str(target.data_dir),
                "detail": f"and the database {shown}, with {sum(proven.head.rows.values())} rows "
                f"of {times.to_rfc3339(proven.head.made_at)}",
            }
        ],
        **_head(proven.head),
    }


def _done(
    done: restore.Restored, *, proven: manifest.Manifest, target: restore.Target
) -> dict[str, Any]:
    settled = done.settled
    warnings = [
        f"The settings file {name} that was there was kept; the backup's differs from it."
        for name in done.kept
    ]
    if settled is not None and settled.trust_ended:
        warnings.append(
            "Every trust key of this backup has ended, so no machine can follow the new one: each "
            "must be joined again (enlist nodes enroll-token ID --replace)."
        )
    if _database_of(target.data_dir) != target.database_url:
        warnings.append(
            "The settings name another database than the one that was filled: start with "
            "--database-url, or correct [store] database_url first."
        )
    return {
        **_head(proven.head),
        "data_dir": str(target.data_dir),
        "database": listing.hide_password(target.database_url),
        "epoch": proven.head.epoch if settled is None else settled.epoch,
        "epoch_before": proven.head.epoch,
        "nodes": None if settled is None else settled.nodes,
        "enrollments_revoked": None if settled is None else settled.enrollments_revoked,
        "tokens_voided": None if settled is None else settled.tokens_voided,
        "orders_cancelled": None if settled is None else settled.orders_cancelled,
        "config_written": list(done.written),
        "config_kept": list(done.kept),
        "warnings": warnings,
    }


def _verify_lines(proven: manifest.Manifest) -> Iterator[str]:
    head = proven.head
    yield f"Whole: a backup of {head.platform_id}, made at {times.to_rfc3339(head.made_at)}."
    yield (
        f"Enlist {head.enlist_version}, schema {head.schema}, epoch {head.epoch}, "
        f"{len(proven.parts)} parts, {proven.plain_bytes} bytes."
    )
    yield from (f"  {table}: {count}" for table, count in head.rows.items())


def _check_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield "Would do, nothing has been changed:"
    for change in document["changes"]:
        yield f"{change['action']} {change['target']}: {change['detail']}"


def _restore_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Restored {document['platform_id']} as it was at {document['made_at']} into "
        f"{document['data_dir']}, epoch {document['epoch']}."
    )
    if document["nodes"] is not None:
        yield (
            f"Void now: {document['enrollments_revoked']} pending enrollments, "
            f"{document['tokens_voided']} API tokens, {document['orders_cancelled']} orders."
        )
        yield f"{document['nodes']} nodes come back by themselves once the Platform runs."


def _show(
    document: Mapping[str, Any], *, output: str | None, lines: Callable[[], Iterator[str]]
) -> None:
    chosen = output or os.environ.get("ENLIST_OUTPUT") or "table"
    if chosen == "table":
        for line in lines():
            click.echo(line)
    elif chosen == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        import yaml  # noqa: PLC0415 - costs start-up time that nobody else need pay

        click.echo(yaml.safe_dump(dict(document), sort_keys=False), nl=False)
