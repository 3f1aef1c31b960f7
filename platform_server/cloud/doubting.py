"""An order without a clear answer: looked up until that is settled, or a person has to say.

Never sent again, but to a provider that answers for the same token itself, and then as it was.
"""

import functools

from platform_server.cloud import (
    attempts,
    giving_up,
    lookup,
    means,
    ordering,
    removal,
    steps,
    using,
)
from platform_server.operations import holding, kinds, states
from platform_server.store import contract
from provisioning import contract as provider
from provisioning import outcomes
from runtime_kit import crash_points
from wire_protocol import problems, times

LOST = crash_points.declare(
    "cloud.lost", story="it is stored that a person has to say what became of an order"
)

_S = states.State
_E = states.Event


async def look_up(step: steps.Step) -> None:
    """Looks for an attempt in doubt; by a provider that replays, the same order once more."""
    m, machine = step.m, step.machine
    created: provider.Created | None = None
    refused: outcomes.Fault | None = None
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="look up",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=True,
        ) as driver:
            if step.last.provider_ref is not None:
                await _adopt(step, ref=step.last.provider_ref, driver=driver)
                return
            verdict = await _find(step, driver=driver)
            if (
                isinstance(verdict, lookup.Unsettled)
                and driver.lookup.replays
                and step.held.operation.state is _S.CREATING
            ):
                created, refused = await _replay(step, driver=driver)
    except outcomes.Fault as fault:
        raise means.later(fault) from fault
    if refused is not None:
        await ordering.not_created(step, fault=refused)
    elif created is not None:
        await ordering.accept(step, created=created, answered=created.children)


async def _adopt(step: steps.Step, *, ref: str, driver: provider.Driver) -> None:
    """What a person says is it: taken only if the provider shows this order's tags on it."""
    last, found = step.last, None
    try:
        found = await driver.describe(ref, region=last.request.region)
    except outcomes.Fault as fault:
        if fault.outcome is not outcomes.Outcome.NOT_DONE_PERMANENT:
            raise
    if found is not None and lookup.is_mine(found, attempt=last):
        made = provider.Created(ref=found.ref, children=found.children, instance=found)
        await ordering.accept(step, created=made, event=_E.ADOPT)
        return

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        await attempts.wish_adopted(tx, attempt=last, ref=None)
        await attempts.note_look(tx, attempt=last, clean_answers=0, now=step.m.clock.now())

    await step.m.store.transact(work)
    raise kinds.TryLater(
        f"{step.machine.provider} shows no machine {ref} that carries this order's tags, so it is "
        "not adopted.",
        patient=True,
    )


async def _replay(
    step: steps.Step, *, driver: provider.Driver
) -> tuple[provider.Created | None, outcomes.Fault | None]:
    """The very same order once more, to a provider that answers for its token."""
    request = await step.m.store.read(
        lambda tx: attempts.open_request(tx, attempt=step.last, keyring=step.m.keyring)
    )
    try:
        with using.fenced(functools.partial(ordering.go_on_sending, step)):
            return await driver.create(request), None
    except outcomes.Fault as fault:
        if fault.outcome not in ordering.ENDS:
            raise
        return None, fault


async def _find(
    step: steps.Step, *, driver: provider.Driver
) -> lookup.Found | lookup.Absent | lookup.Unsettled:
    """One look-up; what it finds is moved on from where the order stands."""
    m, machine, last = step.m, step.machine, step.last
    now = m.clock.now()
    verdict = await removal.sight(m, attempt=last, driver=driver)
    if isinstance(verdict, lookup.Found):
        found = verdict.instance
        unresolved = step.held.operation.state is _S.UNRESOLVED
        await ordering.accept(
            step,
            created=provider.Created(ref=found.ref, children=found.children, instance=found),
            others=verdict.others,
            event=_E.ADOPT if unresolved else _E.ACCEPT,
        )
        return verdict

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        await attempts.note_doubt(tx, attempt=last, now=now)
        if isinstance(verdict, lookup.Absent) and step.held.operation.state is _S.CREATING:
            await removal.settle_rows(tx, machine=machine, attempt=last, now=now)
        else:
            clean = verdict.clean_answers if isinstance(verdict, lookup.Unsettled) else 0
            await attempts.note_look(tx, attempt=last, clean_answers=clean, now=now)

    await m.store.transact(work)
    return verdict


async def go_on(step: steps.Step) -> None:
    """The attempt is proved absent: another one where that may work, else the end."""
    last = step.last
    retryable = last.outcome in (
        None,
        outcomes.Outcome.UNKNOWN.value,
        outcomes.Outcome.EXISTS_FOREIGN.value,
    )
    reason = last.reason or "The provider never had it: its answer was lost on the way."
    if retryable and last.attempt < step.m.limits.attempts:
        await step.move(holding.Move(event=_E.RETRY, detail=reason))
        return
    kind = problems.Kind.TRANSIENT if retryable else kind_of(last)
    await giving_up.fail(step, failure=holding.Failure(reason=reason, kind=kind))


async def lose(step: steps.Step, *, reason: str) -> None:
    """From now on a person has to say what became of it; the sentence names the command."""
    operation_id = step.held.operation.operation_id
    sentence = (
        f"{reason} Look at the provider's console, then say what is so: enlist operations "
        f"resolve {operation_id} adopt|retry|give-up"
    )
    failure = holding.Failure(reason=sentence, kind=problems.Kind.NEEDS_OPERATOR)
    await step.move(holding.Move(event=_E.LOSE, failure=failure))
    crash_points.reach(LOST)


def lost(step: steps.Step) -> str:
    """What is known of an order in doubt, in one sentence."""
    last = step.last
    since = times.to_rfc3339(last.sent_at) if last.sent_at is not None else "some time"
    said = f" The last answer: {last.reason}" if last.reason else ""
    return (
        f"Nobody knows whether {step.machine.provider} has made the machine "
        f"{last.request.name}, which was ordered at {since}; looking it up settled nothing.{said}"
    )


def kind_of(last: attempts.Attempt) -> problems.Kind:
    """What kind of failure a refusal is: for a person, for later, or for good."""
    if last.topic in (
        outcomes.Topic.QUOTA.value,
        outcomes.Topic.MONEY.value,
        outcomes.Topic.RIGHTS.value,
        outcomes.Topic.AUTH.value,
        outcomes.Topic.PROTECTED.value,
    ):
        return problems.Kind.NEEDS_OPERATOR
    if last.topic == outcomes.Topic.CAPACITY.value:
        return problems.Kind.TRANSIENT
    return problems.Kind.PERMANENT
