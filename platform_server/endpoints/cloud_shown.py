"""Connections, machines and what hangs on them as the API shows them; never a credential."""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from platform_server.cloud import children, connections, consent, costs, machines
from platform_server.store import contract
from provisioning import contract as provider_contract
from provisioning import providers
from runtime_kit import clock as clock_kit
from wire_protocol import cloud, cloud_machines

_MOST_PHASES = 64
_MICROS = 1_000_000
_LIVE = "gone_at IS NULL AND forgotten_at IS NULL"


def price(found: provider_contract.Price | None) -> cloud.Price | None:
    """A price, or that it is not known."""
    if found is None:
        return None
    return cloud.Price(
        hourly_micros=found.hourly_micros,
        currency=found.currency,
        as_of=found.as_of,
        monthly_cap_micros=found.monthly_cap_micros,
    )


def given_consent(found: consent.Consent | None) -> cloud.Consent | None:
    """A consent that holds."""
    if found is None:
        return None
    return cloud.Consent(
        most_machines=found.most_machines,
        most_hourly_micros=found.most_hourly_micros,
        currency=found.currency,
        expires_at=found.expires_at,
        given_at=found.given_at,
        given_by=found.given_by,
    )


async def connection_page(
    tx: contract.Tx, found: Sequence[connections.Connection], *, now: Any
) -> list[cloud.Connection]:
    """Connections with how much hangs on them."""
    totals = await costs.total_by_connection(tx, now=now)
    rows = await tx.fetch_all(
        f"SELECT connection_id, COUNT(*) AS machines FROM cloud_machines WHERE {_LIVE} "  # noqa: S608 - a constant
        "GROUP BY connection_id LIMIT 1000"
    )
    counted = {row["connection_id"]: int(row["machines"]) for row in rows}
    return [
        _connection(
            one,
            totals=totals.get(one.connection_id, ()),
            counted=counted.get(one.connection_id, 0),
            now=now,
        )
        for one in found
    ]


async def connection(
    tx: contract.Tx, found: connections.Connection, *, now: Any
) -> cloud.Connection:
    """One of them."""
    (shown,) = await connection_page(tx, [found], now=now)
    return shown


def _connection(
    found: connections.Connection, *, totals: Sequence[costs.Total], counted: int, now: Any
) -> cloud.Connection:
    return cloud.Connection(
        connection_id=found.connection_id,
        name=found.name,
        infra=found.infra,
        provider=found.provider,
        state="ready" if found.pause is None else "paused",
        paused_at=None if found.pause is None else found.pause.at,
        paused_reason=None if found.pause is None else found.pause.reason,
        settings={str(name): str(value) for name, value in found.settings.items()},
        credential_kind=found.credential_kind,
        credential_at=found.credential_at,
        external_id=found.external_id,
        account=found.account,
        principal=found.principal,
        capabilities=[str(one) for one in found.checked.get("capabilities", ())],
        costs_money=providers.get(found.provider).costs_money,
        machines=counted,
        totals=[
            cloud.Total(
                currency=one.currency,
                spent_micros=one.spent_micros,
                hourly_micros=one.hourly_micros,
            )
            for one in totals
        ],
        last_check=last_check(found),
        consent=given_consent(consent.find_valid(found, now=now)),
        created_at=found.created_at,
        created_by=found.created_by,
    )


def last_check(found: connections.Connection) -> cloud.Checked | None:
    """What the last check found, if there was one."""
    if found.checked_at is None:
        return None
    told = found.checked
    missing = [str(one) for one in told.get("missing", ())]
    return cloud.Checked(
        ok=found.pause is None and not missing,
        account=found.account,
        principal=found.principal,
        missing=missing,
        unproved=[str(one) for one in told.get("unproved", ())],
        warnings=[str(one) for one in told.get("warnings", ())],
        room=told.get("room"),
        checked_at=found.checked_at,
    )


# --- machines -----------------------------------------------------------------------------------


async def machine_page(
    tx: contract.Tx, found: Sequence[machines.Machine], *, now: Any
) -> list[cloud_machines.Machine]:
    """Machines (a page at most) with their connection's name, state and running total."""
    if not found:
        return []
    totals = await costs.total_of(tx, subject_ids=[one.machine_id for one in found], now=now)
    names = await _names(tx, found)
    states = await _states(tx, found)
    return [
        _machine(
            one,
            connection=names.get(one.connection_id, one.connection_id),
            state=_state_of(one, states=states),
            waits=states.get(f"node:{one.node_id}") if one.counts else None,
            spent=sum(total.spent_micros for total in totals.get(one.machine_id, ())),
        )
        for one in found
    ]


async def machine(
    tx: contract.Tx, found: machines.Machine, *, now: Any
) -> cloud_machines.MachineDetails:
    """One machine with what hangs on it and what first boot told."""
    (shown,) = await machine_page(tx, [found], now=now)
    rows = await tx.fetch_all(
        "SELECT at, phase, detail FROM boot_phases WHERE operation_id = ? "
        "ORDER BY position LIMIT ?",
        found.operation_id,
        _MOST_PHASES,
    )
    return cloud_machines.MachineDetails(
        **shown.model_dump(),
        children=await children_of(tx, found, connection=shown.connection),
        phases=[
            cloud_machines.BootPhase(
                at=clock_kit.from_micros(row["at"]), phase=row["phase"], detail=row["detail"]
            )
            for row in rows
        ],
    )


