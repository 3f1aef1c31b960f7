"""Taking a machine away: drain, revoke, delete at the provider, and all of it confirmed gone.

One step at a time, each of which may be cut off and is found again: deleting asks for what is
recorded, by its id, never for what a list happens to show. An attempt in doubt is looked up first,
until it is settled: what appears late is deleted as well. Gone is what the provider says is gone,
the machine and every child; an answer that it does not know the machine is that, not a failure.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.audit import events
from platform_server.cloud import (
    attempts,
    children,
    costs,
    doubles,
    lookup,
    machines,
    means,
    parting,
    tickets,
)
from platform_server.dispatch import giving
from platform_server.nodes import records as node_records
from platform_server.nodes import registry, scheduling
from platform_server.nodes import states as node_states
from platform_server.operations import holding, kinds
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import crash_points
from wire_protocol import ids

SCHEDULING_CHANGED: Final = "node.scheduling-changed"
AGAIN: Final = datetime.timedelta(minutes=2)
"""After that long without an end the provider is asked to delete it once more."""

NEVER_SEEN: Final = datetime.timedelta(minutes=5)
"""What was accepted and never shown may be shown late: so long it is not called gone."""

REVOKED = crash_points.declare(
    "cloud.revoked", story="a machine's node is removed, the machine is not deleted yet"
)
DELETE_SENT = crash_points.declare(
    "cloud.delete-sent", story="it is stored that a machine is to be deleted, nobody was asked"
)
DELETE_ANSWERED = crash_points.declare(
    "cloud.delete-answered", story="the provider deletes a machine, nothing of that is stored"
)
SETTLED = crash_points.declare(
    "cloud.settled", story="it is stored that the provider has a machine no more"
)


async def revoke_node(m: means.Means, *, held: holding.Held, machine: machines.Machine) -> None:
    """Drains and removes the node that this machine became, if it is one; may be repeated."""
    now = m.clock.now()
    node_id = ids.NodeId(machine.node_id)

    async def work(tx: contract.Tx) -> bool:
        await tx.lock(f"node:{node_id}")
        await holding.require(tx, held=held)
        for attempt in await attempts.list_of(tx, machine_id=machine.machine_id):
            await tickets.revoke(tx, enrollment_id=attempt.enrollment_id, now=now)
        node = await node_records.find(tx, node_id=node_id)
        if node is None or node.state is node_states.State.REMOVED:
            return False
        if machine.active_at is None and not await _is_of(tx, node=node, machine=machine):
            return False
        drained = await scheduling.order(
            tx, node_id=node_id, event=scheduling.Event.DRAIN, operators=m.minting.operators
        )
        await registry.remove(tx, node_id=node_id, operators=m.minting.operators, now=now)
        await giving.cancel_all(tx, node_id=node_id, environment=m.environment, now=now)
        reason = f"operation {held.operation.operation_id} ({held.operation.kind})"
        for step in drained.steps:
            await events.append(
                tx,
                at=now,
                kind=SCHEDULING_CHANGED,
                subject=node_id,
                infra=node.infra,
                data={"from": step.before.value, "to": step.after.value, "reason": reason},
            )
        await events.append(tx, at=now, kind="node.removed", subject=node_id, infra=node.infra)
        await means.record(
            tx,
            held=held,
            action="nodes.remove",
            target=node_id,
            details={"pin": node.pin, "state": node.state.value, "reason": reason},
            environment=m.environment,
            now=now,
        )
        return True

    if await m.store.transact(work):
        m.node_changed(node_id)
        crash_points.reach(REVOKED)


async def remove(m: means.Means, *, held: holding.Held, machine: machines.Machine) -> bool:
    """One step of taking the machine away at its provider; says whether nothing is left.

    Raises `kinds.TryLater`.
    """
    found = await m.store.read(lambda tx: attempts.list_of(tx, machine_id=machine.machine_id))
    for attempt in found:
        if attempt.state is attempts.State.WRITTEN:
            await _settle(m, held=held, attempt=attempt, state=attempts.State.ABSENT)
            return False
    hanging = await m.store.read(
        lambda tx: children.list_hanging(tx, machine_id=machine.machine_id)
    )
    unsettled = [one for one in found if one.state not in attempts.SETTLED]
    if not found and machine.provider_ref is not None:
        raise kinds.TryLater(
            f"No attempt is recorded that made {machine.provider_ref}, so {machine.provider} is "
            f"not asked to delete it, and it is not called gone. If it is gone: enlist cloud "
            f"machines forget {machine.node_id}",
            patient=True,
            seconds=60.0,
        )
    if not unsettled and not hanging:
        return True
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="delete machine",
            actor=machine.delete_asked_by or held.operation.created_by,
            operation_id=held.operation.operation_id,
            changes=True,
        ) as driver:
            for attempt in unsettled:
                if attempt.state is attempts.State.SENT:
                    await look_up(m, held=held, machine=machine, attempt=attempt, driver=driver)
                else:
                    await _delete(m, held=held, machine=machine, attempt=attempt, driver=driver)
            if not unsettled:
                if found:
                    await _note_pass(m, held=held, attempt=found[-1])
                await parting.delete_all(
                    m, held=held, machine=machine, tried=found, hanging=hanging, driver=driver
                )
    except outcomes.Fault as fault:
        raise means.later(fault) from fault
    return False


async def look_up(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    driver: provider.Driver,
) -> lookup.Found | lookup.Absent | lookup.Unsettled:
    """One look-up of an attempt in doubt, written down; raises `outcomes.Fault`."""
    verdict = await sight(m, attempt=attempt, driver=driver)
    await m.store.transact(
        lambda tx: _write_look(
            tx, m=m, held=held, machine=machine, attempt=attempt, verdict=verdict
        )
    )
    return verdict


async def sight(
    m: means.Means, *, attempt: attempts.Attempt, driver: provider.Driver
) -> lookup.Found | lookup.Absent | lookup.Unsettled:
    """What one look-up says of an attempt; nothing is written. Raises `outcomes.Fault`."""
    request = attempt.request
    doubted = dataclasses.replace(attempt, doubted_at=attempt.doubted_at or m.clock.now())
    seen = await driver.find(request.owner, name=request.name, region=request.region)
    return lookup.judge(seen, attempt=doubted, rules=driver.lookup, now=m.clock.now())


async def _write_look(
    tx: contract.Tx,
    *,
    m: means.Means,
    held: holding.Held,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    verdict: lookup.Found | lookup.Absent | lookup.Unsettled,
) -> None:
    now = m.clock.now()
    await holding.require(tx, held=held)
    if isinstance(verdict, lookup.Unsettled):
        await attempts.note_doubt(tx, attempt=attempt, now=now)
        await attempts.note_look(tx, attempt=attempt, clean_answers=verdict.clean_answers, now=now)
    elif isinstance(verdict, lookup.Absent):
        await settle_rows(tx, machine=machine, attempt=attempt, now=now)
    else:
        await present_rows(
            tx,
            machine=machine,
            attempt=attempt,
            created=provider.Created(
                ref=verdict.instance.ref,
                children=verdict.instance.children,
                instance=verdict.instance,
            ),
            now=now,
        )
        await doubles.take_away(tx, m=m, machine=machine, others=verdict.others)


async def present_rows(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    created: provider.Created,
    answered: Sequence[provider.Child] = (),
    now: datetime.datetime,
) -> None:
    """The provider has it: its id, its children and what was seen of it.

    `answered` are those that the create call itself has named: made for this order, tags or none.
    """
    await attempts.set_present(
        tx, attempt=attempt, ref=created.ref, progress=created.progress, now=now
    )
    await machines.set_present(
        tx,
        machine_id=machine.machine_id,
        ref=created.ref,
        name=attempt.request.name,
        now=now,
    )
    await children.record(tx, machine=machine, found=answered, sent_at=now, now=now)
    await children.record(tx, machine=machine, found=created.children, now=now)
    if created.instance is not None:
        await machines.see(tx, machine_id=machine.machine_id, instance=created.instance, now=now)
        await children.record(tx, machine=machine, found=created.instance.children, now=now)


async def settle_rows(
    tx: contract.Tx,
    *,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    now: datetime.datetime,
) -> None:
    """It is proved that the attempt made nothing: it has cost nothing, its token opens nothing."""
    await attempts.set_settled(tx, attempt=attempt, state=attempts.State.ABSENT, now=now)
    await machines.set_absent(tx, machine_id=machine.machine_id)
    await costs.end(tx, subject_id=machine.machine_id, until=machine.ordered_at)
    await tickets.revoke(tx, enrollment_id=attempt.enrollment_id, now=now)


async def close_rows(tx: contract.Tx, *, machine: machines.Machine, now: datetime.datetime) -> None:
    """Nothing is left of the machine: it counts no more, and costs no more."""
    await machines.set_gone(tx, machine_id=machine.machine_id, now=now)
    await children.let_go(tx, machine_id=machine.machine_id)
    await costs.end(tx, subject_id=machine.machine_id, until=now)


def is_ours(m: means.Means, *, instance: provider.Instance, attempt: attempts.Attempt) -> bool:
    """Whether what the provider shows carries this installation's id and this operation's."""
    owner = instance.owner
    wanted = (m.installation, attempt.request.owner.operation)
    return owner is not None and (owner.installation, owner.operation) == wanted


async def _delete(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    driver: provider.Driver,
) -> None:
    """Looks; deletes it where it is there, settles it where the provider knows it no more."""
    ref = attempt.provider_ref or ""
    found = await driver.describe(ref, region=attempt.request.region)
    now = m.clock.now()
    if found is None:
        is_gone = await _missed(m, held=held, machine=machine, attempt=attempt, rules=driver.lookup)
        if not is_gone and machine.seen_at is None:
            await driver.delete(ref, region=attempt.request.region)
        return
    if not is_ours(m, instance=found, attempt=attempt):
        raise kinds.TryLater(
            f"What {machine.provider} shows as {ref} does not carry this order's tags, so it is "
            "not deleted. If it is not this machine: enlist cloud machines forget "
            f"{machine.node_id}",
            patient=True,
            seconds=30.0,
        )

    async def note(tx: contract.Tx) -> bool:
        await holding.require(tx, held=held)
        await children.record(tx, machine=machine, found=found.children, now=now)
        await machines.see(tx, machine_id=machine.machine_id, instance=found, now=now)
        await attempts.note_look(tx, attempt=attempt, clean_answers=0, now=now)
        sent = machine.delete_sent_at
        if sent is not None and now - sent < AGAIN:
            return False
        if sent is not None and found.power is provider.Power.DELETING:
            return False
        await machines.set_delete_sent(tx, machine_id=machine.machine_id, now=now)
        return True

    if not await m.store.transact(note):
        return
    crash_points.reach(DELETE_SENT)
    await driver.delete(ref, region=attempt.request.region)
    crash_points.reach(DELETE_ANSWERED)


async def _missed(
    m: means.Means,
    *,
    held: holding.Held,
    machine: machines.Machine,
    attempt: attempts.Attempt,
    rules: provider.LookupRules,
) -> bool:
    """Two looks in a row did not find it: gone. One that was never seen may only be late."""
    now = m.clock.now()
    patience = NEVER_SEEN if machine.seen_at is None and rules.settle else datetime.timedelta()
    misses = attempt.clean_answers + 1
    if misses >= 2 and now - (attempt.settled_at or now) >= patience:
        await _settle(m, held=held, attempt=attempt, state=attempts.State.GONE)
        return True

    async def once(tx: contract.Tx) -> None:
        await holding.require(tx, held=held)
        await attempts.note_look(tx, attempt=attempt, clean_answers=misses, now=now)

    await m.store.transact(once)
    return False


async def _settle(
    m: means.Means, *, held: holding.Held, attempt: attempts.Attempt, state: attempts.State
) -> None:
    now = m.clock.now()

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=held)
        await attempts.set_settled(tx, attempt=attempt, state=state, now=now)
        await tickets.revoke(tx, enrollment_id=attempt.enrollment_id, now=now)
        await costs.end(tx, subject_id=attempt.machine_id, until=now)

    await m.store.transact(work)
    crash_points.reach(SETTLED)


async def _note_pass(m: means.Means, *, held: holding.Held, attempt: attempts.Attempt) -> None:
    """When the children were looked at last: by that the next look is paced."""
    now = m.clock.now()

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=held)
        await attempts.note_look(tx, attempt=attempt, clean_answers=0, now=now)

    await m.store.transact(work)


async def _is_of(tx: contract.Tx, *, node: node_records.Node, machine: machines.Machine) -> bool:
    """Whether the node enrolled with a ticket of this machine's."""
    attempt = await attempts.find_by_enrollment(tx, enrollment_id=node.enrollment_id)
    return attempt is not None and attempt.machine_id == machine.machine_id
