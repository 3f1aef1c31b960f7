"""What an order's next step is, by what is stored and what time it is: no provider, no store.

Everything is judged anew at each look, from rows alone, so whoever takes over after a `kill -9`
comes to the same step. Launch and enrollment have deadlines apart: how long the provider may take
until the machine runs, and how long a machine that runs may take until its node is ready.
"""

import dataclasses
import datetime
import enum
from collections.abc import Sequence
from typing import Final

from platform_server.cloud import admission, attempts, machines, means, view
from platform_server.nodes import records as node_records
from platform_server.nodes import states as node_states
from platform_server.operations import kinds, records, states
from provisioning import contract as provider

LOOK: Final = datetime.timedelta(seconds=10)
UNRESOLVED_LOOK: Final = datetime.timedelta(minutes=5)
FIRST_POLL: Final = datetime.timedelta(seconds=5)
LONGEST_POLL: Final = datetime.timedelta(minutes=1)
_JOINING: Final = frozenset({"joining", "starting"})
_FAILED: Final = "failed"


class Do(enum.StrEnum):
    """One step of an order."""

    VALIDATE = "validate"  # begin
    CANCEL = "cancel"  # somebody wants it gone
    REMOVE = "remove"  # take away what was made
    CLEAR = "clear"  # take away the attempt before
    WRITE = "write"  # judge with the provider, write the attempt down
    SEND = "send"  # send it
    LOOK = "look"  # look it up
    LOSE = "lose"  # a person must say
    NEXT = "next"  # the attempt is proved absent
    POLL = "poll"  # ask how what was accepted is doing
    SEE = "see"  # ask how the machine is
    REPORT = "report"
    JOIN = "join"
    ADMIT = "admit"
    SUCCEED = "succeed"
    LATE = "late"  # a deadline has passed
    DIED = "died"  # the machine failed, or its first boot did


Todo = kinds.Wait | Do
_WRITE_DOWN: Final = frozenset({Do.VALIDATE, Do.CANCEL, Do.LOSE, Do.LATE, Do.DIED})
"""Steps that call no provider."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known. `node` only where it enrolled with this attempt's ticket.

    `is_hung_on`: something that goes with the machine is not confirmed gone.
    """

    machine: machines.Machine
    last: attempts.Attempt | None
    phases: Sequence[str]
    node: node_records.Node | None
    is_paused: bool
    is_hung_on: bool = False


def plan(
    operation: records.Operation,
    *,
    facts: Facts,
    limits: means.Limits,
    now: datetime.datetime,
) -> Todo:
    """The next step, or how long there is none."""
    todo = _plan(operation, facts=facts, limits=limits, now=now)
    if facts.is_paused and isinstance(todo, Do) and todo in _CALLS:
        return kinds.Wait(seconds=5.0)
    return todo


def _plan(
    operation: records.Operation, *, facts: Facts, limits: means.Limits, now: datetime.datetime
) -> Todo:
    state, last = operation.state, facts.last
    if state is states.State.CANCELLING:
        return paced_removal(facts.machine, last=last, now=now)
    wanted_gone = facts.machine.delete_asked_at is not None
    if wanted_gone or state is states.State.REQUESTED:
        return Do.CANCEL if wanted_gone else Do.VALIDATE
    if state is states.State.VALIDATING:
        return _validating(facts, last=last, now=now)
    if last is None:
        raise kinds.Stop("The order has no attempt: a fault of ours.")
    if state in (states.State.CREATING, states.State.UNRESOLVED):
        return _in_doubt(state, last=last, limits=limits, now=now)
    told = _told(state, facts=facts, last=last, now=now)
    if told is not None:
        return told
    is_late = _is_late(facts.machine, last=last, limits=limits, now=now)
    return Do.LATE if is_late else _asked(facts.machine, last=last, now=now)


def _validating(facts: Facts, *, last: attempts.Attempt | None, now: datetime.datetime) -> Todo:
    """What is left of the attempt before goes first, the machine and every child."""
    if last is None or (last.state in attempts.SETTLED and not facts.is_hung_on):
        return Do.WRITE
    todo = paced_removal(facts.machine, last=last, now=now)
    return Do.CLEAR if todo is Do.REMOVE else todo


