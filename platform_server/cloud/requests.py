"""What a person asks for about machines becomes operations: judged and stored in one transaction.

Order, delete, reboot, retry, cancel, resolve, forget. Nothing here calls a provider: whatever is
stored is carried out by the reconciler, so a rehearsal (`--check`) says what would happen. Each
refusal is an exception of its own whose text is for the person.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from platform_server.cloud import (
    again,
    attempts,
    breaker,
    children,
    connections,
    consent,
    costs,
    machines,
    reserve,
    tickets,
)
from platform_server.nodes import configured
from platform_server.operations import holding, records, states
from platform_server.store import contract
from provisioning import contract as provider
from wire_protocol import ids, problems, times

CREATE: Final = "create-machine"
DELETE: Final = "delete-machine"
REBOOT: Final = "reboot-machine"
Choice = Literal["adopt", "retry", "give-up"]


class NodeTaken(Exception):
    """The node id has a machine, an enrollment or a node already; the message says what to do."""


class WrongState(Exception):
    """The operation or machine stands where this cannot be asked for; the message says where."""


class Busy(Exception):
    """Another operation on the machine is open; see `enlist operations list`."""


class NoSuchOperation(Exception):
    """There is no operation of that id, or it is about no machine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is ordered: exact already, judged by policy and catalogue, with its price and caps.

    `size` and `image` are the provider's names. `warnings` are shown and kept with the operation.
    """

    node_id: ids.NodeId
    infra: str
    connection: connections.Connection
    region: str
    size: str
    image: str
    role: str = "general"
    zone: str | None = None
    network: str | None = None
    subnet: str | None = None
    disk_gigabytes: int | None = None
    public_ipv4: bool = True
    public_ipv6: bool = True
    first_boot: str | None = None  # an operator's snippet, which `first_boot.parse_snippet` took
    ssh: provider.Ssh | None = None
    purpose: str | None = None
    price: provider.Price | None = None
    caps: Sequence[consent.Caps] = ()
    warnings: Sequence[str] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks, when, and where: the same for every request here."""

    by: str
    now: datetime.datetime
    environment: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was stored: the operation that carries it out, and its machine as it stands now.

    `is_found`: it was stored before, by the same wish. `is_freed`: the node id was that of a
    machine that is deleted, and can be used anew.
    """

    operation: records.Operation
    machine: machines.Machine
    is_found: bool = False
    is_freed: bool = False


async def create_machine(
    tx: contract.Tx, *, order: Order, operators: configured.ConfiguredNodes, asked: Asked
) -> Made:
    """Stores the order, its cap and its price reserved; the same wish again finds the same order.

    Raises `NodeTaken`, `reserve.CapReached`, `breaker.TemplateStopped`, and
    `connections.NoSuchConnection` where it was forgotten at this moment.
    """
    await tx.lock(f"node:{order.node_id}")
    await connections.lock(tx, connection_id=order.connection.connection_id)
    await connections.get(tx, connection_id=order.connection.connection_id)
    template = breaker.template_of(
        connection_id=order.connection.connection_id,
        region=order.region,
        size=order.size,
        image=order.image,
        role=order.role,
    )
    operation_id = secrets.token_hex(8)
    machine = machines.Machine(
        machine_id=secrets.token_hex(8),
        node_id=order.node_id,
        infra=order.infra,
        connection_id=order.connection.connection_id,
        provider=order.connection.provider,
        operation_id=operation_id,
        region=order.region,
        size=order.size,
        image=order.image,
        role=order.role,
        wish=_wish_of(order),
        template=template,
        price=order.price,
        ordered_at=asked.now,
        ordered_by=asked.by,
    )
    same = await again.find_same(tx, wanted=machine)
    if same is not None:
        return Made(operation=same[0], machine=same[1], is_found=True)
    claim = await again.claim_id(
        tx, node_id=order.node_id, operators=operators, now=asked.now, wanted=machine
    )
    if claim.obstacle is not None:
        raise NodeTaken(claim.obstacle)
    await breaker.require_closed(tx, template=template)
    await reserve.reserve(
        tx,
        provider_name=order.connection.provider,
        connection_id=order.connection.connection_id,
        price=order.price,
        caps=order.caps,
    )
    await machines.insert(tx, machine=machine)
    operation = _operation(CREATE, machine=machine, operation_id=operation_id, asked=asked)
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=asked.environment, now=asked.now)
    return Made(operation=operation, machine=machine, is_freed=claim.is_freed)


async def delete_machine(
    tx: contract.Tx, *, machine_id: str, keep_machine: bool = False, asked: Asked
) -> Made:
    """Has the node drained and revoked, and the machine deleted until that is confirmed.

    While it is being created that is a cancel of the order; while it is being deleted the same
    operation again. Raises `machines.NoSuchMachine`, `WrongState`, `Busy`.
    """
    machine = await _get(tx, machine_id=machine_id)
    present = await records.find_open(tx, subject=machine.node_id)
    if present is not None and present.kind == DELETE:
        return Made(operation=present, machine=machine)
    if present is not None and present.operation_id == machine.operation_id:
        return await cancel(tx, operation_id=present.operation_id, asked=asked)
    if present is not None and present.kind != REBOOT:
        raise _busy(present, machine=machine)
    await machines.ask_delete(
        tx,
        machine_id=machine.machine_id,
        asked_by=asked.by,
        keep_machine=keep_machine,
        now=asked.now,
    )
    operation = _operation(
        DELETE, machine=machine, asked=asked, request={"keep_machine": keep_machine}
    )
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=asked.environment, now=asked.now)
    return Made(operation=operation, machine=await machines.get(tx, machine_id=machine.machine_id))


async def reboot_machine(tx: contract.Tx, *, machine_id: str, asked: Asked) -> Made:
    """Has the provider restart it. Raises `machines.NoSuchMachine`, `WrongState`, `Busy`."""
    machine = await _get(tx, machine_id=machine_id)
    present = await records.find_open(tx, subject=machine.node_id)
    if present is not None:
        raise _busy(present, machine=machine)
    if machine.provider_ref is None:
        raise WrongState(f"The machine of {machine.node_id} is not there, so nothing can reboot.")
    operation = _operation(REBOOT, machine=machine, asked=asked)
    await records.insert(tx, operation=operation)
    await holding.tell(tx, operation=operation, environment=asked.environment, now=asked.now)
    return Made(operation=operation, machine=machine)


async def retry(
    tx: contract.Tx,
    *,
    operation_id: str,
    caps: Sequence[consent.Caps] = (),
    asked: Asked,
) -> Made:
    """Tries a failed order again: another attempt, once what is left of the last is gone.

    A machine that counts no more is judged by the caps anew. Raises `NoSuchOperation`,
    `WrongState`, `NodeTaken`, `reserve.CapReached`, `breaker.TemplateStopped`, and
    `connections.NoSuchConnection` where that was forgotten.
    """
    operation, machine = await _of_order(tx, operation_id=operation_id)
    if operation.state is not states.State.FAILED:
        raise WrongState(
            f"The operation is {operation.state}; only one that has failed can be retried."
        )
    if machine.forgotten_at is not None:
        raise WrongState(
            f"The machine of {machine.node_id} was forgotten by {machine.forgotten_by}: order it "
            "anew."
        )
    await tx.lock(f"node:{machine.node_id}")
    await connections.lock(tx, connection_id=machine.connection_id)
    await connections.get(tx, connection_id=machine.connection_id)
    other = await records.find_open(tx, subject=machine.node_id)
    if other is not None:
        raise _busy(other, machine=machine)
    await breaker.require_closed(tx, template=machine.template)
    if machine.gone_at is not None:
        taken = await machines.find_live_of_node(tx, node_id=machine.node_id)
        if taken is not None:
            raise NodeTaken(f"The node id {machine.node_id} has another machine by now.")
        await reserve.reserve(
            tx,
            provider_name=machine.provider,
            connection_id=machine.connection_id,
            price=machine.price,
            caps=caps,
        )
        await machines.set_counting(tx, machine_id=machine.machine_id)
    await machines.unask_delete(tx, machine_id=machine.machine_id)
    changed = await holding.reopen(
        tx,
        operation=operation,
        detail=f"{asked.by} has it tried again.",
        environment=asked.environment,
        now=asked.now,
    )
    return Made(operation=changed, machine=await machines.get(tx, machine_id=machine.machine_id))


async def cancel(tx: contract.Tx, *, operation_id: str, asked: Asked) -> Made:
    """Ends an open order: what was made is taken away, then it is cancelled.

    Asking again changes nothing. Raises `NoSuchOperation`, `WrongState`.
    """
    operation, machine = await _of_order(tx, operation_id=operation_id)
    if not operation.is_open:
        raise WrongState(
            f"The operation has ended ({operation.state}). To delete its machine: "
            f"enlist cloud machines delete {machine.node_id}"
        )
    await machines.ask_delete(
        tx, machine_id=machine.machine_id, asked_by=asked.by, keep_machine=False, now=asked.now
    )
    await holding.wake(tx, operation_id=operation.operation_id, now=asked.now)
    return Made(operation=operation, machine=await machines.get(tx, machine_id=machine.machine_id))


async def resolve(
    tx: contract.Tx,
    *,
    operation_id: str,
    choice: Choice,
    provider_ref: str | None = None,
    asked: Asked,
) -> Made:
    """Settles an unresolved order by a person's word.

    `adopt` needs the provider's id of the machine and stores that wish alone: the reconciler asks
    the provider, and takes it only if it carries this order's tags. Raises `NoSuchOperation`,
    `WrongState`, `Busy`.
    """
    operation, machine = await _of_order(tx, operation_id=operation_id)
    if operation.state is not states.State.UNRESOLVED:
        raise WrongState(
            f"The operation is {operation.state}; only one that is unresolved can be resolved."
        )
    last = await attempts.find_last(tx, operation_id=operation_id)
    if last is None or last.state is not attempts.State.SENT:
        raise WrongState("The operation has no attempt in doubt.")
    if choice == "adopt":
        if not provider_ref:
            raise WrongState(
                "To adopt, say which machine: the provider's id of it (--ref), as its console "
                "shows it."
            )
        await attempts.wish_adopted(tx, attempt=last, ref=provider_ref)
        await holding.wake(tx, operation_id=operation_id, now=asked.now)
        return Made(operation=operation, machine=machine)
    held = await holding.claim(
        tx, operation_id=operation_id, holder=f"person:{secrets.token_hex(4)}", now=asked.now
    )
    if held is None:
        raise Busy("The operation is just being looked at; try again in a few seconds.")
    move = holding.Move(event=_EVENTS[choice], detail=f"{asked.by} chose {choice}.")
    await attempts.set_settled(tx, attempt=last, state=attempts.State.ABSENT, now=asked.now)
    await tickets.revoke(tx, enrollment_id=last.enrollment_id, now=asked.now)
    none_was_made = choice == "retry"  # then none has cost anything
    await costs.end(
        tx,
        subject_id=machine.machine_id,
        until=machine.ordered_at if none_was_made else asked.now,
    )
    if choice == "give-up":
        await machines.set_forgotten(tx, machine_id=machine.machine_id, by=asked.by, now=asked.now)
        await costs.end(tx, subject_id=machine.machine_id, until=asked.now)
        move = dataclasses.replace(
            move,
            failure=holding.Failure(
                reason=f"{asked.by} gave it up: nobody knows whether the provider made a machine.",
                kind=problems.Kind.NEEDS_OPERATOR,
            ),
        )
    changed = await holding.move(
        tx, held=held, move=move, environment=asked.environment, now=asked.now
    )
    if changed.is_open:
        await holding.release(tx, held=held)
    return Made(operation=changed, machine=await machines.get(tx, machine_id=machine.machine_id))


async def forget(tx: contract.Tx, *, machine_id: str, reason: str, asked: Asked) -> Made:
    """A person says that the machine is gone or none of ours; nobody asks the provider.

    Only for one whose deleting or cancelling is under way or whose order has failed. What still
    carries our tags is found by the sweeper later. Raises `machines.NoSuchMachine`, `WrongState`,
    `Busy`.
    """
    machine = await _get(tx, machine_id=machine_id)
    operation = await records.find_open(tx, subject=machine.node_id)
    if operation is None:
        operation = await records.find(tx, operation_id=machine.operation_id)
        if operation is None or operation.state is not states.State.FAILED:
            raise WrongState(
                f"The machine of {machine.node_id} is not being deleted. Ask for that first: "
                f"enlist cloud machines delete {machine.node_id}"
            )
    elif operation.state not in (states.State.DELETING, states.State.CANCELLING):
        raise _busy(operation, machine=machine)
    if operation.is_open:
        held = await holding.claim(
            tx,
            operation_id=operation.operation_id,
            holder=f"person:{secrets.token_hex(4)}",
            now=asked.now,
        )
        if held is None:
            raise Busy("The machine is just being asked for; try again in a few seconds.")
        failure = holding.Failure(
            reason=f"{asked.by} says that it is gone: {reason} The provider was not asked.",
            kind=problems.Kind.NEEDS_OPERATOR,
        )
        operation = await holding.move(
            tx,
            held=held,
            move=holding.Move(event=states.Event.FORGET, failure=failure),
            environment=asked.environment,
            now=asked.now,
        )
    await machines.set_forgotten(tx, machine_id=machine.machine_id, by=asked.by, now=asked.now)
    await children.let_go(tx, machine_id=machine.machine_id)
    await costs.end(tx, subject_id=machine.machine_id, until=asked.now)
    return Made(operation=operation, machine=await machines.get(tx, machine_id=machine.machine_id))


async def resume_template(
    tx: contract.Tx, *, template: str, infra: str, now: datetime.datetime
) -> bool:
    """Machines of the template may be ordered again; says whether they could not."""
    return await breaker.close(tx, template=template, infra=infra, now=now)


_EVENTS: Final[Mapping[str, states.Event]] = {
    "retry": states.Event.RETRY,
    "give-up": states.Event.GIVE_UP,
}


async def _get(tx: contract.Tx, *, machine_id: str) -> machines.Machine:
    found = await machines.get(tx, machine_id=machine_id)
    await tx.lock(f"node:{found.node_id}")
    machine = await machines.get(tx, machine_id=found.machine_id)
    if machine.gone_at is not None:
        raise WrongState(f"The machine of {machine.node_id} is gone.")
    if machine.forgotten_at is not None:
        raise WrongState(
            f"The machine of {machine.node_id} was forgotten by {machine.forgotten_by} at "
            f"{times.to_rfc3339(machine.forgotten_at)}."
        )
    return machine


async def _of_order(
    tx: contract.Tx, *, operation_id: str
) -> tuple[records.Operation, machines.Machine]:
    operation = await records.find(tx, operation_id=operation_id)
    machine = await machines.find_of_operation(tx, operation_id=operation_id)
    if operation is None or machine is None:
        raise NoSuchOperation(
            f"There is no operation {operation_id} that orders a machine. See: enlist operations "
            "list"
        )
    return operation, machine


def _busy(operation: records.Operation, *, machine: machines.Machine) -> Busy:
    return Busy(
        f"The operation {operation.operation_id} ({operation.kind}) of {machine.node_id} is open. "
        f"Follow it: enlist operations watch {operation.operation_id}"
    )


def _wish_of(order: Order) -> Mapping[str, Any]:
    ssh = order.ssh
    return {
        "zone": order.zone,
        "network": order.network,
        "subnet": order.subnet,
        "disk_gigabytes": order.disk_gigabytes,
        "first_boot": order.first_boot,
        "without": [
            name
            for name, wished in (("ipv4", order.public_ipv4), ("ipv6", order.public_ipv6))
            if not wished
        ],
        "ssh": None
        if ssh is None
        else {
            "public_key": ssh.public_key,
            "sources": list(ssh.sources),
            "until": None if ssh.until is None else times.to_rfc3339(ssh.until),
        },
        "purpose": order.purpose,
        "warnings": list(order.warnings),
        "labels": dict(order.labels),
    }


def _operation(
    kind: str,
    *,
    machine: machines.Machine,
    asked: Asked,
    operation_id: str | None = None,
    request: Mapping[str, Any] | None = None,
) -> records.Operation:
    return records.Operation(
        operation_id=operation_id or secrets.token_hex(8),
        kind=kind,
        infra=machine.infra,
        subject=machine.node_id,
        parent_id=None,
        state=states.State.REQUESTED,
        request={
            "machine_id": machine.machine_id,
            "provider": machine.provider,
            "connection_id": machine.connection_id,
            "region": machine.region,
            "size": machine.size,
            **(request or {}),
        },
        created_at=asked.now,
        created_by=asked.by,
        updated_at=asked.now,
        next_at=asked.now,
    )