async def children_of(
    tx: contract.Tx, found: machines.Machine, *, connection: str
) -> list[cloud_machines.Child]:
    """What hangs on the machine, what is kept beside it included."""
    rows = await tx.fetch_all(
        "SELECT child_id, kind, provider_ref, name, labels, region, keep, address, size_gigabytes, "
        "hourly_micros, currency, present_at, delete_asked_at, gone_at FROM cloud_children "
        "WHERE machine_id = ? ORDER BY written_at, child_id LIMIT ?",
        found.machine_id,
        children.MOST,
    )
    return [
        child(row, connection=connection, provider=found.provider, node_id=found.node_id)
        for row in rows
    ]


def child(
    row: contract.Row, *, connection: str, provider: str, node_id: str | None
) -> cloud_machines.Child:
    """One row of `cloud_children`."""
    hourly = row["hourly_micros"]
    return cloud_machines.Child(
        child_id=row["child_id"],
        kind=row["kind"],
        name=row["name"],
        labels=json.loads(row["labels"]),
        connection=connection,
        provider=provider,
        region=row["region"],
        provider_ref=row["provider_ref"],
        node_id=node_id,
        keep=bool(row["keep"]),
        address=row["address"],
        size_gigabytes=row["size_gigabytes"],
        price=None
        if hourly is None
        else cloud.Price(hourly_micros=int(hourly), currency=row["currency"]),
        present_at=_moment(row["present_at"]),
        delete_asked_at=_moment(row["delete_asked_at"]),
        gone_at=_moment(row["gone_at"]),
    )


def _machine(
    found: machines.Machine, *, connection: str, state: str, waits: "_State | None", spent: int
) -> cloud_machines.Machine:
    return cloud_machines.Machine(
        machine_id=found.machine_id,
        node_id=found.node_id,
        infra=found.infra,
        provider=found.provider,
        connection=connection,
        operation_id=found.operation_id,
        state=cast("Any", state),
        waiting=None if waits is None else waits.waiting,
        waiting_since=None if waits is None else waits.waiting_since,
        region=found.region,
        size=found.size,
        image=found.image,
        role=cast("Any", found.role),
        labels=dict(found.wish.get("labels") or {}),
        provider_ref=found.provider_ref,
        provider_name=found.provider_name,
        power=cast("Any", found.power),
        addresses=[str(one) for one in found.seen.get("addresses", ())],
        seen_at=found.seen_at,
        price=price(found.price),
        spent_micros=spent,
        still_billed=found.counts,
        ordered_at=found.ordered_at,
        ordered_by=found.ordered_by,
        present_at=found.present_at,
        active_at=found.active_at,
        delete_asked_at=found.delete_asked_at,
        gone_at=found.gone_at,
        forgotten_at=found.forgotten_at,
        forgotten_by=found.forgotten_by,
    )


async def _names(tx: contract.Tx, found: Sequence[machines.Machine]) -> Mapping[str, str]:
    wanted = sorted({one.connection_id for one in found})
    rows = await tx.fetch_all(
        "SELECT connection_id, name FROM cloud_connections "  # noqa: S608 - marks
        f"WHERE connection_id IN ({_marks(wanted)})",
        *wanted,
    )
    return {row["connection_id"]: row["name"] for row in rows}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How an operation stands, and what is in its way."""

    state: str
    waiting: str | None
    waiting_since: datetime.datetime | None


async def _states(tx: contract.Tx, found: Sequence[machines.Machine]) -> Mapping[str, _State]:
    """By operation id how each order stands, by node id what is open on it."""
    orders = sorted({one.operation_id for one in found})
    nodes = sorted({one.node_id for one in found})
    rows = await tx.fetch_all(
        "SELECT operation_id, subject, state, ended_at, waiting, waiting_since "  # noqa: S608 - marks
        f"FROM operations WHERE operation_id IN ({_marks(orders)}) "
        f"OR (ended_at IS NULL AND subject IN ({_marks(nodes)}))",
        *orders,
        *nodes,
    )
    known: dict[str, _State] = {}
    for row in rows:
        stands = _State(
            state=row["state"],
            waiting=row["waiting"],
            waiting_since=_moment(row["waiting_since"]),
        )
        known[row["operation_id"]] = stands
        if row["ended_at"] is None:
            known[f"node:{row['subject']}"] = stands
    return known


def _state_of(found: machines.Machine, *, states: Mapping[str, _State]) -> str:
    if found.gone_at is not None and found.active_at is not None:
        return "deleted"
    if found.counts and f"node:{found.node_id}" in states:
        return states[f"node:{found.node_id}"].state
    order = states.get(found.operation_id)
    if order is not None:
        return order.state
    return "active" if found.active_at is not None else "failed"  # its order was purged


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" for _ in values)


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock_kit.from_micros(micros)


def priced(found: provider_contract.Price | None) -> str:
    """A price for a sentence."""
    if found is None:
        return "its price is not known"
    if found.hourly_micros == 0:
        return "it costs nothing"
    shown = f"{found.hourly_micros / _MICROS:.4f} {found.currency} an hour"
    return shown if found.as_of is None else f"about {shown} (an estimate of {found.as_of})"