def _in_doubt(
    state: states.State, *, last: attempts.Attempt, limits: means.Limits, now: datetime.datetime
) -> Todo:
    """The provider is asked, or looked up, or a person is waited for."""
    if state is states.State.UNRESOLVED:
        return _due(last.looked_up_at, every=UNRESOLVED_LOOK, now=now) or Do.LOOK
    if last.state is attempts.State.WRITTEN:
        return Do.LATE if now - last.written_at >= limits.launch else Do.SEND
    if last.state is not attempts.State.SENT:
        return Do.NEXT
    if now - (last.doubted_at or last.sent_at or now) >= limits.launch:
        return Do.LOSE
    return _due(last.looked_up_at, every=LOOK, now=now) or Do.LOOK


def _told(
    state: states.State, *, facts: Facts, last: attempts.Attempt, now: datetime.datetime
) -> Do | None:
    """What follows from what first boot, the node and the provider have told already."""
    if _is_dead(facts.machine) or _FAILED in facts.phases:
        return Do.DIED
    if state is states.State.VERIFYING:
        return Do.SUCCEED if _is_proved(facts, last=last, now=now) else None
    if facts.node is not None and facts.node.state is not node_states.State.REMOVED:
        return Do.ADMIT
    if state is not states.State.ENROLLING and not _JOINING.isdisjoint(facts.phases):
        return Do.JOIN
    return Do.REPORT if state is states.State.BOOTING and facts.phases else None


def _asked(machine: machines.Machine, *, last: attempts.Attempt, now: datetime.datetime) -> Todo:
    """When the provider is to be asked next: how its work is doing, and how the machine is."""
    see = _due(machine.looked_at, every=_pace(last, now=now), now=now)
    if see is None:
        return Do.SEE
    if last.progress is None:
        return see
    every = min(LONGEST_POLL, FIRST_POLL * 2 ** min(last.clean_answers, 8))
    poll = _due(last.looked_up_at or last.settled_at, every=every, now=now)
    return Do.POLL if poll is None else min(see, poll, key=lambda one: one.seconds)


def paced_removal(
    machine: machines.Machine, *, last: attempts.Attempt | None, now: datetime.datetime
) -> Todo:
    """Taking away goes on in growing steps: soon at first, once a minute in the end."""
    asked = machine.delete_sent_at or machine.delete_asked_at
    age = datetime.timedelta() if asked is None else now - asked
    every = datetime.timedelta(seconds=5 if age < datetime.timedelta(minutes=1) else 15)
    if age > datetime.timedelta(minutes=10):
        every = datetime.timedelta(minutes=1)
    return _due(None if last is None else last.looked_up_at, every=every, now=now) or Do.REMOVE


def _is_dead(machine: machines.Machine) -> bool:
    was_seen = machine.seen_at is not None
    return (was_seen and machine.missed >= view.GONE_AFTER) or (
        machine.power == provider.Power.FAILED.value
    )


def _is_proved(facts: Facts, *, last: attempts.Attempt, now: datetime.datetime) -> bool:
    machine, node = facts.machine, facts.node
    return (
        node is not None
        and node.state is node_states.State.READY
        and machine.seen_at is not None
        and now - machine.seen_at <= admission.FRESH
        and machine.power == provider.Power.RUNNING.value
        and admission.agrees(machine, attempt=last)
    )


def _is_late(
    machine: machines.Machine,
    *,
    last: attempts.Attempt,
    limits: means.Limits,
    now: datetime.datetime,
) -> bool:
    if machine.running_at is None:  # one that was adopted late has its launch before it
        return now - (last.settled_at or last.sent_at or now) >= limits.launch
    return now - machine.running_at >= limits.enrollment


def _pace(last: attempts.Attempt, *, now: datetime.datetime) -> datetime.timedelta:
    age = now - (last.settled_at or now)
    if age < datetime.timedelta(minutes=2):
        return datetime.timedelta(seconds=10)
    return datetime.timedelta(seconds=20 if age < datetime.timedelta(minutes=10) else 30)


def _due(
    since: datetime.datetime | None, *, every: datetime.timedelta, now: datetime.datetime
) -> kinds.Wait | None:
    """How long until it is due; None: now."""
    if since is None or now - since >= every:
        return None
    return kinds.Wait(seconds=max(0.1, (since + every - now).total_seconds()))


_CALLS: Final = frozenset(Do) - _WRITE_DOWN - {
    Do.NEXT, Do.REPORT, Do.JOIN, Do.ADMIT, Do.SUCCEED,
}  # fmt: skip
