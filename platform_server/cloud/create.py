"""The kind `create-machine`: one order, from `requested` to a ready node, or to a clear end.

`create_plan` says what comes next; here it is done, each in the transaction that writes it down.
The attempt is committed before the create call and the provider's id before anything else is asked.
A call without a clear answer is looked up and never sent again, but by a provider that answers for
the same token itself. What failed is kept, and counts, until somebody deletes or retries it; of a
machine that is nowhere nothing is kept but its row.
"""

import dataclasses
import datetime
import json
from typing import Final

from platform_server.cloud import (
    attempts,
    breaker,
    costs,
    create_plan,
    last_words,
    lookup,
    machines,
    means,
    pausing,
    removal,
    tickets,
)
from platform_server.nodes import records as node_records
from platform_server.operations import holding, kinds, records, states
from platform_server.store import contract
from platform_server.tokens import issue
from provisioning import contract as provider
from provisioning import naming, outcomes
from runtime_kit import crash_points
from wire_protocol import ids, problems, times

NAME: Final = "create-machine"
CAPACITY_SECONDS: Final = 60.0
_MOST_CAPACITY_SECONDS: Final = 600.0

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
ADMITTED = crash_points.declare(
    "cloud.admitted", story="it is stored that a machine's node is enrolled and which role it has"
)
ACTIVE = crash_points.declare("cloud.active", story="a machine is stored as a ready node")
FAILED = crash_points.declare("cloud.failed", story="it is stored that an order has failed")
CANCELLING = crash_points.declare(
    "cloud.cancelling", story="it is stored that an order is to be taken back"
)
LOST = crash_points.declare(
    "cloud.lost", story="it is stored that a person has to say what became of an order"
)

_D = create_plan.Do
_S = states.State
_E = states.Event


