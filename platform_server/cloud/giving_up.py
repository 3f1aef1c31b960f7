"""Orders that come to nothing: tried again, failed and kept, or cancelled and taken away."""

import dataclasses

from platform_server.cloud import (
    admission,
    attempts,
    breaker,
    create_plan,
    last_words,
    removal,
    staying,
    steps,
    tickets,
)
from platform_server.operations import holding, states
from platform_server.store import contract
from provisioning import outcomes
from runtime_kit import crash_points
from wire_protocol import problems

FAILED = crash_points.declare("cloud.failed", story="it is stored that an order has failed")
CANCELLING = crash_points.declare(
    "cloud.cancelling", story="it is stored that an order is to be taken back"
)

_D = create_plan.Do
_S = states.State
_E = states.Event


async def came_to_nothing(step: steps.Step, *, todo: create_plan.Do) -> None:
    """A deadline has passed or the machine died: another attempt, or the end."""
    m, machine, last, now = step.m, step.machine, step.last, step.m.clock.now()
    phases = await m.store.read(
        lambda tx: admission.list_phases(
            tx, operation_id=step.held.operation.operation_id, since=last.sent_at
        )
    )
    told = f" First boot told last: {phases[-1]['phase']} {phases[-1]['detail']}" if phases else ""
    told += await last_words.of_console(step.held, machine=machine, means_of=m)
    reason = f"{_why(step, todo=todo)}{told.rstrip('.')}."
    was_there = last.state is attempts.State.PRESENT
    is_again = was_there and last.attempt < m.limits.attempts

    async def work(tx: contract.Tx) -> bool:
        await holding.require(tx, held=step.held)
        stopped = False
        if was_there:
            await breaker.failed(
                tx,
                template=machine.template,
                reason=reason,
                most=m.limits.breaker_failures,
                infra=machine.infra,
                now=now,
            )
            found = await breaker.find(tx, template=machine.template)
            stopped = found is not None and found.opened_at is not None
        if not is_again or stopped:
            return False
        await tickets.revoke(tx, enrollment_id=last.enrollment_id, now=now)
        await step.moved(tx, holding.Move(event=_E.RETRY, detail=f"{reason} It is tried again."))
        return True

    if not await m.store.transact(work):
        kind = problems.Kind.TRANSIENT
        await fail(step, failure=holding.Failure(reason=reason, kind=kind))


async def fail(step: steps.Step, *, failure: holding.Failure) -> None:
    """The end. What is there is kept and counts; of what is nowhere, the place is free."""
    machine, now = step.machine, step.m.clock.now()
    instead = await _instead_of(step)

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        is_there = False
        for attempt in await attempts.list_of(tx, machine_id=machine.machine_id):
            if attempt.state is attempts.State.WRITTEN:
                await attempts.set_settled(
                    tx, attempt=attempt, state=attempts.State.ABSENT, now=now
                )
            elif attempt.state not in attempts.SETTLED:
                is_there = True
            await tickets.revoke(tx, enrollment_id=attempt.enrollment_id, now=now)
        reason = f"{failure.reason} {instead}".rstrip()
        if is_there:
            reason = (
                f"{reason} {staying.kept(machine.provider)}: enlist operations retry "
                f"{step.held.operation.operation_id}, or enlist cloud machines delete "
                f"{machine.node_id}"
            )
        else:
            await removal.close_rows(tx, machine=machine, now=now)
        move = holding.Move(event=_E.FAIL, failure=dataclasses.replace(failure, reason=reason))
        await step.moved(tx, move)

    await step.m.store.transact(work)
    crash_points.reach(FAILED)


async def _instead_of(step: steps.Step) -> str:
    """What else could be had, where it was sold out: a person chooses, nothing is switched."""
    last = await step.m.store.read(
        lambda tx: attempts.find_last(tx, operation_id=step.held.operation.operation_id)
    )
    if last is None or last.topic != outcomes.Topic.CAPACITY.value:
        return ""
    return await step.m.instead_of(step.machine)


async def cancel(step: steps.Step) -> None:
    """Somebody wants it gone: from now on it is taken away."""
    machine, now = step.machine, step.m.clock.now()
    by = machine.delete_asked_by or "somebody"

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        if step.held.operation.state is _S.REQUESTED:
            await removal.close_rows(tx, machine=machine, now=now)
        await step.moved(tx, holding.Move(event=_E.CANCEL, detail=f"{by} cancels it."))

    await step.m.store.transact(work)
    crash_points.reach(CANCELLING)


async def remove(step: steps.Step, *, todo: create_plan.Do) -> None:
    """Takes away what was made: at the end of a cancel, or before another attempt."""
    machine, now = step.machine, step.m.clock.now()
    await removal.revoke_node(step.m, held=step.held, machine=machine)
    if not await removal.remove(step.m, held=step.held, machine=machine) or todo is _D.CLEAR:
        return

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        await removal.close_rows(tx, machine=machine, now=now)
        await step.moved(tx, holding.Move(event=_E.GONE, detail="Nothing of it is left."))

    await step.m.store.transact(work)


def _why(step: steps.Step, *, todo: create_plan.Do) -> str:
    machine, last, limits = step.machine, step.last, step.m.limits
    if todo is _D.DIED:
        if machine.missed:
            return f"{machine.provider} does not know the machine any more."
        failure = machine.seen.get("failure")
        return f"The machine failed: {failure}." if failure else "The machine failed."
    if last.state is attempts.State.WRITTEN:
        said = f" It said: {last.reason}" if last.reason else ""
        return f"{machine.provider} did not take the order within {limits.launch}.{said}"
    if machine.running_at is None:
        return f"The machine did not run within {limits.launch} of its order."
    return f"The machine did not become a ready node within {limits.enrollment}."
