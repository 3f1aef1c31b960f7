"""Sending an order: judged, written down with its ticket, sent once, its answer written down.

The attempt is committed before the create call, and the provider's id before anything else is
asked. What the call said decides what follows: a clear no may be sent again later as it is or ends
the attempt; everything without a clear answer is `doubting`'s.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import (
    attempts,
    consent,
    costs,
    doubles,
    lookup,
    machines,
    means,
    policy,
    removal,
    reserve,
    steps,
    tickets,
    using,
)
from platform_server.operations import holding, kinds, states
from platform_server.store import contract
from platform_server.tokens import issue
from provisioning import contract as provider
from provisioning import naming, outcomes
from runtime_kit import crash_points
from wire_protocol import problems, times

WRITTEN = crash_points.declare(
    "cloud.written", story="an attempt is stored with its ticket, the provider knows nothing"
)
SENT = crash_points.declare(
    "cloud.sent", story="it is stored that an attempt is being sent, the provider knows nothing"
)
ANSWERED = crash_points.declare(
    "cloud.answered", story="the provider has made a machine, its id is stored nowhere"
)
PRESENT = crash_points.declare(
    "cloud.present", story="the provider's id of a machine is stored, nothing else was asked"
)

CAPACITY_SECONDS: Final = 60.0
_MOST_CAPACITY_SECONDS: Final = 600.0
_NOT_DONE: Final = (
    outcomes.Outcome.NOT_DONE_RETRYABLE,
    outcomes.Outcome.AUTH_LOST,
    outcomes.Outcome.CLOCK,
)
ENDS: Final = (outcomes.Outcome.NOT_DONE_PERMANENT, outcomes.Outcome.EXISTS_FOREIGN)
_E = states.Event


async def write(step: steps.Step) -> None:
    """Judges the order with its provider, then writes the attempt down with its ticket."""
    m, machine = step.m, step.machine
    former = step.facts.last
    number = 1 if former is None else former.attempt + 1
    request = _request_of(machine, installation=m.installation, attempt=number)
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="validate order",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=False,
        ) as driver:
            judged = await driver.plan(request)
    except outcomes.Fault as fault:
        if fault.outcome is outcomes.Outcome.NOT_DONE_PERMANENT:
            raise kinds.Stop(attempts.said(fault)) from fault
        raise means.later(fault) from fault
    if judged.refusals:
        raise kinds.Stop(" ".join(judged.refusals))
    now = m.clock.now()
    price = judged.price
    caps = await _caps(step, price=price)

    async def work(tx: contract.Tx) -> None:
        await tx.lock(f"node:{machine.node_id}")
        await holding.require(tx, held=step.held)
        if price is not None and _is_dearer(price, than=machine.price):
            await reserve.reserve(
                tx,
                provider_name=machine.provider,
                connection_id=machine.connection_id,
                price=price,
                caps=caps,
                instead_of=machine.machine_id,
            )
        minted = await tickets.mint(
            tx,
            machine=machine,
            attempt=number,
            minting=m.minting,
            life=m.limits.life + m.limits.launch,
            now=now,
        )
        await attempts.write(
            tx,
            request=dataclasses.replace(judged.settled or request, first_boot=minted.first_boot),
            machine_id=machine.machine_id,
            enrollment_id=minted.enrollment_id,
            keyring=m.keyring,
            now=now,
        )
        if price is not None:
            await machines.set_price(tx, machine_id=machine.machine_id, price=price)
        await step.moved(
            tx,
            holding.Move(
                event=_E.CREATE,
                detail=" ".join((f"Attempt {number}.", *judged.warnings)),
                output={"attempt": number},
                deadline_at=now + m.limits.launch,
            ),
        )

    try:
        await m.store.transact(work)
    except reserve.CapReached as fault:
        raise kinds.Stop(
            f"{machine.provider} asks {_said(price)} for it, and the order was judged by "
            f"{_said(machine.price)}. {fault}",
            kind=problems.Kind.NEEDS_OPERATOR,
        ) from fault
    except (tickets.CannotMint, issue.CannotIssue, ValueError) as fault:
        raise kinds.Stop(str(fault)) from fault
    crash_points.reach(WRITTEN)


async def _caps(step: steps.Step, *, price: provider.Price | None) -> Sequence[consent.Caps]:
    """What a plan that is dearer than the order is judged by; of any other nobody asks."""
    if price is None or not _is_dearer(price, than=step.machine.price):
        return ()
    try:
        return await step.m.caps_of(step.machine.connection_id)
    except policy.Unavailable as fault:
        raise kinds.Stop(str(fault), kind=problems.Kind.NEEDS_OPERATOR) from fault


def _is_dearer(price: provider.Price, *, than: provider.Price | None) -> bool:
    """Whether more is to be paid than was reserved, or nobody can say."""
    if than is None or price.currency != than.currency:
        return price.hourly_micros > 0
    return price.hourly_micros > than.hourly_micros


def _said(price: provider.Price | None) -> str:
    if price is None:
        return "no price"
    return f"{price.hourly_micros / 1_000_000:.4f} {price.currency} an hour"


async def send(step: steps.Step) -> None:
    """Sends the attempt, once; that it is being sent is committed right before."""
    m, machine, last = step.m, step.machine, step.last
    request = await m.store.read(
        lambda tx: attempts.open_request(tx, attempt=last, keyring=m.keyring)
    )
    try:
        async with m.clouds.driver(
            machine.connection_id,
            purpose="create machine",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=True,
        ) as driver:
            await m.store.transact(lambda tx: _set_sent(step, tx))
            crash_points.reach(SENT)
            with using.fenced(functools.partial(go_on_sending, step)):
                created = await driver.create(request)
            crash_points.reach(ANSWERED)
    except outcomes.Fault as fault:
        await not_created(step, fault=fault)
        return
    await accept(step, created=created, answered=created.children)


async def _set_sent(step: steps.Step, tx: contract.Tx) -> None:
    m, machine, last, now = step.m, step.machine, step.last, step.m.clock.now()
    await holding.require(tx, held=step.held)
    await attempts.set_sent(tx, attempt=last, now=now)
    await tickets.begin_life(
        tx, enrollment_id=last.enrollment_id or "", life=m.limits.life, now=now
    )
    if machine.price is not None:
        charge = costs.Charge(
            subject_id=machine.machine_id,
            connection_id=machine.connection_id,
            infra=machine.infra,
            what="machine",
            price=machine.price,
        )
        await costs.begin(tx, charge=charge, since=now)


async def go_on_sending(step: steps.Step, tx: contract.Tx) -> None:
    """Whether the order is still this engine's, before each call of it; raises `LeaseLost`."""
    await holding.require(tx, held=step.held)
    await attempts.set_sending(tx, attempt=step.last, now=step.m.clock.now())


