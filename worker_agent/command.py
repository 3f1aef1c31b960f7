"""The commands of a worker: `enlist worker …` and `enlist agent`.

Not here: `update`, which changes what is installed (`operator_cli.commands.worker_update`).
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import random
import site
import sys
from typing import Any, Protocol

import click

from runtime_kit import clock as clock_kit
from runtime_kit import private_files
from runtime_kit import secret as secret_kit
from worker_agent.app import own_errands
from worker_agent.app import status as status_report
from worker_agent.enrollment import (
    checking,
    flow,
    outcome,
    plan,
    secrets_in,
    stored,
    surroundings,
    wish,
)
from worker_agent.settings import failures, modes, paths
from worker_agent.trust import refresh as trust_refresh


class _Printable(Protocol):
    """What a command prints, for people and for programs."""

    def to_document(self) -> dict[str, object]: ...
    def to_text(self) -> str: ...


@click.group()
def worker() -> None:
    """Join this machine to a Platform.

    Examples:
      enlist worker join -
      enlist worker status
    """


@worker.command()
@click.argument("join_token", required=False)
@click.option("--join-token-file", metavar="FILE", help="File with the join token, - for stdin.")
@click.option("--ticket-file", metavar="FILE", help="The ticket of a machine that was ordered.")
@click.option("--platform-url", metavar="URL", help="The Platform's https address.")
@click.option("--node-id", metavar="ID", help="The node id that the token was issued for.")
@click.option("--enrollment-token", metavar="T", help="The enrollment token; warns, see the file.")
@click.option("--enrollment-token-file", metavar="FILE", help="File with the enrollment token.")
@click.option(
    "--platform-fingerprint",
    "fingerprints",
    multiple=True,
    metavar="sha256:HEX",
    help="The Platform's pin; may repeat, one match is enough.",
)
@click.option("--platform-ca-file", metavar="FILE", help="The Platform's private CA, PEM.")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="IP|HOST",
    help="Listen, and be dialled by the Platform at this address; may repeat.",
)
@click.option("--port", type=int, metavar="PORT", help="The Agent's port.  [default: 8443]")
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="What this machine says of itself."
)
@click.option("--check", is_flag=True, help="Say what would happen; send and write nothing.")
def join(
    *,
    join_token: str | None,
    join_token_file: str | None,
    ticket_file: str | None,
    platform_url: str | None,
    node_id: str | None,
    enrollment_token: str | None,
    enrollment_token_file: str | None,
    fingerprints: tuple[str, ...],
    platform_ca_file: str | None,
    addresses: tuple[str, ...],
    port: int | None,
    labels: tuple[str, ...],
    check: bool,
) -> None:
    """Make this machine a node of a Platform.

    The join token comes from `enlist nodes enroll-token ID` and is best given on stdin.

    Example:
      enlist worker join - --address 192.0.2.10 <<'END'
      enj_…
      END
    """
    where = _paths()
    if not check and os.path.lexists(where.agent):  # joined: what is closed can be read and binds
        modes.tighten(where, warn=_warn)
    reader = private_files.read_bounded if check else private_files.read_private
    found = stored.read(where, reader=reader)
    given = wish.Given(
        join_token=_join_token(join_token, join_token_file),
        ticket=_ticket(ticket_file),
        platform_url=platform_url,
        node_id=node_id,
        enrollment_token=_enrollment_token(enrollment_token, enrollment_token_file),
        fingerprints=fingerprints,
        ca_pem=_ca(platform_ca_file),
        addresses=addresses,
        port=port,
        labels=labels,
    )
    tokens = (given.join_token, given.enrollment_token, given.ticket)
    if tokens == (None, None, None) and not found.has_joined:
        given = _with_prompted_token(given)
    decided = plan.decide(wish.parse(given), stored=found)
    if check:
        _show(asyncio.run(checking.check(decided, where=where)))
        return
    for fault in found.faults:
        _warn(fault)
    if isinstance(decided, plan.AlreadyJoined):
        _show(outcome.of_earlier(decided, held=found.held, where=where))
        return
    around = surroundings.Surroundings(
        clock=clock_kit.SystemClock(),
        chance=random.SystemRandom(),
        environment=os.environ,
        warn=_warn,
        say=_say,
    )
    done = asyncio.run(flow.join(decided, where=where, around=around))
    for warning in outcome.warnings_of(done):
        _warn(warning)
    _show(done)


@worker.command()
def status() -> None:
    """Show whether this machine has joined, and as whom.

    Example:
      enlist worker status -o json
    """
    report = status_report.read(_paths(), now=clock_kit.SystemClock().now())
    _show(report)


@worker.command("refresh-trust")
@click.option("--check", is_flag=True, help="Ask and say what would change; write nothing.")
def refresh_trust(*, check: bool) -> None:
    """Ask the Platform for its trust keys now.

    Example:
      enlist worker refresh-trust
    """
    where, clock = _paths(), clock_kit.SystemClock()
    if check:
        _show(asyncio.run(trust_refresh.rehearse(where, clock=clock, warn=_warn)))
        return
    modes.tighten(where, warn=_warn)
    _show(asyncio.run(trust_refresh.refresh(where, clock=clock, warn=_warn)))


@worker.command()
@click.option("--new-key", is_flag=True, help="Change the key as well; the present one signs it.")
@click.option("--check", is_flag=True, help="Ask whether it could be done; change nothing.")
def renew(*, new_key: bool, check: bool) -> None:
    """Renew this machine's certificate now.

    The Agent does it by itself when two thirds of the certificate's time are over.

    Example:
      enlist worker renew --new-key
    """
    where = _paths()
    using = own_errands.around(where, clock=clock_kit.SystemClock())
    if check:
        _show(asyncio.run(own_errands.rehearse_renewal(where, using=using)))
        return
    modes.tighten(where, warn=_warn)
    _show(asyncio.run(own_errands.renew(where, using=using, new_key=new_key)))


@worker.command()
@click.option("--check", is_flag=True, help="Ask whether it could be done; change nothing.")
def leave(*, check: bool) -> None:
    """Have the Platform remove this node, and delete its key and files here.

    Example:
      enlist worker leave
    """
    where = _paths()
    using = own_errands.around(where, clock=clock_kit.SystemClock())
    if check:
        _show(asyncio.run(own_errands.rehearse_leaving(where, using=using)))
        return
    _confirm(f"Remove this node from its Platform, and delete its key and files in {where.folder}?")
    modes.tighten(where, warn=_warn)
    _show(asyncio.run(own_errands.leave(where, using=using)))


@click.command()
def agent() -> None:
    """Run this machine's Agent."""
    where = _paths()
    command = [sys.executable, "-P", "-m", "worker_agent", "--data-dir", str(where.folder)]
    if _root().debug:
        command.insert(4, "--debug")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, _environment_for_agent())  # noqa: S606 - becomes the Agent


