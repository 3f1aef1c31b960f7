"""The rows of connections: one credential at one provider, sealed, and what is known of it.

A credential leaves its row only through `open_secret`, which `using` and `connecting` call when a
driver is opened, and nothing here shows it. Whether a connection may be used is `pausing`'s part.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from runtime_kit import clock as clock_kit

ACTOR: Final = "platform:cloud"
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


def new(
    *,
    connection_id: str,
    name: str,
    infra: str,
    provider: str,
    settings: Mapping[str, Any],
    credential_kind: str,
    external_id: str | None,
    now: datetime.datetime,
    created_by: str,
) -> Connection:
    """One that nothing is known of yet."""
    return Connection(
        connection_id=connection_id,
        name=name,
        infra=infra,
        provider=provider,
        settings=dict(settings),
        credential_kind=credential_kind,
        credential_at=now,
        has_secret=False,
        external_id=external_id,
        account="",
        principal="",
        pause=None,
        checked_at=None,
        checked={},
        consent=None,
        offer_at=None,
        refreshed_at=None,
        created_at=now,
        created_by=created_by,
    )


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


# --- writing ------------------------------------------------------------------------------------


async def lock(tx: contract.Tx, *, connection_id: str) -> None:
    """Of two that decide by what hangs on this connection, the second sees the first.

    Whoever orders something through it takes this, and so does whoever forgets it.
    """
    await tx.lock(f"cloud-connection:{connection_id}")


async def put(
    tx: contract.Tx, *, connection: Connection, sealed: bytes | None, kek_id: str | None
) -> None:
    """Stores it with its credential; pause and consent of one that is there stay as they are."""
    await tx.execute(
        "INSERT INTO cloud_connections(connection_id, name, infra, provider, settings, "
        "credential_kind, credential_at, sealed, kek_id, external_id, account, principal, "
        "checked_at, checked, created_at, created_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (connection_id) DO UPDATE SET settings = excluded.settings, "
        "credential_kind = excluded.credential_kind, credential_at = excluded.credential_at, "
        "sealed = excluded.sealed, kek_id = excluded.kek_id, external_id = excluded.external_id, "
        "account = excluded.account, principal = excluded.principal, "
        "checked_at = excluded.checked_at, checked = excluded.checked",
        connection.connection_id,
        connection.name,
        connection.infra,
        connection.provider,
        json.dumps(dict(connection.settings), sort_keys=True),
        connection.credential_kind,
        clock_kit.to_micros(connection.credential_at),
        sealed,
        kek_id,
        connection.external_id,
        connection.account,
        connection.principal,
        None if connection.checked_at is None else clock_kit.to_micros(connection.checked_at),
        json.dumps(dict(connection.checked), sort_keys=True),
        clock_kit.to_micros(connection.created_at),
        connection.created_by,
    )


async def put_findings(tx: contract.Tx, *, connection: Connection) -> bool:
    """Stores what a check found, unless another credential was saved meanwhile."""
    return bool(
        await tx.execute(
            "UPDATE cloud_connections SET account = ?, principal = ?, checked_at = ?, checked = ? "
            "WHERE connection_id = ? AND credential_at = ?",
            connection.account,
            connection.principal,
            None if connection.checked_at is None else clock_kit.to_micros(connection.checked_at),
            json.dumps(dict(connection.checked), sort_keys=True),
            connection.connection_id,
            clock_kit.to_micros(connection.credential_at),
        )
    )


async def remove(tx: contract.Tx, *, connection_id: str) -> bool:
    """Deletes the row, credential and consent with it; says whether there was one."""
    return bool(
        await tx.execute("DELETE FROM cloud_connections WHERE connection_id = ?", connection_id)
    )


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