async def accept(
    step: steps.Step,
    *,
    created: provider.Created,
    answered: Sequence[provider.Child] = (),
    others: Sequence[provider.Instance] = (),
    event: states.Event = _E.ACCEPT,
) -> None:
    """Stores the provider's id, and what hangs on the machine, before anything else is asked.

    `answered` is what the create call itself has named: see `removal.present_rows`.

    `others` carry the same ids: one order must not have two machines, so they are taken away.
    """
    machine, last, now = step.machine, step.last, step.m.clock.now()

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        fresh = await attempts.find_last(tx, operation_id=last.operation_id)
        if fresh is None:
            raise attempts.NotSettled("The attempt that was sent is not stored.")
        await removal.present_rows(
            tx, machine=machine, attempt=fresh, created=created, answered=answered, now=now
        )
        await doubles.take_away(tx, m=step.m, machine=machine, others=others)
        await step.moved(
            tx,
            holding.Move(
                event=event,
                detail=f"{machine.provider} has it as {created.ref}.",
                output={"ref": created.ref},
                deadline_at=(fresh.sent_at or now) + step.m.limits.launch,
            ),
        )

    await step.m.store.transact(work)
    crash_points.reach(PRESENT)


async def not_created(step: steps.Step, *, fault: outcomes.Fault) -> None:
    """The create call gave no clear yes: what is known now is written down."""
    m, last = step.m, step.last
    outcome, now = fault.outcome, m.clock.now()
    is_sent = await m.store.read(lambda tx: _is_sent(tx, attempt=last))
    if not is_sent:  # the driver could not be opened: nothing was called
        raise means.later(fault) from fault

    async def work(tx: contract.Tx) -> None:
        await holding.require(tx, held=step.held)
        if outcome in _NOT_DONE:
            await attempts.set_written(tx, attempt=last, fault=fault)
            await costs.end(tx, subject_id=step.machine.machine_id, until=step.machine.ordered_at)
            return
        await attempts.note(tx, attempt=last, fault=fault)
        if outcome in ENDS and rest is None:
            await removal.settle_rows(
                tx,
                machine=step.machine,
                attempt=dataclasses.replace(last, state=attempts.State.SENT),
                now=now,
            )
        else:
            await attempts.note_doubt(tx, attempt=last, now=now)

    rest = await _look_for_rest(step, refused=fault) if outcome in ENDS else None
    if isinstance(rest, lookup.Found):
        found = rest.instance
        made = provider.Created(ref=found.ref, children=found.children, instance=found)
        await accept(step, created=made, others=rest.others)
        return
    await m.store.transact(work)
    if isinstance(rest, outcomes.Fault):
        raise means.later(rest) from rest
    if outcome in _NOT_DONE:
        raise _not_now(fault, tries=step.held.operation.tries) from fault


