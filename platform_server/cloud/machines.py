"""The rows of machines: what was ordered, what the provider says of it, and how far its end is.

A machine counts, in the caps and in the bill, from the order until its end is confirmed
(`gone_at`) or a person has said that it is none of ours any more (`forgotten_at`). What the
provider says stands in `seen` with its moment, and enrolling is judged by that alone.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.store import contract
from platform_server.tokens import label_sql
from provisioning import contract as provider_contract
from runtime_kit import clock

_COLUMNS: Final = (
    "machine_id, node_id, infra, connection_id, provider, operation_id, region, size, image, role, "
    "wish, template, provider_ref, provider_name, power, seen, seen_at, looked_at, hourly_micros, "
    "currency, price_as_of, ordered_at, ordered_by, present_at, running_at, active_at, missed, "
    "missed_at, delete_asked_at, delete_asked_by, keep_machine, delete_sent_at, gone_at, "
    "forgotten_at, forgotten_by"
)
_LIVE: Final = "gone_at IS NULL AND forgotten_at IS NULL"


class NoSuchMachine(Exception):
    """There is no machine of that id or node; see `enlist cloud machines list`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One ordered machine. `wish` is the rest of the order, `seen` the provider's own view."""

    machine_id: str
    node_id: str
    infra: str
    connection_id: str
    provider: str
    operation_id: str
    region: str
    size: str
    image: str
    role: str
    wish: Mapping[str, Any]
    template: str
    price: provider_contract.Price | None
    ordered_at: datetime.datetime
    ordered_by: str
    provider_ref: str | None = None
    provider_name: str | None = None
    power: str = provider_contract.Power.UNKNOWN.value
    seen: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seen_at: datetime.datetime | None = None
    looked_at: datetime.datetime | None = None
    present_at: datetime.datetime | None = None
    running_at: datetime.datetime | None = None
    active_at: datetime.datetime | None = None
    missed: int = 0
    missed_at: datetime.datetime | None = None
    delete_asked_at: datetime.datetime | None = None
    delete_asked_by: str | None = None
    keep_machine: bool = False
    delete_sent_at: datetime.datetime | None = None
    gone_at: datetime.datetime | None = None
    forgotten_at: datetime.datetime | None = None
    forgotten_by: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it stands in the caps and in the bill."""
        return self.gone_at is None and self.forgotten_at is None


async def insert(tx: contract.Tx, *, machine: Machine) -> None:
    """Adds the row; raises `StoreConflict` where the node has a machine that counts."""
    price = machine.price
    await tx.execute(
        "INSERT INTO cloud_machines(machine_id, node_id, infra, connection_id, provider, "
        "operation_id, region, size, image, role, wish, template, hourly_micros, currency, "
        "price_as_of, ordered_at, ordered_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        machine.machine_id,
        machine.node_id,
        machine.infra,
        machine.connection_id,
        machine.provider,
        machine.operation_id,
        machine.region,
        machine.size,
        machine.image,
        machine.role,
        json.dumps(dict(machine.wish), sort_keys=True),
        machine.template,
        None if price is None else price.hourly_micros,
        "" if price is None else price.currency,
        None if price is None or price.as_of is None else price.as_of.isoformat(),
        clock.to_micros(machine.ordered_at),
        machine.ordered_by,
    )


async def find(tx: contract.Tx, *, machine_id: str) -> Machine | None:
    """The machine of this id, or the one behind the node of this id, the newest first."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_machines WHERE machine_id = ? OR node_id = ? "  # noqa: S608 - a constant
        f"ORDER BY CASE WHEN {_LIVE} THEN 0 ELSE 1 END, ordered_at DESC LIMIT 1",
        machine_id,
        machine_id,
    )
    return None if row is None else _of_row(row)


async def get(tx: contract.Tx, *, machine_id: str) -> Machine:
    """As `find`; raises `NoSuchMachine`."""
    found = await find(tx, machine_id=machine_id)
    if found is None:
        raise NoSuchMachine(
            f"There is no machine {machine_id!r}. See: enlist cloud machines list --ended"
        )
    return found


