"""A person says whose machine an orphan is: from then on it is one of ours like any other.

It counts and is billed from when its provider says that it was made, is looked at with the others,
and can be rebooted and deleted. That it carries our installation's id the sweeper has seen, and
whatever deletes it asks again. Its node is not touched: it may be enrolled, or never have been.

Known limit: size and image of an adopted machine are what the sweeper could see of them.
"""

import datetime
import secrets

from platform_server.audit import actions, events
from platform_server.cloud import connections, costs, machines, orphans, requests
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import ids


async def adopt(
    tx: contract.Tx,
    *,
    connection: connections.Connection,
    provider_ref: str,
    node_id: ids.NodeId,
    asked: requests.Asked,
) -> machines.Machine:
    """Makes the orphan the machine of that node.

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
        operation_id=orphan.operation_id,
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
        "operation_id": orphan.operation_id,
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
            operation=orphan.operation_id,
            details=details,
        ),
    )
