"""Whether a node takes work, as a table: what the operator may ask for, and what follows.

It stands beside the life of a node (`states`) and outlasts it: a node that is away, or that
enrolls anew with another key, stays in maintenance until it is resumed. Removing and allowing it
again begins at `active`.

Known limits: there is no work to place yet, so a drain has nothing to wait for and ends in
`drained` within its own transaction; and nothing fences a node yet.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.nodes import configured, records, registry, states
from platform_server.store import contract
from wire_protocol import ids


class Scheduling(enum.StrEnum):
    """Whether a node takes work."""

    ACTIVE = "active"  # it takes work
    MAINTENANCE = "maintenance"  # it takes no new work; what runs stays
    DRAINING = "draining"  # its work is moving elsewhere
    DRAINED = "drained"  # no work is left on it: it may be taken apart
    FENCED = "fenced"  # it is sure to run nothing, whatever it says


class Event(enum.StrEnum):
    """What can happen to it."""

    MAINTENANCE = "maintenance"  # the operator wants no new work on it
    DRAIN = "drain"  # the operator wants its work elsewhere
    EMPTIED = "emptied"  # the last work has left it
    FENCE = "fence"  # it has been cut off for certain
    RESUME = "resume"  # the operator takes it back into service


# Asking for what stands already is no fault: the same command may be run again.
TABLE: Final[Mapping[tuple[Scheduling, Event], Scheduling]] = {
    (Scheduling.ACTIVE, Event.MAINTENANCE): Scheduling.MAINTENANCE,
    (Scheduling.ACTIVE, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.MAINTENANCE, Event.MAINTENANCE): Scheduling.MAINTENANCE,
    (Scheduling.MAINTENANCE, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.DRAINING, Event.DRAIN): Scheduling.DRAINING,
    (Scheduling.DRAINING, Event.EMPTIED): Scheduling.DRAINED,
    (Scheduling.DRAINED, Event.DRAIN): Scheduling.DRAINED,
    (Scheduling.DRAINED, Event.FENCE): Scheduling.FENCED,
    **{(state, Event.RESUME): Scheduling.ACTIVE for state in Scheduling},
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the state."""

    event: Event
    before: Scheduling
    after: Scheduling


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """What an order has done: the node as it was, and the steps; none where all stood already."""

    node: records.Node
    steps: Sequence[Step]


def after(state: Scheduling, event: Event) -> Scheduling:
    """The state that follows; raises `states.WrongState` where the table has no row."""
    found = find_after(state, event)
    if found is None:
        raise states.WrongState(f"A node that is {state} cannot take {event}.")
    return found


def find_after(state: Scheduling, event: Event) -> Scheduling | None:
    """The state that follows, or None where the event means nothing in that state."""
    return TABLE.get((state, event))


async def order(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    event: Event,
    operators: configured.ConfiguredNodes,
) -> Scheduled:
    """Carries out the operator's order.

    Raises `registry.NoSuchNode`, `registry.OperatorsNode` and `states.WrongState`: for a removed
    node, and where the node must be resumed first.
    """
    registry.require_ours(node_id, operators=operators)
    await tx.lock(f"node:{node_id}")
    node = await registry.get(tx, node_id=node_id)
    if node.state is states.State.REMOVED:
        raise states.already_removed(node_id)
    steps = _walk(Scheduling(node.scheduling), event, node_id=node_id)
    if steps:
        changed = await tx.execute(
            "UPDATE nodes SET scheduling = ? WHERE node_id = ? AND scheduling = ? "
            "AND state <> 'removed'",
            steps[-1].after.value,
            node_id,
            node.scheduling,
        )
        if not changed:
            raise contract.StoreBusy(f"The node {node_id} was being changed; try again.")
    return Scheduled(node=node, steps=steps)


def _walk(state: Scheduling, event: Event, *, node_id: ids.NodeId) -> Sequence[Step]:
    """The order, and after a drain its end: no work is placed anywhere yet."""
    if find_after(state, event) is None:
        raise states.WrongState(
            f"The node {node_id} is {state}. To change that first: enlist nodes resume {node_id}"
        )
    steps: list[Step] = []
    for one in (event, Event.EMPTIED) if event is Event.DRAIN else (event,):
        following = find_after(state, one)
        if following is not None and following is not state:
            steps.append(Step(event=one, before=state, after=following))
            state = following
    return steps
