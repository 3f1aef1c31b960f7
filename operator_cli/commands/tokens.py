"""`enlist tokens`: API tokens for people and programs that are not on the Platform's machine."""

import getpass
from collections.abc import Iterator
from typing import Any

import click

from enlist import errors
from enlist import tokens as token_calls
from operator_cli import arguments, columns, connection, lazy, moments, printing

_PAGE = 500
_NEVER = "never"
_SECONDS_A_DAY = 86_400


@click.group(cls=lazy.Group, no_args_is_help=True)
def tokens() -> None:
    """API tokens for people and programs.

    Examples:
      enlist tokens create --permission nodes.view --permission nodes.enroll
      enlist tokens list
    """


@arguments.command(tokens, "create")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    required=True,
    metavar="P",
    help="What it may do, such as nodes.view; repeat it for more.",
)
@click.option(
    "--expires", metavar="D", default="90d", show_default=True, help="30d, 52w, or never."
)
@click.option("--name", metavar="NAME", help="What it is for, shown in lists and in the log.")
def create(permissions: tuple[str, ...], expires: str, name: str | None) -> None:
    """Create an API token and print it, this once.

    On stdout stands the token alone; use it by --token-file or ENLIST_TOKEN.

    Examples:
      (umask 077; enlist tokens create --permission nodes.view > viewer.token)
      enlist tokens create --permission nodes.enroll --expires 7d --name pipeline -o json
    """
    call = token_calls.create(
        name or f"{getpass.getuser()}'s token", permissions=permissions, ttl_days=_days(expires)
    )
    created = connection.change(call)
    if created is None:
        return
    if created["token"] is None:
        raise errors.NeedsOperator(
            "The token was created, but the answer that showed it was lost. Revoke it and create "
            f"another: enlist tokens revoke {created['record']['token_id']}",
            code="token-already-shown",
        )
    printing.show(created, lines=lambda: _created(created))


@arguments.command(tokens, "list")
@arguments.INFRA
def list_(infra: str | None) -> None:
    """List the tokens; none shows its secret.

    Example:
      enlist tokens list
    """
    found = connection.every(token_calls.list_(limit=_PAGE, infra=infra), of="tokens")
    printing.show({"tokens": found}, lines=lambda: _table(found))


@arguments.command(tokens, "revoke")
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """End the token ID (from enlist tokens list) at once.

    Example:
      enlist tokens revoke 3f2a9c1b7d5e8f60
    """
    done = connection.change(token_calls.revoke(token_id), question=f"Revoke the token {token_id}?")
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


def _days(text: str) -> int | None:
    if text == _NEVER:
        return None
    try:
        seconds = moments.parse_span(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from error
    if seconds < _SECONDS_A_DAY or seconds % _SECONDS_A_DAY:
        raise click.BadParameter(
            "A token lives for whole days: write 30d, 52w, or never.", param_hint="--expires"
        )
    return int(seconds // _SECONDS_A_DAY)


def _created(created: dict[str, Any]) -> Iterator[str]:
    record = created["record"]
    until = moments.local(record["expires_at"]) if record["expires_at"] else "revoked"
    printing.say(
        f"Token {record['token_id']} ({columns.clean(record['name'])}), valid until {until}, "
        "shown this once:"
    )
    yield created["token"]


def _table(found: list[Any]) -> Iterator[str]:
    if not found:
        yield "No tokens. On the Platform's machine none is needed: the socket knows who asks."
        return
    yield from columns.table(
        ("TOKEN", "NAME", "PERMISSIONS", "CREATED", "BY", "EXPIRES", "LAST USED", "REVOKED"),
        [
            (
                one["token_id"],
                one["name"],
                columns.listed(one["permissions"]),
                moments.local(one["created_at"]),
                one["created_by"],
                moments.local(one["expires_at"]) if one["expires_at"] else _NEVER,
                moments.local(one["last_used_at"]),
                moments.local(one["revoked_at"]),
            )
            for one in found
        ],
    )
