"""What a person asks for about volumes, snapshots and addresses becomes operations.

Judged and stored in one transaction; nothing here calls a provider. A refusal names both facts
that do not fit, so that nobody has to find out at the provider.

Caps by count and money hold as for machines; what it will cost is an estimate until its provider
has told it (`pricing`).
"""

import dataclasses
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.audit import actions
from platform_server.cloud import (
    beside,
    connections,
    consent,
    costs,
    machines,
    pricing,
    requests,
    reserve,
)
from platform_server.operations import holding, records, states
from platform_server.store import contract
from provisioning import contract as provider
from runtime_kit import clock

CREATE: Final = "create-resource"
ATTACH: Final = "attach-resource"
DETACH: Final = "detach-resource"
DELETE: Final = "delete-resource"
OURS: Final = (CREATE, ATTACH, DETACH, DELETE)
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class NameTaken(Exception):
    """One of that kind and name is there already; choose another name."""


class DoesNotFit(Exception):
    """It cannot be done with these two; the message names the facts that do not fit."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One to make. `of` is the node or machine a snapshot is taken of, or that a volume is for.

    Without it connection and region count. `caps` are those of the connection (`consent.caps_of`),
    `regions` those that the policy allows, None where there is no policy.
    """

    kind: provider.ChildKind
    name: str
    infra: str
    connection: connections.Connection | None = None
    region: str = ""
    size_gigabytes: int | None = None
    of: str | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    caps: Sequence[consent.Caps] = ()
    regions: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was stored: the operation that carries it out, and what it is about."""

    operation: records.Operation
    resource: beside.Resource


async def create(tx: contract.Tx, *, wish: Wish, asked: requests.Asked) -> Made:
    """Stores the order of one.

    Raises `NameTaken`, `DoesNotFit`, `machines.NoSuchMachine`, `connections.NoSuchConnection`,
    `reserve.CapReached`.
    """
    if not _NAME.fullmatch(wish.name):
        raise DoesNotFit("A name has small letters, digits and -, 63 at most.")
    region, connection_id, of = wish.region, "", None
    gigabytes = wish.size_gigabytes
    if wish.kind is provider.ChildKind.SNAPSHOT or wish.of is not None:
        machine = await _present_machine(tx, machine_id=wish.of or "")
        region, connection_id, of = machine.region, machine.connection_id, machine.machine_id
        if wish.kind is provider.ChildKind.SNAPSHOT:
            gigabytes = await pricing.disk_of(tx, machine=machine)
    elif wish.connection is not None:
        connection_id = wish.connection.connection_id
    if wish.kind is provider.ChildKind.VOLUME and not wish.size_gigabytes:
        raise DoesNotFit("A volume has a size: --size-gigabytes N.")
    await connections.lock(tx, connection_id=connection_id)
    through = await connections.get(tx, connection_id=connection_id)
    await _require_name(tx, infra=wish.infra, kind=wish.kind, name=wish.name)
    _require_region(region, allowed=wish.regions)
    price = pricing.estimate(through.provider, wish.kind, gigabytes=gigabytes)
    await reserve.reserve(
        tx,
        provider_name=through.provider,
        connection_id=connection_id,
        price=price,
        caps=wish.caps,
        kind=wish.kind,
    )
    operation_id = secrets.token_hex(8)
    resource = beside.Resource(
        child_id=secrets.token_hex(8),
        connection_id=connection_id,
        infra=wish.infra,
        kind=wish.kind,
        name=wish.name,
        region=region,
        operation_id=operation_id,
        written_at=asked.now,
        size_gigabytes=wish.size_gigabytes,
        price=price,
        labels=wish.labels,
    )
    await beside.insert(tx, resource=resource)
    return await _store(
        tx,
        CREATE,
        resource=resource,
        asked=asked,
        operation_id=operation_id,
        more={"of": of, "size_gigabytes": wish.size_gigabytes},
    )


async def attach(
    tx: contract.Tx, *, resource_id: str, machine_id: str, asked: requests.Asked
) -> Made:
    """Has a volume or address given to the machine of that node.

    Raises `beside.NoSuchResource`, `machines.NoSuchMachine`, `DoesNotFit`, `requests.Busy`.
    """
    resource = await _free(tx, resource_id=resource_id)
    machine = await _present_machine(tx, machine_id=machine_id)
    if resource.kind is provider.ChildKind.SNAPSHOT:
        raise DoesNotFit("A snapshot is not attached: order a machine with --image.")
    if resource.connection_id != machine.connection_id:
        raise DoesNotFit(
            f"The {resource.kind} {resource.name} and the machine of {machine.node_id} belong to "
            "different connections."
        )
    if resource.region and machine.region and resource.region != machine.region:
        raise DoesNotFit(
            f"The {resource.kind} {resource.name} is in {resource.region}, the machine of "
            f"{machine.node_id} in {machine.region}: at the provider they cannot come together."
        )
    if resource.machine_id is not None and resource.machine_id != machine.machine_id:
        raise DoesNotFit(
            f"The {resource.kind} {resource.name} is attached to another machine. Detach it first: "
            f"enlist cloud {pricing.noun_of(resource.kind)} detach {resource.name}"
        )
    return await _store(
        tx, ATTACH, resource=resource, asked=asked, more={"machine_id": machine.machine_id}
    )


async def detach(tx: contract.Tx, *, resource_id: str, asked: requests.Asked) -> Made:
    """Has it taken away from its machine; raises `beside.NoSuchResource`, `DoesNotFit`, `Busy`."""
    resource = await _free(tx, resource_id=resource_id)
    if resource.kind is provider.ChildKind.SNAPSHOT:
        raise DoesNotFit("A snapshot hangs on no machine.")
    return await _store(tx, DETACH, resource=resource, asked=asked)


async def delete(tx: contract.Tx, *, resource_id: str, asked: requests.Asked) -> Made:
    """Has it deleted until that is confirmed; data is lost.

    Raises `beside.NoSuchResource`, `DoesNotFit` (it is attached), `requests.Busy`.
    """
    resource = await _free(tx, resource_id=resource_id)
    if resource.machine_id is not None:
        raise DoesNotFit(
            f"The {resource.kind} {resource.name} is attached to a machine. Detach it first: "
            f"enlist cloud {pricing.noun_of(resource.kind)} detach {resource.name}"
        )
    await tx.execute(
        "UPDATE cloud_children SET delete_asked_at = COALESCE(delete_asked_at, ?) "
        "WHERE child_id = ?",
        clock.to_micros(asked.now),
        resource.child_id,
    )
    return await _store(tx, DELETE, resource=resource, asked=asked)


async def forget(
    tx: contract.Tx, *, resource_id: str, reason: str, asked: requests.Asked
) -> beside.Resource:
    """A person says that it is gone or none of ours; nobody asks the provider, and it is recorded.

    For a provider that is no more. What still carries our tags is found by the sweeper later.
    Raises `beside.NoSuchResource` and `requests.Busy`.
    """
    resource = await beside.get(tx, resource_id=resource_id)
    await tx.lock(f"cloud-child:{resource.child_id}")
    await _require_free(tx, resource=resource)
    await tx.execute(
        "UPDATE cloud_children SET gone_at = COALESCE(gone_at, ?), machine_id = NULL "
        "WHERE child_id = ?",
        clock.to_micros(asked.now),
        resource.child_id,
    )
    await costs.end(tx, subject_id=resource.child_id, until=asked.now)
    await actions.append(
        tx,
        action=actions.Action(
            at=asked.now,
            actor=asked.by,
            action="cloud.resources.forget",
            target=resource.name,
            environment=asked.environment,
            infra=resource.infra,
            details={"child_id": resource.child_id, "reason": reason, "kind": resource.kind.value},
        ),
    )
    return await beside.get(tx, resource_id=resource.child_id)


async def retry(
    tx: contract.Tx,
    *,
    operation_id: str,
    caps: Sequence[consent.Caps] = (),
    regions: Sequence[str] | None = None,
    asked: requests.Asked,
) -> Made:
    """Has a failed operation of these kinds tried again; what was done is found, not done twice.

    One that counts no more is judged anew, as an order is. Raises `requests.NoSuchOperation`,
    `requests.WrongState`, `requests.Busy`, `connections.NoSuchConnection`, `NameTaken`,
    `DoesNotFit`, `reserve.CapReached`.
    """
    operation = await records.find(tx, operation_id=operation_id)
    if operation is None or operation.kind not in OURS:
        raise requests.NoSuchOperation(f"There is no operation {operation_id} of this kind.")
    if operation.state is not states.State.FAILED:
        raise requests.WrongState(
            f"The operation is {operation.state}; only one that has failed can be retried."
        )
    resource = await beside.get(tx, resource_id=str(operation.request["child_id"]))
    await connections.lock(tx, connection_id=resource.connection_id)
    through = await connections.get(tx, connection_id=resource.connection_id)
    await _require_free(tx, resource=resource)
    if operation.kind == CREATE and resource.gone_at is not None:
        await _count_again(tx, resource=resource, through=through, caps=caps, regions=regions)
    changed = await holding.reopen(
        tx,
        operation=operation,
        detail=f"{asked.by} has it tried again.",
        environment=asked.environment,
        now=asked.now,
    )
    return Made(operation=changed, resource=resource)


# Inside.


async def _count_again(
    tx: contract.Tx,
    *,
    resource: beside.Resource,
    through: connections.Connection,
    caps: Sequence[consent.Caps],
    regions: Sequence[str] | None,
) -> None:
    """It was never made, so it is ordered anew: name, region, number and money."""
    if resource.provider_ref is not None:
        raise DoesNotFit(f"The {resource.kind} {resource.name} is gone: order it anew.")
    await _require_name(tx, infra=resource.infra, kind=resource.kind, name=resource.name)
    _require_region(resource.region, allowed=regions)
    await reserve.reserve(
        tx,
        provider_name=through.provider,
        connection_id=resource.connection_id,
        price=resource.price,
        caps=caps,
        kind=resource.kind,
    )
    await tx.execute(
        "UPDATE cloud_children SET gone_at = NULL WHERE child_id = ?", resource.child_id
    )


async def _require_name(
    tx: contract.Tx, *, infra: str, kind: provider.ChildKind, name: str
) -> None:
    await tx.lock(f"cloud-name:{infra}:{kind}:{name}")
    present = await beside.find(tx, resource_id=name, kind=kind)
    if present is not None and present.gone_at is None:
        raise NameTaken(
            f"There is a {kind} {name} in {present.region or 'its region'} already. "
            "Choose another name."
        )


def _require_region(region: str, *, allowed: Sequence[str] | None) -> None:
    if allowed is not None and region not in allowed:
        raise DoesNotFit(
            f"The policy file does not allow the region {region or '(none)'}, but: "
            f"{', '.join(allowed)}."
        )


async def _present_machine(tx: contract.Tx, *, machine_id: str) -> machines.Machine:
    machine = await machines.get(tx, machine_id=machine_id)
    if machine.provider_ref is None or not machine.counts:
        raise DoesNotFit(f"The machine of {machine.node_id} is not there at its provider.")
    return machine


async def _free(tx: contract.Tx, *, resource_id: str) -> beside.Resource:
    found = await beside.get(tx, resource_id=resource_id)
    await tx.lock(f"cloud-child:{found.child_id}")
    resource = await beside.get(tx, resource_id=found.child_id)
    if resource.gone_at is not None:
        raise DoesNotFit(f"The {resource.kind} {resource.name} is gone.")
    await _require_free(tx, resource=resource)
    if resource.provider_ref is None:
        raise DoesNotFit(
            f"The {resource.kind} {resource.name} is not there at its provider yet. See: enlist "
            f"operations show {resource.operation_id}"
        )
    return resource


async def _require_free(tx: contract.Tx, *, resource: beside.Resource) -> None:
    present = await records.find_open(tx, subject=subject_of(resource))
    if present is not None:
        raise requests.Busy(
            f"The operation {present.operation_id} ({present.kind}) of the {resource.kind} "
            f"{resource.name} is open. Follow it: enlist operations watch {present.operation_id}"
        )


def subject_of(resource: beside.Resource) -> str:
    """What its operations are about: of one thing one is open at a time."""
    return f"{resource.kind}/{resource.child_id}"


async def _store(
    tx: contract.Tx,
    kind: str,
    *,
    resource: beside.Resource,
    asked: requests.Asked,
    operation_id: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Made:
    operation = records.Operation(
        operation_id=operation_id or secrets.token_hex(8),
        kind=kind,
        infra=resource.infra,
        subject=subject_of(resource),
        parent_id=None,
        state=states.State.REQUESTED,
        request={
            "child_id": resource.child_id,
            "kind": resource.kind.value,
            "name": resource.name,
            "connection_id": resource.connection_id,
            "region": resource.region,
            **(more or {}),
        },
        created_at=asked.now,
        created_by=asked.by,
        updated_at=asked.now,
        next_at=asked.now,
    )
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=asked.environment, now=asked.now)
    return Made(operation=operation, resource=resource)