class CreateMachine:
    """The kind."""

    name = NAME

    def __init__(self, means_: means.Means) -> None:
        self._m = means_

    async def look(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> kinds.Found:
        """Whether the plan has a step."""
        todo = await self._todo(tx, operation=operation, now=now)
        return todo if isinstance(todo, kinds.Wait) else kinds.Ready()

    async def advance(self, held: holding.Held) -> None:
        """Takes one step."""
        operation, now = held.operation, self._m.clock.now()

        async def read(
            tx: contract.Tx,
        ) -> tuple[create_plan.Todo, create_plan.Facts]:
            facts = await self._facts(tx, operation=operation)
            return create_plan.plan(operation, facts=facts, limits=self._m.limits, now=now), facts

        todo, facts = await self._m.store.read(read)
        if isinstance(todo, kinds.Wait):
            return
        await self._step(todo, held=held, facts=facts)
        if operation.tries and todo in (_D.SEE, _D.POLL, _D.LOOK):
            await self._m.store.transact(lambda tx: holding.went_well(tx, held=held))

    async def fail(self, held: holding.Held, failure: holding.Failure) -> None:
        """Fails; an attempt in doubt is a person's to settle, so that order is unresolved."""
        facts = await self._m.store.read(lambda tx: self._facts(tx, operation=held.operation))
        last = facts.last
        if held.operation.state is _S.CREATING and last and last.state is attempts.State.SENT:
            await self._lose(held, reason=failure.reason)
            return
        if states.find_after(held.operation.state, _E.FAIL) is not None:
            await self._fail(held, facts=facts, failure=failure)

    # What comes next.

    async def _todo(
        self, tx: contract.Tx, *, operation: records.Operation, now: datetime.datetime
    ) -> create_plan.Todo:
        facts = await self._facts(tx, operation=operation)
        return create_plan.plan(operation, facts=facts, limits=self._m.limits, now=now)

    async def _facts(self, tx: contract.Tx, *, operation: records.Operation) -> create_plan.Facts:
        machine = await means.machine_of(tx, operation=operation)
        last = await attempts.find_last(tx, operation_id=operation.operation_id)
        phases: list[str] = []
        if last is not None and last.sent_at is not None:
            told = await tickets.list_phases(
                tx, operation_id=operation.operation_id, since=last.sent_at
            )
            phases = [str(one["phase"]) for one in told]
        node = await node_records.find(tx, node_id=ids.NodeId(machine.node_id))
        is_its = node is not None and last is not None and node.enrollment_id == last.enrollment_id
        return create_plan.Facts(
            machine=machine,
            last=last,
            phases=phases,
            node=node if is_its else None,
            is_paused=await pausing.is_paused(
                tx, connection_id=machine.connection_id, now=self._m.clock.now()
            ),
        )

    async def _step(  # noqa: C901 - one line a step
        self, todo: create_plan.Do, *, held: holding.Held, facts: create_plan.Facts
    ) -> None:
        match todo:
            case _D.VALIDATE:
                await self._move(held, holding.Move(event=_E.VALIDATE))
            case _D.WRITE:
                await self._write(held, facts=facts)
            case _D.SEND:
                await self._send(held, facts=facts)
            case _D.LOOK:
                await self._look_up(held, facts=facts)
            case _D.NEXT:
                await self._next(held, facts=facts)
            case _D.LOSE:
                await self._lose(held, reason=_lost(facts))
            case _D.POLL:
                await self._poll(held, facts=facts)
            case _D.SEE:
                await self._see(held, facts=facts)
            case _D.REPORT | _D.JOIN | _D.ADMIT | _D.SUCCEED:
                await self._come_up(held, todo=todo, facts=facts)
            case _D.LATE | _D.DIED:
                await self._came_to_nothing(held, todo=todo, facts=facts)
            case _D.CANCEL:
                await self._cancel(held, facts=facts)
            case _D.REMOVE | _D.CLEAR:
                await self._remove(held, todo=todo, facts=facts)

    # Ordering.

    async def _write(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        """Judges the order with its provider, then writes the attempt down with its ticket."""
        m, machine = self._m, facts.machine
        number = 1 if facts.last is None else facts.last.attempt + 1
        request = _request_of(machine, installation=m.installation, attempt=number)
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="validate order",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
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

        async def work(tx: contract.Tx) -> None:
            await tx.lock(f"node:{machine.node_id}")
            await holding.require(tx, held=held)
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
                request=dataclasses.replace(
                    judged.settled or request, first_boot=minted.first_boot
                ),
                machine_id=machine.machine_id,
                enrollment_id=minted.enrollment_id,
                keyring=m.keyring,
                now=now,
            )
            if judged.price is not None:
                await machines.set_price(tx, machine_id=machine.machine_id, price=judged.price)
            await self._moved(
                tx,
                held,
                holding.Move(
                    event=_E.CREATE,
                    detail=" ".join((f"Attempt {number}.", *judged.warnings)),
                    output={"attempt": number},
                    deadline_at=now + m.limits.launch,
                ),
            )

        try:
            await m.store.transact(work)
        except (tickets.CannotMint, issue.CannotIssue, ValueError) as fault:
            raise kinds.Stop(str(fault)) from fault
        crash_points.reach(WRITTEN)

    async def _send(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        m, machine, last = self._m, facts.machine, _last(facts)
        request = await m.store.read(
            lambda tx: attempts.open_request(tx, attempt=last, keyring=m.keyring)
        )
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="create machine",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=True,
            ) as driver:
                await m.store.transact(lambda tx: self._set_sent(tx, held=held, facts=facts))
                crash_points.reach(SENT)
                created = await driver.create(request)
                crash_points.reach(ANSWERED)
        except outcomes.Fault as fault:
            await self._not_created(held, facts=facts, fault=fault)
            return
        await self._accept(held, facts=facts, created=created)

    async def _set_sent(
        self, tx: contract.Tx, *, held: holding.Held, facts: create_plan.Facts
    ) -> None:
        m, machine, last, now = self._m, facts.machine, _last(facts), self._m.clock.now()
        await holding.require(tx, held=held)
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

    async def _accept(
        self,
        held: holding.Held,
        *,
        facts: create_plan.Facts,
        created: provider.Created,
        event: states.Event = _E.ACCEPT,
    ) -> None:
        machine, last, now = facts.machine, _last(facts), self._m.clock.now()

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            fresh = await attempts.find_last(tx, operation_id=last.operation_id)
            if fresh is None:
                raise attempts.NotSettled("The attempt that was sent is not stored.")
            await removal.present_rows(tx, machine=machine, attempt=fresh, created=created, now=now)
            await self._moved(
                tx,
                held,
                holding.Move(
                    event=event,
                    detail=f"{machine.provider} has it as {created.ref}.",
                    output={"ref": created.ref},
                    deadline_at=(fresh.sent_at or now) + self._m.limits.launch,
                ),
            )

        await self._m.store.transact(work)
        crash_points.reach(PRESENT)

    async def _not_created(
        self, held: holding.Held, *, facts: create_plan.Facts, fault: outcomes.Fault
    ) -> None:
        """The create call gave no clear yes: what is known now is written down."""
        m, last = self._m, _last(facts)
        outcome, now = fault.outcome, m.clock.now()
        is_sent = await m.store.read(lambda tx: _is_sent(tx, attempt=last))
        if not is_sent:  # the driver could not be opened: nothing was called
            raise means.later(fault) from fault

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            if outcome in _NOT_DONE:
                await attempts.set_written(tx, attempt=last, fault=fault)
                await costs.end(
                    tx, subject_id=facts.machine.machine_id, until=facts.machine.ordered_at
                )
                return
            await attempts.note(tx, attempt=last, fault=fault)
            if outcome in _ENDS:
                await removal.settle_rows(
                    tx,
                    machine=facts.machine,
                    attempt=dataclasses.replace(last, state=attempts.State.SENT),
                    now=now,
                )
            else:
                await attempts.note_doubt(tx, attempt=last, now=now)

        if outcome in _ENDS and await self._is_half_made(held, facts=facts):
            return
        await m.store.transact(work)
        if outcome in _NOT_DONE:
            raise _not_now(fault, tries=held.operation.tries) from fault

    async def _is_half_made(self, held: holding.Held, *, facts: create_plan.Facts) -> bool:
        """Whether a refused order has left something of ours behind, which is then taken over."""
        last = await self._m.store.read(
            lambda tx: attempts.find_last(tx, operation_id=held.operation.operation_id)
        )
        if last is None:
            return False
        request = last.request
        try:
            async with self._m.clouds.driver(
                facts.machine.connection_id,
                purpose="look up",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=False,
            ) as driver:
                seen = await driver.find(request.owner, name=request.name, region=request.region)
        except (outcomes.Fault, kinds.TryLater):
            return False  # the refusal itself was clear; the sweeper finds what it left
        mine = [one for one in seen.instances if lookup.is_mine(one, attempt=last)]
        if not mine:
            return False
        await self._accept(
            held,
            facts=facts,
            created=provider.Created(ref=mine[0].ref, children=mine[0].children, instance=mine[0]),
        )
        return True

    async def _look_up(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        """Looks for an attempt in doubt; by a provider that replays, the same order once more."""
        m, machine, last = self._m, facts.machine, _last(facts)
        created: provider.Created | None = None
        refused: outcomes.Fault | None = None
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="look up",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=True,
            ) as driver:
                verdict = await self._find(held, facts=facts, driver=driver)
                if (
                    isinstance(verdict, lookup.Unsettled)
                    and driver.lookup.replays
                    and held.operation.state is _S.CREATING
                ):
                    created, refused = await self._replay(last, driver=driver)
        except outcomes.Fault as fault:
            raise means.later(fault) from fault
        if refused is not None:
            await self._not_created(held, facts=facts, fault=refused)
        elif created is not None:
            await self._accept(held, facts=facts, created=created)

    async def _replay(
        self, last: attempts.Attempt, *, driver: provider.Driver
    ) -> tuple[provider.Created | None, outcomes.Fault | None]:
        """The very same order once more, to a provider that answers for its token."""
        request = await self._m.store.read(
            lambda tx: attempts.open_request(tx, attempt=last, keyring=self._m.keyring)
        )
        try:
            return await driver.create(request), None
        except outcomes.Fault as fault:
            if fault.outcome not in _ENDS:
                raise
            return None, fault

    async def _find(
        self, held: holding.Held, *, facts: create_plan.Facts, driver: provider.Driver
    ) -> lookup.Found | lookup.Absent | lookup.Unsettled:
        """One look-up; what it finds is moved on from where the order stands."""
        m, machine, last = self._m, facts.machine, _last(facts)
        request, now = last.request, m.clock.now()
        seen = await driver.find(request.owner, name=request.name, region=request.region)
        doubted = dataclasses.replace(last, doubted_at=last.doubted_at or now)
        verdict = lookup.judge(seen, attempt=doubted, rules=driver.lookup, now=m.clock.now())
        if isinstance(verdict, lookup.Found):
            found = verdict.instance
            unresolved = held.operation.state is _S.UNRESOLVED
            await self._accept(
                held,
                facts=facts,
                created=provider.Created(ref=found.ref, children=found.children, instance=found),
                event=_E.ADOPT if unresolved else _E.ACCEPT,
            )
            for extra in verdict.others:  # one order must not have two
                await driver.delete(extra.ref, region=extra.region)
            return verdict

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await attempts.note_doubt(tx, attempt=last, now=now)
            if isinstance(verdict, lookup.Absent) and held.operation.state is _S.CREATING:
                await removal.settle_rows(tx, machine=machine, attempt=last, now=now)
            else:
                clean = verdict.clean_answers if isinstance(verdict, lookup.Unsettled) else 0
                await attempts.note_look(tx, attempt=last, clean_answers=clean, now=now)

        await m.store.transact(work)
        return verdict

    async def _next(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        """The attempt is proved absent: another one where that may work, else the end."""
        last = _last(facts)
        retryable = last.outcome in (
            None,
            outcomes.Outcome.UNKNOWN.value,
            outcomes.Outcome.EXISTS_FOREIGN.value,
        )
        reason = last.reason or "The provider never had it: its answer was lost on the way."
        if retryable and last.attempt < self._m.limits.attempts:
            await self._move(held, holding.Move(event=_E.RETRY, detail=reason))
            return
        kind = problems.Kind.TRANSIENT if retryable else _kind_of(last)
        await self._fail(held, facts=facts, failure=holding.Failure(reason=reason, kind=kind))

    async def _lose(self, held: holding.Held, *, reason: str) -> None:
        operation_id = held.operation.operation_id
        sentence = (
            f"{reason} Look at the provider's console, then say what is so: enlist operations "
            f"resolve {operation_id} adopt|retry|give-up"
        )
        failure = holding.Failure(reason=sentence, kind=problems.Kind.NEEDS_OPERATOR)
        await self._move(held, holding.Move(event=_E.LOSE, failure=failure))
        crash_points.reach(LOST)

    # Coming up.

    async def _poll(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        """Asks how the accepted order is doing; a question that fails is no end of it."""
        m, machine, last = self._m, facts.machine, _last(facts)
        created = provider.Created(ref=last.provider_ref or "", progress=last.progress)
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="poll order",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=True,
            ) as driver:
                progress = await driver.poll(created)
        except outcomes.Fault as fault:
            if (
                fault.outcome
                in (
                    outcomes.Outcome.NOT_DONE_PERMANENT,
                    outcomes.Outcome.NOT_DONE_RETRYABLE,
                )
                and fault.topic is not outcomes.Topic.RATE
            ):
                await self._refused_late(held, facts=facts, fault=fault)
                return
            raise means.later(fault) from fault
        now, is_done = m.clock.now(), progress is provider.Progress.DONE

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await attempts.note_progress(tx, attempt=last, is_done=is_done, now=now)

        await m.store.transact(work)

    async def _refused_late(
        self, held: holding.Held, *, facts: create_plan.Facts, fault: outcomes.Fault
    ) -> None:
        """The provider had accepted and could not: what it left is kept, or it is gone already."""
        m, machine, last, now = self._m, facts.machine, _last(facts), self._m.clock.now()

        async def note(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await attempts.note(tx, attempt=last, fault=fault)

        await m.store.transact(note)
        try:
            async with m.clouds.driver(
                machine.connection_id,
                purpose="look up",
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
                changes=False,
            ) as driver:
                found = await driver.describe(last.provider_ref or "", region=machine.region)
        except outcomes.Fault as other:
            raise means.later(other) from other
        if found is None:

            async def gone(tx: contract.Tx) -> None:
                await holding.require(tx, held=held)
                fresh = await attempts.find_last(tx, operation_id=last.operation_id)
                if fresh is not None and fresh.state is attempts.State.PRESENT:
                    await attempts.set_settled(
                        tx, attempt=fresh, state=attempts.State.GONE, now=now
                    )
                await costs.end(tx, subject_id=machine.machine_id, until=now)

            await m.store.transact(gone)
        noted = await m.store.read(lambda tx: self._facts(tx, operation=held.operation))
        await self._fail(
            held,
            facts=noted,
            failure=holding.Failure(reason=attempts.said(fault), kind=_kind_of(_last(noted))),
        )

    async def _see(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        try:
            await self._m.viewer.refresh_pending(
                facts.machine,
                actor=held.operation.created_by,
                operation_id=held.operation.operation_id,
            )
        except outcomes.Fault as fault:
            raise means.later(fault) from fault

    async def _come_up(
        self, held: holding.Held, *, todo: create_plan.Do, facts: create_plan.Facts
    ) -> None:
        """What first boot, the node and the provider have told moves the order on."""
        machine, now = facts.machine, self._m.clock.now()
        since = machine.running_at
        move = holding.Move(
            event=_EVENTS[todo],
            deadline_at=None if since is None else since + self._m.limits.enrollment,
        )

        async def work(tx: contract.Tx) -> None:
            if todo is _D.ADMIT:
                await tx.lock(f"node:{machine.node_id}")
            await holding.require(tx, held=held)
            if todo is _D.ADMIT:
                await tx.execute(
                    "UPDATE nodes SET roles = ? WHERE node_id = ? AND state <> 'removed'",
                    json.dumps([machine.role]),
                    machine.node_id,
                )
            if todo is _D.SUCCEED:
                await machines.set_active(tx, machine_id=machine.machine_id, now=now)
                await attempts.wipe(tx, attempt=_last(facts))
                await breaker.close(tx, template=machine.template, infra=machine.infra, now=now)
            await self._moved(tx, held, move)

        await self._m.store.transact(work)
        if todo is _D.ADMIT:
            crash_points.reach(ADMITTED)
        if todo is _D.SUCCEED:
            crash_points.reach(ACTIVE)

    # Ending.

    async def _came_to_nothing(
        self, held: holding.Held, *, todo: create_plan.Do, facts: create_plan.Facts
    ) -> None:
        """A deadline has passed or the machine died: another attempt, or the end."""
        m, machine, last, now = self._m, facts.machine, _last(facts), self._m.clock.now()
        phases = await m.store.read(
            lambda tx: tickets.list_phases(
                tx, operation_id=held.operation.operation_id, since=last.sent_at
            )
        )
        told = (
            f" First boot told last: {phases[-1]['phase']} {phases[-1]['detail']}" if phases else ""
        )
        told += await last_words.of_console(held, machine=machine, means_of=m)
        reason = f"{_why(todo, facts=facts, limits=m.limits)}{told.rstrip('.')}."
        was_there = last.state is attempts.State.PRESENT
        is_again = was_there and last.attempt < m.limits.attempts

        async def work(tx: contract.Tx) -> bool:
            await holding.require(tx, held=held)
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
            await self._moved(
                tx, held, holding.Move(event=_E.RETRY, detail=f"{reason} It is tried again.")
            )
            return True

        if not await m.store.transact(work):
            kind = problems.Kind.TRANSIENT
            await self._fail(held, facts=facts, failure=holding.Failure(reason=reason, kind=kind))

    async def _fail(
        self, held: holding.Held, *, facts: create_plan.Facts, failure: holding.Failure
    ) -> None:
        """The end. What is there is kept and counts; of what is nowhere, the place is free."""
        machine, now = facts.machine, self._m.clock.now()

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            is_there = False
            for attempt in await attempts.list_of(tx, machine_id=machine.machine_id):
                if attempt.state is attempts.State.WRITTEN:
                    await attempts.set_settled(
                        tx, attempt=attempt, state=attempts.State.ABSENT, now=now
                    )
                elif attempt.state not in attempts.SETTLED:
                    is_there = True
                await tickets.revoke(tx, enrollment_id=attempt.enrollment_id, now=now)
            reason = failure.reason
            if is_there:
                reason = (
                    f"{reason} The machine is kept and costs money: enlist operations retry "
                    f"{held.operation.operation_id}, or enlist cloud machines delete "
                    f"{machine.node_id}"
                )
            else:
                await removal.close_rows(tx, machine=machine, now=now)
            move = holding.Move(event=_E.FAIL, failure=dataclasses.replace(failure, reason=reason))
            await self._moved(tx, held, move)

        await self._m.store.transact(work)
        crash_points.reach(FAILED)

    async def _cancel(self, held: holding.Held, *, facts: create_plan.Facts) -> None:
        """Somebody wants it gone: from now on it is taken away."""
        machine, now = facts.machine, self._m.clock.now()
        by = machine.delete_asked_by or "somebody"

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            if held.operation.state is _S.REQUESTED:
                await removal.close_rows(tx, machine=machine, now=now)
            await self._moved(tx, held, holding.Move(event=_E.CANCEL, detail=f"{by} cancels it."))

        await self._m.store.transact(work)
        crash_points.reach(CANCELLING)

    async def _remove(
        self, held: holding.Held, *, todo: create_plan.Do, facts: create_plan.Facts
    ) -> None:
        """Takes away what was made: at the end of a cancel, or before another attempt."""
        machine, now = facts.machine, self._m.clock.now()
        await removal.revoke_node(self._m, held=held, machine=machine)
        if not await removal.remove(self._m, held=held, machine=machine) or todo is _D.CLEAR:
            return

        async def work(tx: contract.Tx) -> None:
            await holding.require(tx, held=held)
            await removal.close_rows(tx, machine=machine, now=now)
            await self._moved(
                tx, held, holding.Move(event=_E.GONE, detail="Nothing of it is left.")
            )

        await self._m.store.transact(work)

    # Inside.

    async def _move(self, held: holding.Held, move: holding.Move) -> None:
        await self._m.store.transact(lambda tx: self._moved(tx, held, move))

    async def _moved(self, tx: contract.Tx, held: holding.Held, move: holding.Move) -> None:
        await holding.move(
            tx, held=held, move=move, environment=self._m.environment, now=self._m.clock.now()
        )


_EVENTS: Final = {
    _D.REPORT: _E.REPORT,
    _D.JOIN: _E.JOIN,
    _D.ADMIT: _E.ADMIT,
    _D.SUCCEED: _E.SUCCEED,
}
_NOT_DONE: Final = (
    outcomes.Outcome.NOT_DONE_RETRYABLE,
    outcomes.Outcome.AUTH_LOST,
    outcomes.Outcome.CLOCK,
)
_ENDS: Final = (outcomes.Outcome.NOT_DONE_PERMANENT, outcomes.Outcome.EXISTS_FOREIGN)


def _last(facts: create_plan.Facts) -> attempts.Attempt:
    if facts.last is None:
        raise kinds.Stop("The order has no attempt: a fault of ours.")
    return facts.last


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


def _kind_of(last: attempts.Attempt) -> problems.Kind:
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


def _lost(facts: create_plan.Facts) -> str:
    last = _last(facts)
    since = times.to_rfc3339(last.sent_at) if last.sent_at is not None else "some time"
    said = f" The last answer: {last.reason}" if last.reason else ""
    return (
        f"Nobody knows whether {facts.machine.provider} has made the machine "
        f"{last.request.name}, which was ordered at {since}; looking it up settled nothing.{said}"
    )


def _why(todo: create_plan.Do, *, facts: create_plan.Facts, limits: means.Limits) -> str:
    machine, last = facts.machine, _last(facts)
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
