"""A person says whose machine an orphan is: from then on it is one of ours like any other.

It counts and is billed from when its provider says that it was made, is looked at with the others,
and can be rebooted and deleted. That it carries our installation's id the sweeper has seen, and
whatever deletes it asks again, by the operation that its tags name. Here it gets an operation of
its own, which has ended: the one that made it may have another machine. Its node is not touched:
it may be enrolled, or never have been.

Known limit: size and image of an adopted machine are what the sweeper could see of them.
"""

import datetime
import secrets
from typing import Final

from platform_server.audit import actions, events
from platform_server.cloud import attempts, connections, costs, machines, orphans, requests
from platform_server.operations import records, states
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import naming
from runtime_kit import clock as clock_kit
from wire_protocol import ids

ADOPT: Final = "adopt-machine"
"""The kind of the operation that an adopted machine gets; it is written as one that is over."""


async def adopt(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    provider_ref: str,
    node_id: ids.NodeId,
    installation: str,
    asked: requests.Asked,
) -> machines.Machine:
    """Makes the orphan the machine of that node; `installation` is this one's id.

    Raises `orphans.NoSuchOrphan`, `requests.NodeTaken` and `requests.Busy`.
    """
    await tx.lock(f"node:{node_id}")
    await connections.lock(tx, connection_id=connection.connection_id)
    orphan = await orphans.find(
        tx,
        connection_id=connection.connection_id,
        kind=orphans.MACHINE,
        provider_ref=provider_ref,
    )
    if orphan is None:
        raise orphans.NoSuchOrphan(
            f"There is no orphan machine {provider_ref} at {connection.name}. See: enlist cloud "
            "orphans list"
        )
    if orphan.delete_asked_at is not None:
        raise requests.Busy(f"The machine {provider_ref} is being deleted already.")
    present = await machines.find_live_of_node(tx, node_id=node_id)
    if present is not None:
        raise requests.NodeTaken(
            f"The node {node_id} has another machine, at {present.provider}. Choose another id."
        )
    made_at = orphan.made_at or orphan.first_seen_at
    machine = machines.Machine(
        machine_id=secrets.token_hex(8),
        node_id=node_id,
        infra=orphan.infra,
        connection_id=connection.connection_id,
        provider=connection.provider,
        operation_id=secrets.token_hex(8),
        region=orphan.region,
        size="",
        image="",
        role="general",
        wish={"adopted_by": asked.by},
        template="adopted",
        price=orphan.price,
        ordered_at=made_at,
        ordered_by=asked.by,
    )
    await machines.insert(tx, machine=machine)
    await _write_operation(tx, machine=machine, orphan=orphan, asked=asked)
    await _write_attempt(
        tx, machine=machine, orphan=orphan, installation=installation, made_at=made_at, asked=asked
    )
    await machines.set_present(
        tx, machine_id=machine.machine_id, ref=provider_ref, name=orphan.name, now=asked.now
    )
    await machines.set_active(tx, machine_id=machine.machine_id, now=asked.now)
    await orphans.set_gone(
        tx, connection_id=connection.connection_id, key=orphan.key, now=asked.now
    )
    if orphan.price is not None:
        charge = costs.Charge(
            subject_id=machine.machine_id,
            connection_id=connection.connection_id,
            infra=orphan.infra,
            what="machine",
            price=orphan.price,
        )
        await costs.begin(tx, charge=charge, since=made_at)
    await _tell(tx, machine=machine, orphan=orphan, asked=asked, made_at=made_at)
    return await machines.get(tx, machine_id=machine.machine_id)


async def _write_operation(
    tx: contract.Tx, *, machine: machines.Machine, orphan: orphans.Orphan, asked: requests.Asked
) -> None:
    """An operation that is over, so that whoever looks for the machine's finds how it came."""
    operation = records.Operation(
        operation_id=machine.operation_id,
        kind=ADOPT,
        infra=machine.infra,
        subject=machine.node_id,
        parent_id=None,
        state=states.State.DONE,
        request={
            "machine_id": machine.machine_id,
            "provider": machine.provider,
            "connection_id": machine.connection_id,
            "region": machine.region,
            "provider_ref": orphan.provider_ref,
            "made_by": orphan.operation_id,
        },
        created_at=asked.now,
        created_by=asked.by,
        updated_at=asked.now,
        next_at=None,
    )
    await records.insert(tx, operation=operation)
    await tx.execute(
        "UPDATE operations SET ended_at = ? WHERE operation_id = ?",
        clock_kit.to_micros(asked.now),
        operation.operation_id,
    )


async def _write_attempt(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    orphan: orphans.Orphan,
    installation: str,
    made_at: datetime.datetime,
    asked: requests.Asked,
) -> None:
    """By this it is deleted, until its provider says that it is gone."""
    owner = provider.Owner(
        installation=installation,
        infra=orphan.infra,
        operation=orphan.operation_id,
        node=machine.node_id,
        attempt=1,  # the list of orphans keeps no number, and whose it is goes by the operation
    )
    request = provider.Request(
        owner=owner,
        name=orphan.name,
        client_token=naming.client_token(owner, zone=orphan.region),
        region=orphan.region,
        size="",
        image="",
        first_boot="",
    )
    await attempts.write_adopted(
        tx,
        request=request,
        operation_id=machine.operation_id,
        machine_id=machine.machine_id,
        ref=orphan.provider_ref,
        made_at=made_at,
        now=asked.now,
    )


async def _tell(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    orphan: orphans.Orphan,
    asked: requests.Asked,
    made_at: datetime.datetime,
) -> None:
    details = {
        "machine_id": machine.machine_id,
        "connection_id": machine.connection_id,
        "provider_ref": orphan.provider_ref,
        "operation_id": machine.operation_id,
        "made_by": orphan.operation_id,
        "billed_since": clock_kit.to_micros(made_at),
    }
    await events.append(
        tx,
        at=asked.now,
        kind="cloud-machine.adopted",
        subject=machine.node_id,
        infra=machine.infra,
        data=details,
    )
    await actions.append(
        tx,
        action=actions.Action(
            at=asked.now,
            actor=asked.by,
            action="cloud.orphans.adopt",
            target=machine.node_id,
            environment=asked.environment,
            infra=machine.infra,
            operation=machine.operation_id,
            details=details,
        ),
    )
