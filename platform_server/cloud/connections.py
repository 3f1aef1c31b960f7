"""The rows of connections: one credential at one provider, sealed, and what is known of it.

Reading, sealing, pausing and resuming. A credential leaves its row only through `open_secret`,
which `using` calls when a driver is opened, and nothing here shows it. A connection is paused once,
by whoever first learns that its credential is refused, and only if that was the present credential:
what an old one met says nothing of the new.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.audit import actions, events
from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from runtime_kit import clock as clock_kit

ACTOR: Final = "platform:cloud"
PROBE_SECONDS: Final = 300
LONGEST_REASON: Final = 1024
_COLUMNS: Final = (
    "connection_id, name, infra, provider, settings, credential_kind, credential_at, external_id, "
    "account, principal, paused_at, paused_reason, paused_topic, probe_at, checked_at, checked, "
    "consent, offer_at, refreshed_at, created_at, created_by, "
    "CASE WHEN sealed IS NULL THEN 0 ELSE 1 END AS has_secret"
)


class NoSuchConnection(Exception):
    """There is no connection of that name or id; see `enlist cloud connections list`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a connection is not used; `topic` is an `outcomes.Topic`."""

    at: datetime.datetime
    reason: str
    topic: str
    probe_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection as it may be shown: everything but the credential.

    `credential_at` is when the present credential was saved, and tells it from those before.
    `checked` is what the last `validate` found, `consent` what may be spent (see `consent`).
    """

    connection_id: str
    name: str
    infra: str
    provider: str
    settings: Mapping[str, Any]
    credential_kind: str
    credential_at: datetime.datetime
    has_secret: bool
    external_id: str | None
    account: str
    principal: str
    pause: Pause | None
    checked_at: datetime.datetime | None
    checked: Mapping[str, Any]
    consent: Mapping[str, Any] | None
    offer_at: datetime.datetime | None
    refreshed_at: datetime.datetime | None
    created_at: datetime.datetime
    created_by: str


