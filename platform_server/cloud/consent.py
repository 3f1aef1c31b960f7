"""What may be spent through a connection without asking a person each time: caps that end.

A consent is given by somebody with `cloud.connect`, stands in the connection's row, is off by
default and ends by itself, by `withdraw`, and when the connection is forgotten. What a person
orders needs none, but its caps hold for that as well: `caps_of` gives the narrower of policy and
consent, which whoever reserves money goes by.
"""

import dataclasses
import datetime
import json
from typing import Final

from platform_server.audit import actions, events
from platform_server.cloud import connections, policy
from platform_server.store import contract
from wire_protocol import times

LONGEST_DAYS: Final = 3650


class NotWithinPolicy(Exception):
    """The consent would allow more than the operator's policy file does."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A consent as it stands in the row."""

    most_machines: int
    most_hourly_micros: int
    currency: str
    given_at: datetime.datetime
    given_by: str
    expires_at: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How many machines there may be, and what they and what is kept may cost by the hour.

    `most_kept`: how many volumes, how many snapshots, how many addresses; None: as many of each as
    machines.
    None: no cap, where the provider costs nothing and nobody has set one. `named` says whose
    number it is, for the sentence of a refusal.
    """

    most_machines: int | None
    most_hourly_micros: int | None
    currency: str | None
    named: str
    most_kept: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody consents to."""

    most_machines: int
    most_hourly_micros: int
    currency: str
    days: int


def read(connection: connections.Connection) -> Consent | None:
    """The consent in the row, whether it has ended or not."""
    given = connection.consent
    if given is None:
        return None
    return Consent(
        most_machines=int(given["most_machines"]),
        most_hourly_micros=int(given["most_hourly_micros"]),
        currency=str(given["currency"]),
        given_at=times.from_rfc3339(given["given_at"]),
        given_by=str(given["given_by"]),
        expires_at=times.from_rfc3339(given["expires_at"]),
    )


def find_valid(connection: connections.Connection, *, now: datetime.datetime) -> Consent | None:
    """The consent, unless it has ended: without one nothing is ordered but by a person."""
    found = read(connection)
    return None if found is None or found.expires_at <= now else found


def caps_of(
    connection: connections.Connection, *, rules: policy.Rules | None, now: datetime.datetime
) -> tuple[Caps, ...]:
    """Every cap that an order through this connection is judged by, each with its scope's name.

    The policy's counts everything at the provider, the consent's what hangs on this connection.
    """
    caps: list[Caps] = []
    if rules is not None:
        caps.append(
            Caps(
                most_machines=rules.most_machines,
                most_hourly_micros=rules.most_hourly_micros,
                currency=rules.currency,
                named="policy",
                most_kept=rules.most_kept,
            )
        )
    given = find_valid(connection, now=now)
    if given is not None:
        caps.append(
            Caps(
                most_machines=given.most_machines,
                most_hourly_micros=given.most_hourly_micros,
                currency=given.currency,
                named="consent",
            )
        )
    return tuple(caps)


async def give(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    wish: Wish,
    rules: policy.Rules | None,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> Consent:
    """Stores the consent in place of a former one; raises `NotWithinPolicy`."""
    if rules is not None:
        if wish.currency != rules.currency:
            raise NotWithinPolicy(
                f"The policy counts in {rules.currency}: give the consent in it as well."
            )
        if (
            wish.most_machines > rules.most_machines
            or wish.most_hourly_micros > rules.most_hourly_micros
        ):
            raise NotWithinPolicy(
                f"The policy file allows {rules.most_machines} machines and {rules.most_hourly} "
                f"{rules.currency} an hour at most. Raise it there first."
            )
    consent = Consent(
        most_machines=wish.most_machines,
        most_hourly_micros=wish.most_hourly_micros,
        currency=wish.currency,
        given_at=now,
        given_by=actor,
        expires_at=now + datetime.timedelta(days=min(wish.days, LONGEST_DAYS)),
    )
    await _write(
        tx, connection=connection, consent=consent, actor=actor, environment=environment, now=now
    )
    return consent


async def withdraw(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> bool:
    """Ends the consent; says whether there was one."""
    if connection.consent is None:
        return False
    await _write(
        tx, connection=connection, consent=None, actor=actor, environment=environment, now=now
    )
    return True


async def _write(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    consent: Consent | None,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> None:
    document = None
    if consent is not None:
        document = {
            **dataclasses.asdict(consent),
            "given_at": times.to_rfc3339(consent.given_at),
            "expires_at": times.to_rfc3339(consent.expires_at),
        }
    await tx.execute(
        "UPDATE cloud_connections SET consent = ? WHERE connection_id = ?",
        None if document is None else json.dumps(document, sort_keys=True),
        connection.connection_id,
    )
    what = "withdrawn" if document is None else "given"
    details = {"connection_id": connection.connection_id, "consent": document}
    await events.append(
        tx,
        at=now,
        kind=f"cloud-consent.{what}",
        subject=connection.name,
        infra=connection.infra,
        data=details,
    )
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=actor,
            action=f"cloud.consents.{what}",
            target=connection.name,
            environment=environment,
            infra=connection.infra,
            details=details,
        ),
    )