async def find_of_operation(tx: contract.Tx, *, operation_id: str) -> Machine | None:
    """The machine that this operation was to create; one that counts first, then the newest."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_machines WHERE operation_id = ? "  # noqa: S608 - constants
        f"ORDER BY CASE WHEN {_LIVE} THEN 0 ELSE 1 END, ordered_at DESC, machine_id LIMIT 1",
        operation_id,
    )
    return None if row is None else _of_row(row)


async def find_live_of_node(tx: contract.Tx, *, node_id: str) -> Machine | None:
    """The machine behind the node, if there is one that counts."""
    row = await tx.fetch_one(
        f"SELECT {_COLUMNS} FROM cloud_machines WHERE node_id = ? AND {_LIVE}",  # noqa: S608 - constants
        node_id,
    )
    return None if row is None else _of_row(row)


async def list_live(tx: contract.Tx, *, connection_id: str, limit: int) -> Sequence[Machine]:
    """Those of a connection that count, the oldest first."""
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_machines WHERE connection_id = ? AND {_LIVE} "  # noqa: S608 - constants
        "ORDER BY ordered_at, machine_id LIMIT ?",
        connection_id,
        limit,
    )
    return [_of_row(row) for row in rows]


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    infra: str | None = None,
    connection_id: str | None = None,
    ended: bool = False,
    label_filters: Sequence[label_sql.Filter] = (),
    before: tuple[int, str] | None = None,
) -> Sequence[Machine]:
    """A page, newest first; with `ended` those that are gone or forgotten as well.

    Labels are those that a machine was ordered with.
    """
    conditions = ["(ordered_at, machine_id) < (?, ?)"]
    values: list[object] = [*(before or (2**62, ""))]
    for condition, bound in label_sql.conditions(label_filters, dialect=tx.dialect, under="wish"):
        conditions.append(condition)
        values.extend(bound)
    if not ended:
        conditions.append(_LIVE)
    for column, value in (("infra", infra), ("connection_id", connection_id)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    rows = await tx.fetch_all(
        f"SELECT {_COLUMNS} FROM cloud_machines WHERE {' AND '.join(conditions)} "  # noqa: S608 - constants
        "ORDER BY ordered_at DESC, machine_id DESC LIMIT ?",
        *values,
        limit,
    )
    return [_of_row(row) for row in rows]


async def set_present(
    tx: contract.Tx, *, machine_id: str, ref: str, name: str, now: datetime.datetime
) -> None:
    """The provider has it under this id."""
    await tx.execute(
        "UPDATE cloud_machines SET provider_ref = ?, provider_name = ?, present_at = ?, "
        "running_at = NULL, seen = '{}', seen_at = NULL, looked_at = NULL, missed = 0, "
        "delete_sent_at = NULL, "
        "power = 'unknown' WHERE machine_id = ?",
        ref,
        name,
        clock.to_micros(now),
        machine_id,
    )


async def set_absent(tx: contract.Tx, *, machine_id: str) -> None:
    """Nothing of the attempt is left: the machine is as before its first."""
    await tx.execute(
        "UPDATE cloud_machines SET provider_ref = NULL, provider_name = NULL, present_at = NULL, "
        "running_at = NULL, seen = '{}', seen_at = NULL, looked_at = NULL, missed = 0, "
        "delete_sent_at = NULL, "
        "power = 'unknown' WHERE machine_id = ?",
        machine_id,
    )


async def set_price(tx: contract.Tx, *, machine_id: str, price: provider_contract.Price) -> None:
    """What it costs by the hour, as the provider has now said."""
    await tx.execute(
        "UPDATE cloud_machines SET hourly_micros = ?, currency = ?, price_as_of = ? "
        "WHERE machine_id = ?",
        price.hourly_micros,
        price.currency,
        None if price.as_of is None else price.as_of.isoformat(),
        machine_id,
    )


async def see(
    tx: contract.Tx,
    *,
    machine_id: str,
    instance: provider_contract.Instance,
    now: datetime.datetime,
) -> None:
    """What the provider says of it now."""
    moment = clock.to_micros(now)
    runs = instance.power is provider_contract.Power.RUNNING
    await tx.execute(
        "UPDATE cloud_machines SET power = ?, seen = ?, seen_at = ?, looked_at = ?, missed = 0, "
        "running_at = CASE WHEN ? = 1 THEN COALESCE(running_at, ?) ELSE running_at END "
        "WHERE machine_id = ? AND (seen_at IS NULL OR seen_at <= ?)",
        instance.power.value,
        json.dumps(view_of(instance), sort_keys=True),
        moment,
        moment,
        int(runs),
        moment,
        machine_id,
        moment,
    )


async def miss(
    tx: contract.Tx, *, machine_id: str, apart: datetime.timedelta, now: datetime.datetime
) -> int:
    """A look did not find it; gives how many did not by now.

    Looks that are less than `apart` from the last one that counted are one and the same.
    """
    moment = clock.to_micros(now)
    await tx.execute(
        "UPDATE cloud_machines SET looked_at = ? WHERE machine_id = ?", moment, machine_id
    )
    await tx.execute(
        "UPDATE cloud_machines SET missed = missed + 1, missed_at = ? WHERE machine_id = ? "
        "AND (missed = 0 OR missed_at IS NULL OR missed_at <= ?)",
        moment,
        machine_id,
        clock.to_micros(now - apart),
    )
    return (await get(tx, machine_id=machine_id)).missed


async def set_active(tx: contract.Tx, *, machine_id: str, now: datetime.datetime) -> None:
    """It is a ready node."""
    await tx.execute(
        "UPDATE cloud_machines SET active_at = ? WHERE machine_id = ?",
        clock.to_micros(now),
        machine_id,
    )


async def ask_delete(
    tx: contract.Tx, *, machine_id: str, asked_by: str, keep_machine: bool, now: datetime.datetime
) -> None:
    """Somebody wants it gone; who asked first stands."""
    await tx.execute(
        "UPDATE cloud_machines SET delete_asked_at = COALESCE(delete_asked_at, ?), "
        "delete_asked_by = COALESCE(delete_asked_by, ?), keep_machine = ? WHERE machine_id = ?",
        clock.to_micros(now),
        asked_by,
        int(keep_machine),
        machine_id,
    )


async def unask_delete(tx: contract.Tx, *, machine_id: str) -> None:
    """Nobody wants it gone any more (a retry)."""
    await tx.execute(
        "UPDATE cloud_machines SET delete_asked_at = NULL, delete_asked_by = NULL, "
        "keep_machine = 0 WHERE machine_id = ?",
        machine_id,
    )


async def set_delete_sent(tx: contract.Tx, *, machine_id: str, now: datetime.datetime) -> None:
    """The provider was asked to delete it."""
    await tx.execute(
        "UPDATE cloud_machines SET delete_sent_at = ? WHERE machine_id = ?",
        clock.to_micros(now),
        machine_id,
    )


async def set_gone(tx: contract.Tx, *, machine_id: str, now: datetime.datetime) -> None:
    """Its end is confirmed: it counts no more."""
    await tx.execute(
        "UPDATE cloud_machines SET gone_at = COALESCE(gone_at, ?), power = 'unknown' "
        "WHERE machine_id = ?",
        clock.to_micros(now),
        machine_id,
    )


async def set_counting(tx: contract.Tx, *, machine_id: str) -> None:
    """It is tried again, so it counts again; raises `StoreConflict` where its node has one."""
    await tx.execute("UPDATE cloud_machines SET gone_at = NULL WHERE machine_id = ?", machine_id)


async def set_forgotten(
    tx: contract.Tx, *, machine_id: str, by: str, now: datetime.datetime
) -> None:
    """A person has said that it is none of ours any more: it counts no more."""
    await tx.execute(
        "UPDATE cloud_machines SET forgotten_at = COALESCE(forgotten_at, ?), "
        "forgotten_by = COALESCE(forgotten_by, ?) WHERE machine_id = ?",
        clock.to_micros(now),
        by,
        machine_id,
    )


def view_of(instance: provider_contract.Instance) -> Mapping[str, Any]:
    """What is kept of the provider's view: enough to judge by and to show."""
    owner = instance.owner
    return {
        "ref": instance.ref,
        "name": instance.name,
        "region": instance.region,
        "zone": instance.zone,
        "raw_state": instance.raw_state,
        "instance_id": instance.instance_id,
        "owner": None if owner is None else dataclasses.asdict(owner),
        "addresses": list(instance.addresses),
        "private_addresses": list(instance.private_addresses),
        "failure": instance.failure,
        "failure_code": instance.failure_code,
    }


