"""The rows of what is kept beside machines: volumes, snapshots, stable addresses.

They stand in the table of what hangs on machines, with `keep`: no machine's end is theirs. Each is
written down before its provider is asked for it, and costs until the provider says it is gone.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.store import contract
from platform_server.tokens import label_sql
from provisioning import contract as provider
from provisioning import naming
from runtime_kit import clock

KINDS: Final = (
    provider.ChildKind.VOLUME,
    provider.ChildKind.SNAPSHOT,
    provider.ChildKind.ADDRESS,
)
_COLUMNS: Final = (
    "child_id, connection_id, infra, kind, provider_ref, name, labels, region, machine_id, "
    "operation_id, address, size_gigabytes, hourly_micros, currency, written_at, sent_at, "
    "clean_answers, present_at, delete_asked_at, gone_at"
)
_ORDERED: Final = "keep = 1 AND (provider_ref IS NULL OR sent_at IS NOT NULL)"
"""What we sent for, or are about to. A volume that somebody gave to a machine of ours is not."""


class NoSuchResource(Exception):
    """There is no volume, snapshot or address of that id or name; see their lists."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One of them, until `gone_at`. `machine_id`: it is attached to that machine of ours."""

    child_id: str
    connection_id: str
    infra: str
    kind: provider.ChildKind
    name: str
    region: str
    operation_id: str
    written_at: datetime.datetime
    provider_ref: str | None = None
    machine_id: str | None = None
    address: str | None = None
    size_gigabytes: int | None = None
    price: provider.Price | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # a person's, for lists
    sent_at: datetime.datetime | None = None
    clean_answers: int = 0
    present_at: datetime.datetime | None = None
    delete_asked_at: datetime.datetime | None = None
    gone_at: datetime.datetime | None = None

    def owner(self, *, installation: str) -> provider.Owner:
        """Whose it is, as its provider is told."""
        return provider.Owner(
            installation=installation,
            infra=self.infra,
            operation=self.operation_id,
            node=self.name,
            attempt=1,
        )

    def to_child(self, *, installation: str) -> provider.Child:
        """As drivers know it, by the name that it has at its provider and with its owner.

        Raises where the provider has none yet, which is a fault of ours.
        """
        if self.provider_ref is None:
            raise AssertionError(f"The {self.kind} {self.name} has no id at its provider yet.")
        owner = self.owner(installation=installation)
        return provider.Child(
            kind=self.kind,
            ref=self.provider_ref,
            name=naming.name_of(owner),
            region=self.region,
            keep=True,
            owner=owner,
            address=self.address,
            size_gigabytes=self.size_gigabytes,
        )


async def insert(tx: contract.Tx, *, resource: Resource) -> None:
    """Writes it down with the price that is reserved for it; its provider was not asked yet."""
    await tx.execute(
        "INSERT INTO cloud_children(child_id, connection_id, infra, kind, name, region, "
        "machine_id, operation_id, keep, size_gigabytes, hourly_micros, currency, labels, "
        "written_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        resource.child_id,
        resource.connection_id,
        resource.infra,
        resource.kind.value,
        resource.name,
        resource.region,
        resource.machine_id,
        resource.operation_id,
        resource.size_gigabytes,
        None if resource.price is None else resource.price.hourly_micros,
        "" if resource.price is None else resource.price.currency,
        json.dumps(dict(resource.labels), sort_keys=True),
        clock.to_micros(resource.written_at),
    )


async def find(
    tx: contract.Tx, *, resource_id: str, kind: provider.ChildKind | None = None
) -> Resource | None:
    """The one of this id, or the one of this name and kind that is not gone."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_children WHERE {_ORDERED} "  # noqa: S608 - constants
        "AND (child_id = ? OR name = ?) AND (? = '' OR kind = ?) "
        "ORDER BY CASE WHEN child_id = ? THEN 0 ELSE 1 END, "
        "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END, written_at DESC LIMIT 1",
        *(resource_id,) * 2,
        *("" if kind is None else kind.value,) * 2,
        resource_id,
    )
    return None if row is None else _of_row(row)


async def get(
    tx: contract.Tx, *, resource_id: str, kind: provider.ChildKind | None = None
) -> Resource:
    """As `find`; raises `NoSuchResource`."""
    found = await find(tx, resource_id=resource_id, kind=kind)
    if found is None:
        what = "resource" if kind is None else str(kind)
        noun = "volumes" if kind is None else f"{kind}{'es' if kind.value[-1] == 's' else 's'}"
        raise NoSuchResource(f"There is no {what} {resource_id!r}. See: enlist cloud {noun} list")
    return found


async def find_of_operation(tx: contract.Tx, *, operation_id: str) -> Resource | None:
    """The one that this operation made."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_children WHERE {_ORDERED} "  # noqa: S608 - constants
        "AND operation_id = ? LIMIT 1",
        operation_id,
    )
    return None if row is None else _of_row(row)


