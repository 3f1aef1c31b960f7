"""A node id ordered again: the same order is found, and the id of a deleted machine is free.

Whoever had no answer repeats the command, with a key that the first try did not have; the same wish
for the same node is the same order then. And whoever deletes a machine has given its node's
tombstone with that word, so that another order for the id lifts it; one that a person has set by
`nodes remove` stays.

Known limit: what the order is for (`purpose`) is not part of the wish, the first one's is kept.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.cloud import attempts, machines
from platform_server.nodes import configured, registry
from platform_server.nodes import records as nodes
from platform_server.operations import records, states
from platform_server.store import contract
from platform_server.tokens import issue
from platform_server.tokens import records as enrollments
from wire_protocol import ids, times

_SAME: Final = ("connection_id", "provider", "infra", "region", "size", "image", "role")
_NO_WISH: Final = frozenset({"warnings", "purpose"})
_MOST_TOLD: Final = 80
_NEAR: Final = datetime.timedelta(seconds=30)  # between the moments at which two orders were judged


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is in the way of a machine for a node id, in a sentence; None where it may be."""

    obstacle: str | None = None
    is_freed: bool = False  # it was that of a machine that is deleted


async def find_same(
    tx: contract.Tx, *, wanted: machines.Machine
) -> tuple[records.Operation, machines.Machine] | None:
    """The order that wishes the same for the node, while it goes on or its machine is active."""
    found = await machines.find_live_of_node(tx, node_id=wanted.node_id)
    if found is None or found.delete_asked_at is not None or not is_same(found, wanted):
        return None
    operation = await records.find(tx, operation_id=found.operation_id)
    if operation is None or not (operation.is_open or operation.state is states.State.ACTIVE):
        return None
    return operation, found


def is_same(one: machines.Machine, other: machines.Machine) -> bool:
    """Whether both were ordered by the same wish."""
    return not differences(one, other)


def differences(one: machines.Machine, other: machines.Machine) -> list[str]:
    """What the two were ordered with that is not the same: `size cx23, not cx33`, by name."""
    mine = {name: getattr(one, name) for name in _SAME} | _plain(one.wish)
    others = {name: getattr(other, name) for name in _SAME} | _plain(other.wish)
    found = [
        f"{name} {_told(mine.get(name))}, not {_told(others.get(name))}"
        for name in sorted({*mine, *others})
        if mine.get(name) != others.get(name)
    ]
    if not _are_near(_open_for(one), _open_for(other)):
        found.append(f"SSH for {_open_for(one)}, not {_open_for(other)}")
    return found


async def claim_id(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
    wanted: machines.Machine | None = None,
) -> Claim:
    """Whether a machine may be ordered for the id; frees that of a machine which was deleted.

    Where `wanted` differs from the order that stands, the obstacle names both values of each.
    """
    machine = await machines.find_live_of_node(tx, node_id=node_id)
    if machine is not None:
        unlike = [] if wanted is None else differences(machine, wanted)
        return Claim(
            obstacle=f"The node id {node_id} has a machine at {machine.provider} already, by an "
            f"order that this one does not repeat (operation {machine.operation_id})"
            + (f": that one has {'; '.join(unlike)}" if unlike else "")
            + f". How it stands: enlist operations watch {machine.operation_id}"
        )
    standing = await registry.standing_of(tx, node_id=node_id, operators=operators)
    if standing is issue.Standing.CONFIGURED:
        return Claim(
            obstacle=f"The node {node_id} is configured on this Platform: choose another id."
        )
    if standing is issue.Standing.REGISTERED:
        return Claim(obstacle=f"The node {node_id} is registered: choose another id.")
    is_freed = standing is issue.Standing.REMOVED and await _lift_tombstone(
        tx, node_id=node_id, operators=operators, now=now
    )
    if standing is issue.Standing.REMOVED and not is_freed:
        return Claim(
            obstacle=f"The node {node_id} was removed. To use that id again, run: enlist nodes "
            f"allow {node_id}"
        )
    if await enrollments.find_pending(tx, node_id=node_id, now=now) is not None:
        return Claim(
            obstacle=f"The node id {node_id} has an unused enrollment. Take it back first: "
            f"enlist nodes withdraw-token {node_id}"
        )
    return Claim(is_freed=is_freed)


async def _lift_tombstone(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
) -> bool:
    """Frees the id of a node that was removed with its machine, which is confirmed gone."""
    node = await nodes.find(tx, node_id=node_id)
    if node is None or node.removed_at is None:
        return False
    former = await attempts.find_by_enrollment(tx, enrollment_id=node.enrollment_id)
    if former is None:
        return False
    machine = await machines.get(tx, machine_id=former.machine_id)
    asked = machine.delete_asked_at
    if machine.gone_at is None or asked is None or node.removed_at < asked:
        return False
    await registry.allow(tx, node_id=node_id, operators=operators, now=now)
    return True


def _plain(wish: Mapping[str, Any]) -> dict[str, Any]:
    """What was wished, without the moments; what is empty is as if it were not there."""
    plain = {name: value for name, value in wish.items() if value and name not in _NO_WISH}
    if "ssh" in plain:
        plain["ssh"] = {name: value for name, value in plain["ssh"].items() if name != "until"}
    return plain


def _told(value: Any) -> str:
    """A value of a wish for a sentence; what may be long, as a snippet, by its beginning."""
    if not value:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    line = " ".join(text.split())
    return line if len(line) <= _MOST_TOLD else f"{line[:_MOST_TOLD]}..."


def _open_for(machine: machines.Machine) -> datetime.timedelta | None:
    until = (machine.wish.get("ssh") or {}).get("until")
    return None if until is None else times.from_rfc3339(until) - machine.ordered_at


def _are_near(one: datetime.timedelta | None, other: datetime.timedelta | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _NEAR
