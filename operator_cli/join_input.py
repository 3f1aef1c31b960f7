"""The words of `enlist worker join` typed as root, with the files that only root may read opened.

Tokens come as an argument, on stdin, from a file or from the terminal; all is bounded, and nothing
is sent from here.
"""

import getpass
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import click

from runtime_kit import private_files
from wire_protocol import problems

_MOST_TOKEN_BYTES = 16_384
_MOST_CA_BYTES = 65_536


class BadInput(click.ClickException):
    """The input is wrong: nothing was sent or spent."""

    exit_code = int(problems.Exit.INVALID)


def read(given: Mapping[str, Any], *, may_ask: bool) -> dict[str, Any]:
    """What `pending_join.document` takes; raises `BadInput`."""
    token = _secret(given["join_token"], given["join_token_file"], what="join token")
    enrollment = _secret(
        given["enrollment_token"], given["enrollment_token_file"], what="enrollment token"
    )
    ticket_file = given["ticket_file"]
    ticket = (
        None
        if ticket_file is None
        else _text(ticket_file, most=_MOST_TOKEN_BYTES, what="--ticket-file")
    )
    if token is enrollment is ticket is None and may_ask and sys.stdin.isatty():
        if given["platform_url"] is not None:
            enrollment = getpass.getpass("Enrollment token: ")
        else:
            token = getpass.getpass("Join token: ")
    ca_file = given["platform_ca_file"]
    return {
        "join_token": token,
        "ticket": ticket,
        "enrollment_token": enrollment,
        "ca_pem": None
        if ca_file is None
        else _text(ca_file, most=_MOST_CA_BYTES, what="--platform-ca-file"),
        "platform_url": given["platform_url"],
        "node_id": given["node_id"],
        "fingerprints": list(given["fingerprints"]),
        "addresses": list(given["addresses"]),
        "labels": list(given["labels"]),
        "port": given["port"],
    }


def _secret(argument: str | None, file: str | None, *, what: str) -> str | None:
    if argument is not None and file is not None:
        raise BadInput(f"The {what} is given twice: as an argument and as a file.")
    if argument == "-" or file == "-":
        content = sys.stdin.buffer.read(_MOST_TOKEN_BYTES + 1)
        return _decoded(content, most=_MOST_TOKEN_BYTES, what="stdin")
    if argument is not None:
        click.echo(
            f"Warning: The {what} stands in the command line, where every account of this machine "
            "can read it (ps). Give it on stdin (-) or in a file instead.",
            err=True,
        )
        return argument
    return None if file is None else _text(file, most=_MOST_TOKEN_BYTES, what=f"The {what}'s file")


def _text(file: str, *, most: int, what: str) -> str:
    try:
        content = private_files.read_bounded(pathlib.Path(file), max_bytes=most)
    except private_files.FileTooLarge as error:
        raise BadInput(f"{what}: {error}") from error
    except OSError as error:
        raise BadInput(f"{what}: {file} cannot be read: {error.strerror}.") from error
    return _decoded(content, most=most, what=file)


def _decoded(content: bytes, *, most: int, what: str) -> str:
    if len(content) > most:
        raise BadInput(f"{what} holds more than {most} bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{what} holds no text.") from None
    if not text.strip():
        raise BadInput(f"{what} is empty.")
    return text