def _environment_for_agent() -> dict[str, str]:
    """The same, with this very package found also where it was started from a source folder."""
    environment = dict(os.environ)
    root = str(pathlib.Path(__file__).resolve().parent.parent)
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{before}" if before else root
    return environment


class _Root(Protocol):
    """The global options, as the command line's root keeps them."""

    output: str
    data_dir: str | None
    debug: bool
    yes: bool


def _root() -> _Root:
    found: Any = click.get_current_context().find_root().obj
    root: _Root = found
    return root


def _paths() -> paths.Paths:
    return paths.resolve(_root().data_dir, environment=os.environ, uid=os.geteuid())


def _show(printable: _Printable) -> None:
    output = _root().output
    if output == "json":
        click.echo(json.dumps(printable.to_document(), indent=2))
    elif output == "yaml":
        import yaml  # noqa: PLC0415 - only who asks for YAML pays for it

        click.echo(yaml.safe_dump(printable.to_document(), sort_keys=False), nl=False)
    else:
        click.echo(printable.to_text())


def _confirm(question: str) -> None:
    """Asks on a terminal; without one, or with `--yes`, goes on."""
    if _root().yes or not sys.stdin.isatty():
        return
    if not click.confirm(question, err=True):
        raise click.UsageError("Nothing was changed.")


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _join_token(argument: str | None, file: str | None) -> secret_kit.Secret | None:
    if argument is not None and file is not None:
        raise failures.Misuse("The join token is given twice: as an argument and as a file.")
    if argument is not None:
        return secrets_in.from_argument(argument, flag="The join token", warn=_warn)
    return None if file is None else secrets_in.from_file(file, flag="--join-token-file")


def _ticket(file: str | None) -> secret_kit.Secret | None:
    return None if file is None else secrets_in.from_file(file, flag="--ticket-file")


def _enrollment_token(argument: str | None, file: str | None) -> secret_kit.Secret | None:
    if argument is not None and file is not None:
        raise failures.Misuse("Give --enrollment-token or --enrollment-token-file, not both.")
    if argument is not None:
        return secrets_in.from_argument(argument, flag="--enrollment-token", warn=_warn)
    return None if file is None else secrets_in.from_file(file, flag="--enrollment-token-file")


def _ca(file: str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return private_files.read_bounded(pathlib.Path(file), max_bytes=wish.MAX_CA_BYTES)
    except private_files.FileTooLarge as error:
        raise failures.Misuse(f"--platform-ca-file: {error}") from error
    except OSError as error:
        raise failures.Misuse(f"--platform-ca-file: {file}: {error.strerror}.") from error


def _with_prompted_token(given: wish.Given) -> wish.Given:
    """Asks for the token that is missing, without echo, where a person sits at a terminal."""
    if not sys.stdin.isatty():
        raise failures.Misuse(
            "No token was given. Give the join token on stdin (enlist worker join -), in a file "
            "(--join-token-file), or an enrollment token (--enrollment-token-file)."
        )
    if given.platform_url is not None:
        text = click.prompt("Enrollment token", hide_input=True, err=True)
        return dataclasses.replace(given, enrollment_token=secret_kit.Secret(text))
    text = click.prompt("Join token", hide_input=True, err=True)
    return dataclasses.replace(given, join_token=secret_kit.Secret(text))