async def find(tx: contract.Tx, *, connection_id: str) -> Connection | None:
    """The connection of this id, or of this name."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_connections "  # noqa: S608 - a constant
        "WHERE connection_id = ? OR name = ? "
        "ORDER BY CASE WHEN connection_id = ? THEN 0 ELSE 1 END LIMIT 1",
        *(connection_id,) * 3,
    )
    return None if row is None else _of_row(row)


async def get(tx: contract.Tx, *, connection_id: str) -> Connection:
    """The connection of this id, or of this name; raises `NoSuchConnection`."""
    found = await find(tx, connection_id=connection_id)
    if found is None:
        raise NoSuchConnection(
            f"There is no connection {connection_id!r}. See: enlist cloud connections list"
        )
    return found


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    infra: str | None = None,
    provider: str | None = None,
    after: str = "",
) -> Sequence[Connection]:
    """Connections by name."""
    conditions, values = ["name > ?"], [after]
    if infra is not None:
        conditions.append("infra = ?")
        values.append(infra)
    if provider is not None:
        conditions.append("provider = ?")
        values.append(provider)
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_connections "  # noqa: S608 - constants
        f"WHERE {' AND '.join(conditions)} ORDER BY name LIMIT ?",
        *values,
        limit,
    )
    return [_of_row(row) for row in rows]


async def is_paused(tx: contract.Tx, *, connection_id: str, now: datetime.datetime) -> bool:
    """Whether it is paused and no probe is due: what waits for it has nothing to do now."""
    found = await find(tx, connection_id=connection_id)
    if found is None or found.pause is None:
        return False
    return found.pause.probe_at is not None and found.pause.probe_at > now


# --- the credential -----------------------------------------------------------------------------


async def seal_secret(
    tx: contract.Tx, *, keyring: envelope.Keyring, connection_id: str, secret: bytes
) -> tuple[bytes, str]:
    """The credential sealed for its row, and the id of the key; raises as `seal_value` does."""
    sealed = await sealed_rows.seal_value(
        tx, keyring=keyring, name=_sealed_name(connection_id), value=secret
    )
    return sealed, envelope.kek_id_of(sealed)


async def open_secret(
    tx: contract.Tx, *, keyring: envelope.Keyring, connection_id: str
) -> bytes | None:
    """The credential, None where it needs no secret; raises `envelope.CannotOpen`."""
    row = await tx.fetch_one(
        "SELECT sealed FROM cloud_connections WHERE connection_id = ?", connection_id
    )
    if row is None or row["sealed"] is None:
        return None
    return await sealed_rows.open_value(
        tx, keyring=keyring, name=_sealed_name(connection_id), sealed=bytes(row["sealed"])
    )


def _sealed_name(connection_id: str) -> str:
    return f"cloud-connection:{connection_id}"


# --- pausing ------------------------------------------------------------------------------------


async def pause(
    tx: contract.Tx,
    *,
    connection: Connection,
    reason: str,
    topic: str,
    environment: str,
    now: datetime.datetime,
) -> bool:
    """Pauses it, unless it is paused or has another credential by now; says whether it did.

    One event and one action tell of it, whoever else meets the same refusal.
    """
    changed = await tx.execute(
        "UPDATE cloud_connections SET paused_at = ?, paused_reason = ?, paused_topic = ?, "
        "probe_at = ? WHERE connection_id = ? AND paused_at IS NULL AND credential_at = ?",
        clock_kit.to_micros(now),
        _kept(reason),
        topic,
        clock_kit.to_micros(now + datetime.timedelta(seconds=PROBE_SECONDS)),
        connection.connection_id,
        clock_kit.to_micros(connection.credential_at),
    )
    if changed:
        details = {"connection_id": connection.connection_id, "reason": _kept(reason)}
        await _tell(
            tx,
            connection=connection,
            what="paused",
            actor=ACTOR,
            details={**details, "topic": topic},
            environment=environment,
            now=now,
        )
    return bool(changed)


async def take_probe(tx: contract.Tx, *, connection: Connection, now: datetime.datetime) -> bool:
    """Whether the caller may try the paused connection once; the next may in five minutes."""
    return bool(
        await tx.execute(
            "UPDATE cloud_connections SET probe_at = ? WHERE connection_id = ? "
            "AND paused_at IS NOT NULL AND probe_at <= ?",
            clock_kit.to_micros(now + datetime.timedelta(seconds=PROBE_SECONDS)),
            connection.connection_id,
            clock_kit.to_micros(now),
        )
    )


async def resume(
    tx: contract.Tx,
    *,
    connection: Connection,
    actor: str,
    environment: str,
    now: datetime.datetime,
) -> bool:
    """Ends the pause; says whether there was one."""
    changed = await tx.execute(
        "UPDATE cloud_connections SET paused_at = NULL, paused_reason = NULL, "
        "paused_topic = NULL, probe_at = NULL WHERE connection_id = ? AND paused_at IS NOT NULL",
        connection.connection_id,
    )
    if changed:
        await _tell(
            tx,
            connection=connection,
            what="resumed",
            actor=actor,
            details={"connection_id": connection.connection_id},
            environment=environment,
            now=now,
        )
    return bool(changed)


async def _tell(
    tx: contract.Tx,
    *,
    connection: Connection,
    what: str,
    actor: str,
    details: Mapping[str, Any],
    environment: str,
    now: datetime.datetime,
) -> None:
    await events.append(
        tx,
        at=now,
        kind=f"cloud-connection.{what}",
        subject=connection.name,
        infra=connection.infra,
        data={**details, "provider": connection.provider},
    )
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=actor,
            action=f"cloud.connections.{what}",
            target=connection.name,
            environment=environment,
            infra=connection.infra,
            details=details,
        ),
    )


def _kept(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)[:LONGEST_REASON]


def _of_row(row: contract.Row) -> Connection:
    paused_at = _moment(row["paused_at"])
    return Connection(
        connection_id=row["connection_id"],
        name=row["name"],
        infra=row["infra"],
        provider=row["provider"],
        settings=json.loads(row["settings"]),
        credential_kind=row["credential_kind"],
        credential_at=clock_kit.from_micros(row["credential_at"]),
        has_secret=bool(row["has_secret"]),
        external_id=row["external_id"],
        account=row["account"],
        principal=row["principal"],
        pause=None
        if paused_at is None
        else Pause(
            at=paused_at,
            reason=row["paused_reason"] or "",
            topic=row["paused_topic"] or "",
            probe_at=_moment(row["probe_at"]),
        ),
        checked_at=_moment(row["checked_at"]),
        checked=json.loads(row["checked"]),
        consent=None if row["consent"] is None else json.loads(row["consent"]),
        offer_at=_moment(row["offer_at"]),
        refreshed_at=_moment(row["refreshed_at"]),
        created_at=clock_kit.from_micros(row["created_at"]),
        created_by=row["created_by"],
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock_kit.from_micros(micros)