def _of_row(row: contract.Row) -> Machine:
    hourly, as_of = row["hourly_micros"], row["price_as_of"]
    return Machine(
        machine_id=row["machine_id"],
        node_id=row["node_id"],
        infra=row["infra"],
        connection_id=row["connection_id"],
        provider=row["provider"],
        operation_id=row["operation_id"],
        region=row["region"],
        size=row["size"],
        image=row["image"],
        role=row["role"],
        wish=json.loads(row["wish"]),
        template=row["template"],
        price=None
        if hourly is None
        else provider_contract.Price(
            hourly_micros=int(hourly),
            currency=row["currency"],
            as_of=None if as_of is None else datetime.date.fromisoformat(as_of),
        ),
        ordered_at=clock.from_micros(row["ordered_at"]),
        ordered_by=row["ordered_by"],
        provider_ref=row["provider_ref"],
        provider_name=row["provider_name"],
        power=row["power"],
        seen=json.loads(row["seen"]),
        seen_at=_moment(row["seen_at"]),
        looked_at=_moment(row["looked_at"]),
        present_at=_moment(row["present_at"]),
        running_at=_moment(row["running_at"]),
        active_at=_moment(row["active_at"]),
        missed=int(row["missed"]),
        missed_at=_moment(row["missed_at"]),
        delete_asked_at=_moment(row["delete_asked_at"]),
        delete_asked_by=row["delete_asked_by"],
        keep_machine=bool(row["keep_machine"]),
        delete_sent_at=_moment(row["delete_sent_at"]),
        gone_at=_moment(row["gone_at"]),
        forgotten_at=_moment(row["forgotten_at"]),
        forgotten_by=row["forgotten_by"],
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock.from_micros(micros)