async def _look_for_rest(
    step: steps.Step, *, refused: outcomes.Fault
) -> lookup.Found | outcomes.Fault | None:
    """What a refused order has left behind of ours; None: it was looked for, and nothing is there.

    A fault: nobody knows, so the attempt stays in doubt and is looked up until that is settled.
    """
    last = dataclasses.replace(step.last, outcome=refused.outcome.value)
    try:
        async with step.m.clouds.driver(
            step.machine.connection_id,
            purpose="look up",
            actor=step.held.operation.created_by,
            operation_id=step.held.operation.operation_id,
            changes=False,
        ) as driver:
            verdict = await removal.sight(step.m, attempt=last, driver=driver)
    except outcomes.Fault as fault:
        return fault
    except kinds.TryLater as paused:
        return _unknown(str(paused))
    if isinstance(verdict, lookup.Found):
        return verdict
    if isinstance(verdict, lookup.Unsettled) and not verdict.clean_answers:
        return _unknown("The provider did not show all that it has.")
    return None


def _unknown(said: str) -> outcomes.Fault:
    return outcomes.Fault(said, outcome=outcomes.Outcome.UNKNOWN, topic=outcomes.Topic.OTHER)


async def _is_sent(tx: contract.Tx, *, attempt: attempts.Attempt) -> bool:
    found = await attempts.find_last(tx, operation_id=attempt.operation_id)
    return found is not None and found.state is attempts.State.SENT


def _request_of(machine: machines.Machine, *, installation: str, attempt: int) -> provider.Request:
    owner = provider.Owner(
        installation=installation,
        infra=machine.infra,
        operation=machine.operation_id,
        node=machine.node_id,
        attempt=attempt,
    )
    wish = machine.wish
    ssh = wish.get("ssh")
    until = None if ssh is None else ssh.get("until")
    return provider.Request(
        owner=owner,
        name=naming.name_of(owner),
        client_token=naming.client_token(owner, zone=wish.get("zone") or machine.region),
        region=machine.region,
        size=machine.size,
        image=machine.image,
        first_boot="",
        zone=wish.get("zone"),
        network=wish.get("network"),
        subnet=wish.get("subnet"),
        disk_gigabytes=wish.get("disk_gigabytes"),
        public_ipv4="ipv4" not in wish.get("without", ()),
        public_ipv6="ipv6" not in wish.get("without", ()),
        ssh=None
        if ssh is None
        else provider.Ssh(
            public_key=ssh["public_key"],
            sources=tuple(ssh["sources"]),
            until=None if until is None else times.from_rfc3339(until),
        ),
    )


def _not_now(fault: outcomes.Fault, *, tries: int) -> kinds.TryLater:
    """It had no effect and may work later; a sold-out size is asked for once a minute at most."""
    wait = 0.0 if fault.retry_after is None else fault.retry_after.total_seconds()
    if fault.topic is outcomes.Topic.CAPACITY:
        wait = max(wait, min(CAPACITY_SECONDS * 2 ** min(tries, 8), _MOST_CAPACITY_SECONDS))
    return kinds.TryLater(attempts.said(fault), patient=True, seconds=wait)
