"""The rows of orphans: what carries this installation's id and belongs to nothing that is known.

An orphan is listed from its first sighting with what it costs, until its provider does not show it
any more. What has become known again (adopted, or an order found its machine) leaves the list.
"""

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from typing import Final

from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import clock

MACHINE: Final = "machine"
_COLUMNS: Final = (
    "connection_id, kind, provider_ref, infra, name, region, operation_id, hourly_micros, "
    "currency, made_at, first_seen_at, last_seen_at, delete_asked_at, gone_at"
)
Key = tuple[str, str]
"""Kind and the provider's id, which name one thing at a connection."""


class NoSuchOrphan(Exception):
    """Nothing of that kind and id is listed there; see `enlist cloud orphans list`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One of them. `kind` is `machine` or a `contract.ChildKind`."""

    connection_id: str
    kind: str
    provider_ref: str
    infra: str
    name: str
    region: str
    operation_id: str
    price: provider.Price | None
    made_at: datetime.datetime | None
    first_seen_at: datetime.datetime
    last_seen_at: datetime.datetime
    delete_asked_at: datetime.datetime | None = None
    gone_at: datetime.datetime | None = None

    @property
    def key(self) -> Key:
        """What names it at its connection."""
        return self.kind, self.provider_ref


async def put(tx: contract.Tx, *, orphan: Orphan) -> bool:
    """Writes down that it was seen; says whether that is for the first time (again)."""
    price = orphan.price
    moment = clock.to_micros(orphan.last_seen_at)
    listed = await find(
        tx,
        connection_id=orphan.connection_id,
        kind=orphan.kind,
        provider_ref=orphan.provider_ref,
    )
    await tx.execute(
        "INSERT INTO cloud_orphans(connection_id, kind, provider_ref, infra, name, region, "
        "operation_id, hourly_micros, currency, made_at, first_seen_at, last_seen_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (connection_id, kind, provider_ref) DO UPDATE SET "
        "last_seen_at = excluded.last_seen_at, name = excluded.name, "
        "hourly_micros = excluded.hourly_micros, currency = excluded.currency, "
        "first_seen_at = CASE WHEN cloud_orphans.gone_at IS NULL "
        "THEN cloud_orphans.first_seen_at ELSE excluded.first_seen_at END, "
        "delete_asked_at = CASE WHEN cloud_orphans.gone_at IS NULL "
        "THEN cloud_orphans.delete_asked_at END, gone_at = NULL",
        orphan.connection_id,
        orphan.kind,
        orphan.provider_ref,
        orphan.infra,
        orphan.name,
        orphan.region,
        orphan.operation_id,
        None if price is None else price.hourly_micros,
        "" if price is None else price.currency,
        None if orphan.made_at is None else clock.to_micros(orphan.made_at),
        moment,
        moment,
    )
    return listed is None


async def find(
    tx: contract.Tx, *, connection_id: str, kind: str, provider_ref: str
) -> Orphan | None:
    """The one that is listed under these."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_orphans WHERE connection_id = ? "  # noqa: S608 - a constant
        "AND kind = ? AND provider_ref = ? AND gone_at IS NULL",
        connection_id,
        kind,
        provider_ref,
    )
    return None if row is None else _of_row(row)


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    infra: str | None = None,
    connection_id: str | None = None,
    after: tuple[str, str, str] = ("", "", ""),
) -> Sequence[Orphan]:
    """Those that are there, by connection, kind and id."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_orphans WHERE gone_at IS NULL "  # noqa: S608 - a constant
        "AND (connection_id, kind, provider_ref) > (?, ?, ?) "
        "AND (? = '' OR infra = ?) AND (? = '' OR connection_id = ?) "
        "ORDER BY connection_id, kind, provider_ref LIMIT ?",
        *after,
        *(infra or "",) * 2,
        *(connection_id or "",) * 2,
        limit,
    )
    return [_of_row(row) for row in rows]


async def set_delete_asked(tx: contract.Tx, *, orphan: Orphan, now: datetime.datetime) -> None:
    """Somebody has it deleted."""
    await tx.execute(
        "UPDATE cloud_orphans SET delete_asked_at = COALESCE(delete_asked_at, ?) "
        "WHERE connection_id = ? AND kind = ? AND provider_ref = ?",
        clock.to_micros(now),
        orphan.connection_id,
        *orphan.key,
    )


async def set_gone(
    tx: contract.Tx, *, connection_id: str, key: Key, now: datetime.datetime
) -> bool:
    """It is not there any more, or is none any more; says whether it was listed."""
    return bool(
        await tx.execute(
            "UPDATE cloud_orphans SET gone_at = ? WHERE connection_id = ? AND kind = ? "
            "AND provider_ref = ? AND gone_at IS NULL",
            clock.to_micros(now),
            connection_id,
            *key,
        )
    )


async def list_unseen(
    tx: contract.Tx, *, connection_id: str, seen: Collection[Key], limit: int
) -> Sequence[Key]:
    """Those that were listed and are not among what was seen now."""
    rows = await tx.fetch_all(
        "SELECT kind, provider_ref FROM cloud_orphans WHERE connection_id = ? "
        "AND gone_at IS NULL ORDER BY kind, provider_ref LIMIT ?",
        connection_id,
        limit,
    )
    keys = [(str(row["kind"]), str(row["provider_ref"])) for row in rows]
    return [key for key in keys if key not in seen]


def _of_row(row: contract.Row) -> Orphan:
    hourly = row["hourly_micros"]
    return Orphan(
        connection_id=row["connection_id"],
        kind=row["kind"],
        provider_ref=row["provider_ref"],
        infra=row["infra"],
        name=row["name"],
        region=row["region"],
        operation_id=row["operation_id"],
        price=None
        if hourly is None
        else provider.Price(hourly_micros=int(hourly), currency=row["currency"]),
        made_at=_moment(row["made_at"]),
        first_seen_at=clock.from_micros(row["first_seen_at"]),
        last_seen_at=clock.from_micros(row["last_seen_at"]),
        delete_asked_at=_moment(row["delete_asked_at"]),
        gone_at=_moment(row["gone_at"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
