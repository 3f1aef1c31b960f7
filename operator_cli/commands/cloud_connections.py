"""`enlist cloud connections`: credentials at providers. A secret comes from a file or a prompt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from enlist import cloud as cloud_calls
from enlist import cloud_connections as calls
from operator_cli import arguments, columns, connection, lazy, moments, money, printing
from wire_protocol import cloud_words

_PAGE = 500
_NAME = click.argument("name", metavar="NAME")


@click.group("connections", cls=lazy.Group, no_args_is_help=True)
def connections() -> None:
    """Credentials at providers: save, check, forget, consent.

    Examples:
      enlist cloud connections save hetzner --provider hetzner --secret-file token.txt
      enlist cloud connections check hetzner
      enlist cloud connections list
    """


def _pairs(
    context: click.Context, parameter: click.Parameter, value: Sequence[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in value:
        name, equals, given = text.partition("=")
        if not equals or not name or name in found:
            raise click.BadParameter(
                f"{name[:40]!r} is to be NAME=VALUE, each once.", ctx=context, param=parameter
            )
        found[name.strip().replace("-", "_")] = given
    return found


@arguments.command(connections, "list")
@click.option("--provider", type=click.Choice(cloud_words.PROVIDERS), help="Only at this one.")
@arguments.INFRA
def list_(*, provider: str | None, infra: str | None) -> None:
    """List the connections; none shows its credential.

    Example:
      enlist cloud connections list
    """
    call = calls.list_(limit=_PAGE, infra=infra, provider=provider)
    found = connection.every(call, of="connections")
    printing.show({"connections": found}, lines=lambda: _table(found))


@arguments.command(connections, "show")
@_NAME
def show(name: str) -> None:
    """Show one connection: account, principal, rights, totals, consent.

    Example:
      enlist cloud connections show hetzner
    """
    found = connection.ask(calls.get(name))
    printing.show(found, lines=lambda: _facts(found))


@arguments.command(connections, "save")
@_NAME
@click.option("--provider", required=True, type=click.Choice(cloud_words.PROVIDERS))
@click.option(
    "--credential",
    "kind",
    type=click.Choice(cloud_words.CREDENTIAL_KINDS),
    help="What it is proved with.  [default: what is advised for the provider]",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="File with the secret alone, or the provider's JSON document; - for stdin.",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="K=V",
    callback=_pairs,
    help="A field of the credential that is no secret, as role_arn=…; may repeat.",
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="K=V",
    callback=_pairs,
    help="A setting of the connection, as region=eu-central-1; may repeat.",
)
def save(
    name: str,
    *,
    provider: str,
    kind: str | None,
    secret_file: str | None,
    fields: dict[str, str],
    settings: dict[str, str],
) -> None:
    """Keep a credential under NAME, once it has proved itself.

    The secret is read from --secret-file, or asked for without echo on a terminal. For a name that
    is there it is the new credential of the same account, in use at once. What the provider has to
    be told (least-privilege policy, trust, federation) is printed.

    Examples:
      enlist cloud connections save hetzner --provider hetzner --secret-file token.txt
      pass show cloud/do | enlist cloud connections save do --provider digitalocean --secret-file -
      enlist cloud connections save aws --provider aws --credential aws-role
        --field role_arn=arn:aws:iam::111122223333:role/enlist --setting region=eu-central-1
    """
    kind = kind or _advised(provider)
    fields = {**fields, **_secret(kind, place=secret_file, typed=fields)}
    call = calls.save(name, provider=provider, kind=kind, fields=fields, settings=settings)
    saved = connection.change(call)
    if saved is not None:
        printing.show(saved, lines=lambda: _saved(saved))


@arguments.command(connections, "check")
@_NAME
@click.option(
    "--wanted",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Say how many of N machines fit into the account's limits.",
)
def check(name: str, *, wanted: int | None) -> None:
    """Ask the provider what the credential may do, and name what it lacks; creates nothing.

    Examples:
      enlist cloud connections check hetzner
      enlist cloud connections check hetzner --wanted 20
    """
    found = connection.ask(calls.check(name, wanted=wanted))
    printing.show(found, lines=lambda: _with_room(found, wanted=wanted))
    if not found["check"]["ok"]:
        click.get_current_context().exit(6)


@arguments.command(connections, "inventory")
@_NAME
def inventory(name: str) -> None:
    """Ask the provider what it holds of this installation, machines and whatever hangs on them.

    Example:
      enlist cloud connections inventory hetzner
    """
    found = connection.ask(calls.inventory(name))
    printing.show(found, lines=lambda: _held(found))


@arguments.command(connections, "forget")
@_NAME
def forget(name: str) -> None:
    """Forget the credential and end the consent.

    Refused while a machine, volume or address made through it is not confirmed gone.

    Example:
      enlist cloud connections forget hetzner
    """
    done = connection.change(calls.forget(name), question=f"Forget the connection {name}?")
    if done is not None:
        printing.show(done, lines=lambda: printing.changes(done, check=False))


@arguments.command(connections, "consent")
@_NAME
@click.option("--most-machines", type=click.IntRange(1, 10_000), help="How many at once.")
@click.option("--most-hourly", metavar="AMOUNT", help="How much all of them may cost by the hour.")
@click.option("--currency", metavar="CUR", default="EUR", show_default=True)
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True)
@click.option("--withdraw", is_flag=True, help="End the consent.")
def consent(
    name: str,
    *,
    most_machines: int | None,
    most_hourly: str | None,
    currency: str,
    days: int,
    withdraw: bool,
) -> None:
    """Say what may be spent through NAME without asking a person; off until you do.

    Examples:
      enlist cloud connections consent hetzner --most-machines 5 --most-hourly 0.10
      enlist cloud connections consent hetzner --withdraw
    """
    if withdraw:
        call = calls.withdraw_consent(name)
    elif most_machines is None or most_hourly is None:
        raise click.UsageError("Give --most-machines and --most-hourly, or --withdraw.")
    else:
        try:
            micros = money.parse(most_hourly)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--most-hourly") from error
        call = calls.consent(
            name,
            most_machines=most_machines,
            most_hourly_micros=micros,
            currency=currency.upper(),
            days=days,
        )
    changed = connection.change(call)
    if changed is not None:
        printing.show(changed, lines=lambda: _facts(changed))


def _advised(provider: str) -> str:
    for one in connection.ask(cloud_calls.show())["providers"]:
        if one["provider"] in (provider, f"{provider}-nspawn") and one["credential_kinds"]:
            return str(one["credential_kinds"][0])
    raise click.UsageError("Say what it is proved with: --credential KIND.")


def _secret(kind: str, *, place: str | None, typed: Mapping[str, str]) -> dict[str, str]:
    """The secret field, from where it is safe; an argument works and warns."""
    given = sorted(cloud_words.SECRETS & typed.keys())
    if given:
        printing.say(
            f"Warning: {given[0]} given as an argument can be read by others on this machine: use "
            "--secret-file."
        )
    field = cloud_words.SECRET_FIELD.get(kind)
    if place is not None:
        if field is None:
            raise click.UsageError(f"A credential of kind {kind} needs no secret.")
        text = connection.read_secret(place, what="secret")
        is_document = kind in cloud_words.DOCUMENT_KINDS and text.startswith("{")
        return {cloud_words.DOCUMENT if is_document else field: text}
    if field is None or field in typed or cloud_words.DOCUMENT in typed:
        return {}
    if not connection.on_terminal():
        raise click.UsageError(f"Give the {field} with --secret-file FILE, or - for stdin.")
    asked: str = click.prompt(f"The {field} (not shown)", hide_input=True, err=True)
    return {field: asked.strip()}


def _table(found: list[Any]) -> Iterator[str]:
    if not found:
        yield (
            "No connections. Save one: enlist cloud connections save NAME --provider PROVIDER "
            "(local machines need none)"
        )
        return
    yield from columns.table(
        ("NAME", "PROVIDER", "STATE", "ACCOUNT", "CREDENTIAL", "SAVED", "MACHINES", "COSTS NOW"),
        [
            (
                one["name"],
                one["provider"],
                one["state"],
                one["account"],
                one["credential_kind"],
                moments.ago(one["credential_at"], now=moments.now()),
                one["machines"],
                ", ".join(money.rate(t["hourly_micros"], t["currency"]) for t in one["totals"]),
            )
            for one in found
        ],
    )


def _facts(found: Any) -> Iterator[str]:
    apart = ("settings", "capabilities", "totals", "last_check", "consent")
    rows: list[tuple[str, object]] = [
        (name, moments.local(value) if name.endswith("_at") and value else value)
        for name, value in found.items()
        if name not in apart
    ]
    rows += [
        ("settings", columns.pairs(found["settings"])),
        ("capabilities", columns.listed(found["capabilities"])),
    ]
    for total in found["totals"]:
        rows.append(("costs now", money.rate(total["hourly_micros"], total["currency"])))
        rows.append(("spent so far", money.amount(total["spent_micros"], total["currency"])))
    given = found["consent"]
    rows.append(
        (
            "consent",
            "none: nothing is spent without a person"
            if given is None
            else f"{given['most_machines']} machines, "
            f"{money.rate(given['most_hourly_micros'], given['currency'])}, until "
            f"{moments.local(given['expires_at'])}, by {given['given_by']}",
        )
    )
    yield from columns.facts(rows)
    if found["last_check"] is not None:
        yield ""
        yield from _checked(found["last_check"])


def _held(found: Any) -> Iterator[str]:
    if found["held"]:
        yield from columns.table(
            ("KIND", "REF", "NAME", "REGION", "STATE", "NODE", "OPERATION"),
            [
                (
                    one["kind"],
                    one["provider_ref"],
                    one["name"],
                    one["region"],
                    one["state"],
                    one["node_id"],
                    one["operation_id"],
                )
                for one in found["held"]
            ],
        )
    elif found["complete"]:
        yield "Nothing of this installation is there."
    if not found["complete"]:
        yield "The provider did not show everything: what is missing here may be there."


def _checked(found: Any) -> Iterator[str]:
    yield from columns.facts(
        [
            ("account", found["account"]),
            ("principal", found["principal"]),
            ("checked", moments.local(found["checked_at"])),
            ("room for machines", "not told" if found["room"] is None else found["room"]),
            ("missing rights", columns.listed(found["missing"])),
            ("proved by use alone", columns.listed(found["unproved"])),
        ]
    )
    for warning in found["warnings"]:
        yield f"Warning: {columns.clean(warning)}"


def _saved(saved: Any) -> Iterator[str]:
    kept = saved["connection"]
    yield f"Saved {columns.clean(kept['name'])} ({columns.clean(kept['provider'])})."
    yield from _found(saved)


def _with_room(found: Any, *, wanted: int | None) -> Iterator[str]:
    yield from _found(found)
    if wanted is not None:
        fits = found["fits"]
        yield (
            f"The provider does not say how many of {wanted} machines fit."
            if fits is None
            else f"{fits} of {wanted} machines fit."
        )


def _found(saved: Any) -> Iterator[str]:
    kept = saved["connection"]
    if kept["state"] == "paused":
        yield f"Not in use yet: {columns.clean(kept['paused_reason'])}"
    yield from _checked(saved["check"])
    if saved["setup"]:
        yield ""
        for line in str(saved["setup"]).splitlines():
            yield columns.clean(line) if line else ""
