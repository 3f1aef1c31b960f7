"""The commands of `enlist nodes` that issue, withdraw and use enrollments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from enlist import enrollments, errors
from operator_cli import arguments, columns, connection, global_options, moments, printing

SHOWN = (
    "node_id", "enrollment_id", "token", "join_token", "expires_at", "platform_url", "pins",
    "command",
)  # fmt: skip
_PAGE = 500
_MAX_CERTIFICATE_BYTES = 4096
_NO_GATEWAY = (
    "This Platform opens no gateway, so a machine that dials out could not stay connected: join "
    "with --address ADDRESS-OF-THAT-MACHINE (where the Platform reaches it), or start the Platform "
    "with --gateway-port."
)


def add_to(nodes: click.Group) -> None:
    """Hangs the commands into the group."""
    for command in (enroll_token, withdraw_token, enroll):
        nodes.add_command(command)


@click.command("enroll-token", cls=global_options.Command)
@arguments.NODE
@click.option(
    "--ttl-minutes",
    type=click.IntRange(1, 1440),
    default=60,
    show_default=True,
    help="How long the token may be used.",
)
@click.option("--replace", is_flag=True, help="Swap an unused token, or re-enroll a node.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="K=V",
    callback=arguments.label_pairs,
    help="A placement label for the node.",
)
@click.option("--from", "sources", multiple=True, metavar="CIDR", help="Only from this network.")
@click.option("--raw", is_flag=True, help="Print the join token alone.")
def enroll_token(
    node_id: str,
    *,
    ttl_minutes: int,
    replace: bool,
    labels: dict[str, str],
    sources: tuple[str, ...],
    raw: bool,
) -> None:
    """Issue the single-use token by which a machine joins.

    The machine becomes node ID. Prints what to paste on that machine. The token is shown this
    once; only its hash is kept. With --replace an unused token of the node is swapped; on a node
    that is registered it issues a re-enrollment: the old key stays valid until the new one has
    enrolled.

    Examples:
      enlist nodes enroll-token web-1
      enlist nodes enroll-token web-1 --raw | ssh web-1 sudo enlist worker join - --address web-1
      enlist nodes enroll-token db-1 --ttl-minutes 10 --from 10.0.0.0/8 --label role=db
    """
    call = enrollments.create(
        node_id, ttl_minutes=ttl_minutes, replace=replace, labels=labels, sources=sources
    )
    question = f"Replace the enrollment of {node_id}?" if replace else None
    issued = connection.change(call, question=question)
    if issued is None:
        return
    if issued["token"] is None:
        raise errors.NeedsOperator(
            "The token was issued, but the answer that showed it was lost. Swap it for a new one: "
            f"enlist nodes enroll-token {node_id} --replace",
            code="token-already-shown",
        )
    if raw and issued["join_token"] is not None:
        click.echo(issued["join_token"])
    else:
        shown = {name: issued[name] for name in SHOWN}
        if issued.get("bare_command"):  # only where machines can install from this Platform
            shown["bare_command"] = issued["bare_command"]
        printing.show(shown, lines=lambda: _paste(issued))
    if issued["gateway_url"] is None:
        printing.say(_NO_GATEWAY)


@click.command("withdraw-token", cls=global_options.Command)
@arguments.NODE
def withdraw_token(node_id: str) -> None:
    """Make the unused enrollment token of node ID worthless.

    Example:
      enlist nodes withdraw-token web-1
    """
    enrollment_id = _pending(node_id)
    done = connection.change(enrollments.withdraw(enrollment_id))
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


@click.command("enroll", cls=global_options.Command)
@arguments.NODE
@click.option("--enrollment-token-file", metavar="F", help="The enrollment token, - for stdin.")
@click.option("--enrollment-token", metavar="T", help="The token itself; others can read it.")
@click.option(
    "--cert-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The machine's self-signed certificate (PEM).",
)
@click.option("--agent-url", metavar="URL", help="Where the Agent listens, https://host:port.")
@click.option(
    "--trust-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the trust set for the machine here.",
)
def enroll(
    node_id: str,
    *,
    enrollment_token_file: str | None,
    enrollment_token: str | None,
    cert_file: Path,
    agent_url: str | None,
    trust_out: Path | None,
) -> None:
    """Enroll a machine by hand, with its certificate.

    Machines do this by enlist worker join. Here the enrollment token permits it, not an API
    token. It may be repeated with the same certificate.

    Example:
      enlist nodes enroll web-1 --enrollment-token-file token --cert-file web-1.pem
    """
    options = global_options.current()
    if options.check:
        raise click.UsageError("enroll does not know --check: the answer would tell strangers.")
    call = enrollments.enroll(
        node_id,
        token=_token(enrollment_token_file, typed=enrollment_token),
        certificate_pem=_certificate(cert_file),
        url=agent_url,
    )
    answer = connection.ask(call)
    if trust_out is not None:
        _write_trust(trust_out, answer=answer)
    printing.show(answer, lines=lambda: _enrolled(answer))


def _pending(node_id: str) -> str:
    """The unused enrollment of that node, or with that id; newest first, so it is found soon."""
    with connection.client() as opened:
        for page in connection.pages(opened, enrollments.list_(limit=_PAGE)):
            for one in page["enrollments"]:
                if one["state"] == "pending" and node_id in (one["node_id"], one["enrollment_id"]):
                    return str(one["enrollment_id"])
    raise errors.NotFound(f"The node {node_id} has no unused enrollment.", code="not-found")


def _paste(issued: dict[str, Any]) -> Iterator[str]:
    until = moments.local(issued["expires_at"])
    node_id = issued["node_id"]
    if issued["command"] is None:
        printing.say(
            "The Platform does not know under which address machines reach it, so here is the "
            f"enrollment token alone, valid until {until}. On the machine: enlist worker join "
            f"--platform-url URL --node-id {node_id} --enrollment-token-file -"
        )
        yield issued["token"]
        return
    printing.say(
        f"Paste this on the machine that becomes {node_id}, once, before {until} "
        f"(enrollment {issued['enrollment_id']}):"
    )
    yield issued["command"]
    if issued.get("bare_command"):
        printing.say(
            "On a machine that has no Enlist yet, paste this instead; it installs Enlist from this "
            "Platform and asks for the token, which is the line above that begins with enj_:\n"
            f"{issued['bare_command']}"
        )
    if issued["gateway_url"] is not None:
        printing.say(
            "The machine will dial out to the gateway and needs no open port. To have the Platform "
            "dial the machine instead, add behind the -: --address ADDRESS-OF-THAT-MACHINE."
        )


def _enrolled(answer: dict[str, Any]) -> Iterator[str]:
    yield from columns.facts(
        [
            ("node_id", answer["node_id"]),
            ("agent_id", answer["agent_id"]),
            ("generation", answer["generation"]),
            ("trust keys", columns.listed([key["key_id"] for key in answer["trust_keys"]])),
        ]
    )
    if answer.get("reachable") is False:
        printing.say(
            "Warning: not reachable from the Platform: "
            f"{columns.clean(answer.get('reachable_reason'))}"
        )


def _token(file: str | None, *, typed: str | None) -> str:
    if typed is not None:
        if file is not None:
            raise click.UsageError("Give --enrollment-token-file or --enrollment-token, not both.")
        printing.say(
            "Warning: a token given as an argument can be read by others on this machine: use "
            "--enrollment-token-file."
        )
        text = typed.strip()
    elif file is not None:
        text = connection.read_secret(file, what="enrollment token")
    elif not connection.on_terminal():
        raise click.UsageError("Give the token with --enrollment-token-file FILE, - for stdin.")
    else:
        text = click.prompt("Enrollment token", hide_input=True, err=True).strip()
    # Here, since random sources and hashes cost each other command a tenth.
    from wire_protocol import enrollment_token  # noqa: PLC0415

    try:
        return enrollment_token.parse(text).text()
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _certificate(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(_MAX_CERTIFICATE_BYTES + 1)
    if len(raw) > _MAX_CERTIFICATE_BYTES or b"-----BEGIN CERTIFICATE-----" not in raw:
        raise click.UsageError(
            f"{path} does not hold one PEM certificate of at most {_MAX_CERTIFICATE_BYTES} bytes."
        )
    return raw.decode("ascii", "replace")


def _write_trust(path: Path, *, answer: dict[str, Any]) -> None:
    # Here, since nothing else needs files.
    import json  # noqa: PLC0415

    from runtime_kit import private_files  # noqa: PLC0415

    kept = {name: answer[name] for name in ("statement", "signatures", "trust_keys", "pins")}
    private_files.write_private(path.absolute(), json.dumps(kept, indent=2).encode())