async def list_page(
    tx: contract.Tx,
    *,
    kind: provider.ChildKind,
    limit: int,
    infra: str | None = None,
    connection_id: str | None = None,
    machine_id: str | None = None,
    with_gone: bool = False,
    label_filters: Sequence[label_sql.Filter] = (),
    after: tuple[str, str] = ("", ""),
) -> Sequence[Resource]:
    """Those of one kind by name; `after` is the name and id of the last one of the former page."""
    conditions = [_ORDERED, "kind = ?", "(name, child_id) > (?, ?)"]
    values: list[object] = [kind.value, *after]
    for column, value in (
        ("infra", infra),
        ("connection_id", connection_id),
        ("machine_id", machine_id),
    ):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    for condition, bound in label_sql.conditions(label_filters, dialect=tx.dialect):
        conditions.append(condition)
        values.extend(bound)
    if not with_gone:
        conditions.append("gone_at IS NULL")
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_children "  # noqa: S608 - constants
        f"WHERE {' AND '.join(conditions)} ORDER BY name, child_id LIMIT ?",
        *values,
        limit,
    )
    return [_of_row(row) for row in rows]


async def set_sent(tx: contract.Tx, *, child_id: str, now: datetime.datetime) -> None:
    """Its provider is about to be asked for it: from now on it may be there."""
    await tx.execute(
        "UPDATE cloud_children SET sent_at = ?, clean_answers = 0 WHERE child_id = ?",
        clock.to_micros(now),
        child_id,
    )


async def set_unsent(tx: contract.Tx, *, child_id: str) -> None:
    """It is proved that its provider made nothing."""
    await tx.execute(
        "UPDATE cloud_children SET sent_at = NULL, clean_answers = 0 "
        "WHERE child_id = ? AND provider_ref IS NULL",
        child_id,
    )


async def set_clean_answers(tx: contract.Tx, *, child_id: str, count: int) -> None:
    """So many looks in a row have not shown it."""
    await tx.execute(
        "UPDATE cloud_children SET clean_answers = ? WHERE child_id = ?", count, child_id
    )


async def set_present(
    tx: contract.Tx, *, child_id: str, found: provider.Child, now: datetime.datetime
) -> None:
    """Its provider has it, under this id."""
    price = found.hourly
    await tx.execute(
        "UPDATE cloud_children SET provider_ref = ?, present_at = COALESCE(present_at, ?), "
        "address = COALESCE(?, address), size_gigabytes = COALESCE(?, size_gigabytes), "
        "region = CASE WHEN ? = '' THEN region ELSE ? END, "
        "hourly_micros = COALESCE(?, hourly_micros), "
        "currency = CASE WHEN ? = '' THEN currency ELSE ? END WHERE child_id = ?",
        found.ref,
        clock.to_micros(now),
        found.address,
        found.size_gigabytes,
        *(found.region,) * 2,
        None if price is None else price.hourly_micros,
        *("" if price is None else price.currency,) * 2,
        child_id,
    )


async def set_price(tx: contract.Tx, *, child_id: str, price: provider.Price) -> None:
    """Its provider says what it costs."""
    await tx.execute(
        "UPDATE cloud_children SET hourly_micros = ?, currency = ? WHERE child_id = ?",
        price.hourly_micros,
        price.currency,
        child_id,
    )


async def set_machine(tx: contract.Tx, *, child_id: str, machine_id: str | None) -> None:
    """It hangs on that machine now, or on none."""
    await tx.execute(
        "UPDATE cloud_children SET machine_id = ? WHERE child_id = ?", machine_id, child_id
    )


def _of_row(row: contract.Row) -> Resource:
    hourly = row["hourly_micros"]
    return Resource(
        child_id=row["child_id"],
        connection_id=row["connection_id"],
        infra=row["infra"],
        kind=provider.ChildKind(row["kind"]),
        name=row["name"],
        region=row["region"],
        labels=json.loads(row["labels"]),
        operation_id=row["operation_id"],
        written_at=clock.from_micros(row["written_at"]),
        provider_ref=row["provider_ref"],
        machine_id=row["machine_id"],
        address=row["address"],
        size_gigabytes=row["size_gigabytes"],
        price=None
        if hourly is None
        else provider.Price(hourly_micros=int(hourly), currency=row["currency"]),
        sent_at=_moment(row["sent_at"]),
        clean_answers=int(row["clean_answers"]),
        present_at=_moment(row["present_at"]),
        delete_asked_at=_moment(row["delete_asked_at"]),
        gone_at=_moment(row["gone_at"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
