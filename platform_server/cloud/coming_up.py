"""A machine that its provider has: polled, seen, told of by first boot, and at last a node."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import (
    attempts,
    breaker,
    children,
    costs,
    create_plan,
    doubting,
    giving_up,
    machines,
    means,
    parting,
    steps,
)
from platform_server.operations import holding, kinds, states
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import crash_points

ADMITTED = crash_points.declare(
    "cloud.admitted", story="it is stored that a machine's node is enrolled and which role it has"
)
ACTIVE = crash_points.declare("cloud.active", story="a machine is stored as a ready node")

_D = create_plan.Do
_E = states.Event
_FAILED: Final = (
    outcomes.Outcome.NOT_DONE_PERMANENT,
    outcomes.Outcome.NOT_DONE_RETRYABLE,
)
_ABOUT_ASKING: Final = frozenset(
    {
        outcomes.Topic.RATE,
        outcomes.Topic.NETWORK,
        outcomes.Topic.RIGHTS,
        outcomes.Topic.AUTH,
        outcomes.Topic.CLOCK,
    }
)
"""What such a refusal is about is the question, never the order."""
_EVENTS: Final = {
    _D.REPORT: _E.REPORT,
    _D.JOIN: _E.JOIN,
    _D.ADMIT: _E.ADMIT,
    _D.SUCCEED: _E.SUCCEED,
}


async def poll(step: steps.Step) -> None:
    """Asks how the accepted order is doing; a question that fails is no end of it."""
    m, machine, last = step.m, step.machine, step.last
    created = provider.Created(ref=last.provider_ref or "", progress=last.progress)
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="poll order",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=True,
        ) as driver:
            progress = await driver.poll(created)
    except outcomes.Fault as fault:
        if fault.outcome in _FAILED and fault.topic not in _ABOUT_ASKING:
            await _refused_late(step, fault=fault)
            return
        raise means.later(fault) from fault
    now, is_done = m.clock.now(), progress is provider.Progress.DONE

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        await attempts.note_progress(tx, attempt=last, is_done=is_done, now=now)

    await m.store.transact(work)


async def _refused_late(step: steps.Step, *, fault: outcomes.Fault) -> None:
    """The provider had accepted and could not: what it left is kept, or it is gone already."""
    m, machine, last, now = step.m, step.machine, step.last, step.m.clock.now()

    async def note(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        await attempts.note(tx, attempt=last, fault=fault)

    await m.store.transact(note)
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="look up",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=True,
        ) as driver:
            found = await driver.describe(last.provider_ref or "", region=machine.region)
            if found is None:
                await _part(step, driver=driver)
    except outcomes.Fault as other:
        raise means.later(other) from other
    if found is None:

        async def gone(tx: contract.Tx) -> None:
            await holding.require(tx, held=step.held)
            fresh = await attempts.find_last(tx, operation_id=last.operation_id)
            if fresh is not None and fresh.state is attempts.State.PRESENT:
                await attempts.set_settled(tx, attempt=fresh, state=attempts.State.GONE, now=now)
            await costs.end(tx, subject_id=machine.machine_id, until=now)

        await m.store.transact(gone)
    kind = doubting.kind_of(dataclasses.replace(last, topic=fault.topic.value))
    await giving_up.fail(step, failure=holding.Failure(reason=attempts.said(fault), kind=kind))


async def _part(step: steps.Step, *, driver: provider.Driver) -> None:
    """Of a machine that is gone, what was made for it goes as well, confirmed by a second look."""
    m, machine = step.m, step.machine
    tried = await m.store.read(lambda tx: attempts.list_of(tx, machine_id=machine.machine_id))
    for _ in range(2):
        hanging = await _hanging(step)
        await parting.delete_all(
            m, held=step.held, machine=machine, tried=tried, hanging=hanging, driver=driver
        )
    if await _hanging(step):
        raise kinds.TryLater(
            f"What was made for the machine is not gone yet at {machine.provider}.", patient=True
        )


async def _hanging(step: steps.Step) -> Sequence[children.Hanging]:
    machine_id = step.machine.machine_id
    return await step.m.store.read(lambda tx: children.list_hanging(tx, machine_id=machine_id))


async def see(step: steps.Step) -> None:
    """Asks how the machine is; others that are on their way are seen with it."""
    try:
        await step.m.viewer.refresh_pending(
            step.machine,
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
        )
    except outcomes.Fault as fault:
        raise means.later(fault) from fault


async def come_up(step: steps.Step, *, todo: create_plan.Do) -> None:
    """What first boot, the node and the provider have told moves the order on."""
    machine, now = step.machine, step.m.clock.now()
    since = machine.running_at
    move = holding.Move(
        event=_EVENTS[todo],
        deadline_at=None if since is None else since + step.m.limits.enrollment,
    )

    async def work(tx: contract.Tx) -> None:
        if todo is _D.ADMIT:
            await tx.lock(f"node:{machine.node_id}")
        await holding.require(tx, held=step.held)
        if todo is _D.ADMIT:
            await tx.execute(
                "UPDATE nodes SET roles = ? WHERE node_id = ? AND state <> 'removed'",
                json.dumps([machine.role]),
                machine.node_id,
            )
        if todo is _D.SUCCEED:
            await machines.set_active(tx, machine_id=machine.machine_id, now=now)
            await attempts.wipe(tx, attempt=step.last)
            await breaker.close(tx, template=machine.template, infra=machine.infra, now=now)
        await step.moved(tx, move)

    await step.m.store.transact(work)
    if todo is _D.ADMIT:
        crash_points.reach(ADMITTED)
    if todo is _D.SUCCEED:
        crash_points.reach(ACTIVE)
