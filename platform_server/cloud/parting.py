"""The end of what hung on a machine: each is looked at, judged by whose it is, deleted, confirmed.

What a provider showed on a machine may have been lent to it: a disk that a person gave it and took
back. So only what carries this order's ids is deleted, or, where it carries nothing, what the
create call itself has named, or what hangs on this very machine. Everything else is let go, with an
event.

Known limit: what carries nothing and was seen alone is waited for, since it may be on its way out
with its machine; after that it is a person's.
"""

import datetime
from collections.abc import Collection, Sequence
from typing import Final

from platform_server.audit import events
from platform_server.cloud import attempts, children, machines, means
from platform_server.operations import holding
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import crash_points

PART_LEFT: Final = "cloud-machine.part-left"
ON_ITS_WAY: Final = datetime.timedelta(minutes=2)
"""So long after its machine a part without tags may still be going with it."""

CHILD_ANSWERED = crash_points.declare(
    "cloud.child-answered", story="the provider deletes what hung on a machine, nothing is stored"
)


def is_parted_from(
    found: provider.Child,
    *,
    owners: Collection[tuple[str, str]],
    machine_refs: Collection[str],
    is_answered: bool,
) -> bool:
    """Whether it is not this machine's, by what its provider says of it now.

    `owners` are installation and operation of the machine's attempts, `machine_refs` its own ids
    there; `is_answered`: the create call itself has named it.
    """
    if found.owner is not None:
        return (found.owner.installation, found.owner.operation) not in owners
    return not is_answered and found.attached_to not in machine_refs


async def delete_all(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    tried: Sequence[attempts.Attempt],
    hanging: Sequence[children.Hanging],
    driver: provider.Driver,
) -> None:
    """Asks for each. One that is in use yet keeps nobody from asking for what uses it."""
    in_use: outcomes.Fault | None = None
    for one in hanging:
        try:
            await _delete(m, held=held, machine=machine, tried=tried, hanging=one, driver=driver)
        except outcomes.Fault as fault:
            if fault.topic is not outcomes.Topic.STATE:
                raise
            in_use = fault
    if in_use is not None:
        raise in_use


async def _delete(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    tried: Sequence[attempts.Attempt],
    hanging: children.Hanging,
    driver: provider.Driver,
) -> None:
    found, now = await driver.describe_child(hanging.child), m.clock.now()
    if found is None:

        async def gone(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await children.set_gone(tx, child_id=hanging.child_id, now=now)

        await m.store.transact(gone)
        return
    if is_parted_from(
        found,
        owners={(m.installation, one.request.owner.operation) for one in tried},
        machine_refs={one.provider_ref for one in tried if one.provider_ref is not None},
        is_answered=hanging.is_answered,
    ):
        ended = max((one.settled_at or now for one in tried), default=machine.ordered_at)
        if found.owner is not None or now - ended >= ON_ITS_WAY:
            await _let_go(m, held=held, machine=machine, hanging=hanging, found=found)
        return

    async def ask(tx: contract.Tx) -> None:
        await holding.require(tx, held=held)
        await children.set_delete_asked(tx, child_id=hanging.child_id, now=now)

    await m.store.transact(ask)
    await driver.delete_child(hanging.child)
    crash_points.reach(CHILD_ANSWERED)


async def _let_go(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    hanging: children.Hanging,
    found: provider.Child,
) -> None:
    owner, now = found.owner, m.clock.now()

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=held)
        await children.let_go_one(tx, child_id=hanging.child_id, now=now)
        await events.append(
            tx,
            at=now,
            kind=PART_LEFT,
            subject=machine.node_id,
            infra=machine.infra,
            data={
                "machine_id": machine.machine_id,
                "connection_id": machine.connection_id,
                "kind": hanging.child.kind.value,
                "provider_ref": hanging.child.ref,
                "installation": None if owner is None else owner.installation,
                "operation_id": None if owner is None else owner.operation,
                "attached_to": found.attached_to,
            },
        )

    await m.store.transact(work)
