"""The rows of what hangs on machines: disks, addresses, interfaces, security groups, keys.

Written down as soon as a provider names one, so that a machine is not called gone while one of
them is left. What is kept beside machines (volumes, snapshots, stable addresses of our own) stands
in the same table with `keep`, and goes with no machine.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from platform_server.cloud import machines
from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import clock

MOST: Final = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """One of them that is not confirmed gone. `is_answered`: the create call itself named it."""

    child_id: str
    child: provider.Child
    delete_asked_at: datetime.datetime | None
    is_answered: bool = False


async def record(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    found: Iterable[provider.Child],
    sent_at: datetime.datetime | None = None,
    now: datetime.datetime,
) -> None:
    """Writes down what hangs on the machine; what is known already stays as it is.

    `sent_at` of what the answer to the order itself has named, and of nothing that is only seen
    there.
    """
    moment = clock.to_micros(now)
    for child in found:
        price = child.hourly
        await tx.execute(
            "INSERT INTO cloud_children(child_id, connection_id, infra, kind, provider_ref, name, "
            "region, machine_id, operation_id, keep, address, size_gigabytes, hourly_micros, "
            "currency, written_at, sent_at, present_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (connection_id, kind, provider_ref) "
            "WHERE provider_ref IS NOT NULL AND gone_at IS NULL DO UPDATE SET "
            "machine_id = excluded.machine_id, "
            # that one machine's order has named it says nothing of another that it hangs on now
            "sent_at = CASE WHEN cloud_children.keep = 1 "
            "OR cloud_children.machine_id = excluded.machine_id "
            "THEN COALESCE(cloud_children.sent_at, excluded.sent_at) "
            "ELSE excluded.sent_at END, "
            "address = COALESCE(excluded.address, cloud_children.address)",
            secrets.token_hex(8),
            machine.connection_id,
            machine.infra,
            child.kind.value,
            child.ref,
            child.name,
            child.region or machine.region,
            machine.machine_id,
            machine.operation_id,
            int(child.keep),
            child.address,
            child.size_gigabytes,
            None if price is None else price.hourly_micros,
            "" if price is None else price.currency,
            moment,
            None if sent_at is None or child.keep else clock.to_micros(sent_at),
            moment,
        )


async def list_hanging(tx: contract.Tx, *, machine_id: str) -> Sequence[Hanging]:
    """What goes with the machine and is not confirmed gone; what is kept is not among it."""
    rows = await tx.fetch_all(
        "SELECT child_id, kind, provider_ref, name, region, address, size_gigabytes, "
        "delete_asked_at, sent_at FROM cloud_children WHERE machine_id = ? AND keep = 0 "
        "AND gone_at IS NULL AND provider_ref IS NOT NULL ORDER BY written_at, child_id LIMIT ?",
        machine_id,
        MOST,
    )
    return [
        Hanging(
            child_id=row["child_id"],
            child=provider.Child(
                kind=provider.ChildKind(row["kind"]),
                ref=row["provider_ref"],
                name=row["name"],
                region=row["region"],
                address=row["address"],
                size_gigabytes=row["size_gigabytes"],
            ),
            delete_asked_at=None
            if row["delete_asked_at"] is None
            else clock.from_micros(row["delete_asked_at"]),
            is_answered=row["sent_at"] is not None,
        )
        for row in rows
    ]


async def set_delete_asked(tx: contract.Tx, *, child_id: str, now: datetime.datetime) -> None:
    """Its provider is about to be asked to delete it."""
    await tx.execute(
        "UPDATE cloud_children SET delete_asked_at = COALESCE(delete_asked_at, ?) "
        "WHERE child_id = ?",
        clock.to_micros(now),
        child_id,
    )


async def set_gone(tx: contract.Tx, *, child_id: str, now: datetime.datetime) -> None:
    """Its provider says that it is gone."""
    await tx.execute(
        "UPDATE cloud_children SET gone_at = COALESCE(gone_at, ?) WHERE child_id = ?",
        clock.to_micros(now),
        child_id,
    )


async def let_go_one(tx: contract.Tx, *, child_id: str, now: datetime.datetime) -> None:
    """It is not this machine's: its row ends and counts nowhere, whatever becomes of it there."""
    await tx.execute(
        "UPDATE cloud_children SET keep = 1, machine_id = NULL, sent_at = NULL, gone_at = ? "
        "WHERE child_id = ? AND gone_at IS NULL",
        clock.to_micros(now),
        child_id,
    )


async def let_go(tx: contract.Tx, *, machine_id: str) -> None:
    """The machine is gone or forgotten: what is kept hangs on nothing any more."""
    await tx.execute(
        "UPDATE cloud_children SET machine_id = NULL "
        "WHERE machine_id = ? AND keep = 1 AND gone_at IS NULL",
        machine_id,
    )
