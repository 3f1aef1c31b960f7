"""The register of nodes as operators use it: look, list, label, remove, allow again.

Removal leaves a tombstone, so that a node id is never silently used again (Z-47), and ends every
unused token of that node in the same transaction: one minted before the removal opens nothing
after it. `allow` lifts the tombstone by deleting the row, and once more ends every unused token;
the history stays in the logs.

What changes a node or issues a token for it takes the node's lock before it reads. A machine that
enrolls does not: of it, the writes here are conditional on what was read.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.nodes import configured, records, sessions, states
from platform_server.store import contract
from platform_server.tokens import ending, issue, label_sql
from runtime_kit import clock
from wire_protocol import ids, labels

CHANGED: Final = "nodes"
"""The signal by which engines learn at once that a node was changed; sent after the commit."""


class NoSuchNode(Exception):
    """There is no node of that id; see `enlist nodes list`."""


class OperatorsNode(Exception):
    """The node is configured on this Platform: change it in the settings."""


class NotRemoved(Exception):
    """The node was not removed, so there is nothing to allow."""


async def standing_of(
    tx: contract.Tx, *, node_id: ids.NodeId, operators: configured.ConfiguredNodes
) -> issue.Standing:
    """How the id is taken, for the stage that issues tokens."""
    if operators.holds(node_id):
        return issue.Standing.CONFIGURED
    row = await tx.fetch_one("SELECT state FROM nodes WHERE node_id = ?", node_id)
    if row is None:
        return issue.Standing.FREE
    if row["state"] == states.State.REMOVED.value:
        return issue.Standing.REMOVED
    return issue.Standing.REGISTERED


async def get(tx: contract.Tx, *, node_id: ids.NodeId) -> records.Node:
    """The node, a tombstone too; raises `NoSuchNode`."""
    node = await records.find(tx, node_id=node_id)
    if node is None:
        raise NoSuchNode(f"There is no node {node_id}.")
    return node


async def list_page(
    tx: contract.Tx,
    *,
    limit: int,
    after: str | None = None,
    infra: str | None = None,
    label_filters: Sequence[label_sql.Filter] = (),
    without: Sequence[str] = (),
) -> Sequence[records.Node]:
    """At most `limit` nodes by id, tombstones included, from behind `after`.

    `without` are ids that the settings hide.
    """
    wheres: list[str] = ["node_id > ?"]
    values: list[object] = [after or ""]
    if infra is not None:
        wheres.append("infra = ?")
        values.append(infra)
    for condition, bound in label_sql.conditions(label_filters, dialect=tx.dialect):
        wheres.append(condition)
        values += bound
    if without:
        wheres.append(f"node_id NOT IN ({', '.join('?' for _ in without)})")
        values += list(without)
    rows = await tx.fetch_all(
        f"SELECT {records.COLUMNS} FROM nodes WHERE {' AND '.join(wheres)} "  # noqa: S608 - bound
        "ORDER BY node_id LIMIT ?",
        *values,
        limit,
    )
    return [records.of_row(row) for row in rows]


async def change_labels(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    changes: Mapping[str, str | None],
    operators: configured.ConfiguredNodes,
) -> Mapping[str, str]:
    """Sets labels, and takes away those whose value is None; gives all that stand then.

    Raises `NoSuchNode`, `OperatorsNode`, `states.WrongState` for a removed node and `ValueError`
    for a malformed label.
    """
    require_ours(node_id, operators=operators)
    await tx.lock(f"node:{node_id}")
    node = await get(tx, node_id=node_id)
    if node.state is states.State.REMOVED:
        raise states.already_removed(node_id)
    kept = {key: value for key, value in node.labels.items() if key not in changes}
    labels.check({key: value or "" for key, value in changes.items()})
    wanted = labels.check(
        {**kept, **{key: value for key, value in changes.items() if value is not None}}
    )
    changed = await tx.execute(
        "UPDATE nodes SET labels = ? WHERE node_id = ? AND generation = ? AND state <> 'removed'",
        json.dumps(wanted, sort_keys=True),
        node_id,
        node.generation,
    )
    if not changed:  # its new enrollment brought labels that these know nothing of
        raise contract.StoreBusy(f"The node {node_id} was enrolling anew; try again.")
    return wanted


async def remove(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
) -> records.Node:
    """Puts a tombstone in the node's place and revokes its unused tokens; gives it as it was.

    The enrollments are written first, as enrolling does, so that two engines never wait for one
    another in a circle; the node is read after that, with the key it has in the end. Raises
    `NoSuchNode`, `OperatorsNode`, `states.WrongState` when it was removed before.
    """
    require_ours(node_id, operators=operators)
    await tx.lock(f"node:{node_id}")
    await ending.revoke_for_node(tx, node_id=node_id, now=now)
    node = await get(tx, node_id=node_id)
    if node.state is states.State.REMOVED:
        raise states.already_removed(node_id)
    state = states.after(node.state, states.Event.REMOVE)
    changed = await tx.execute(
        "UPDATE nodes SET state = ?, removed_at = ?, reason = NULL "
        "WHERE node_id = ? AND state <> ?",
        state.value,
        clock.to_micros(now),
        node_id,
        state.value,
    )
    if not changed:
        raise states.already_removed(node_id)
    await sessions.forget(tx, node_id=node_id)
    return node


async def allow(
    tx: contract.Tx,
    *,
    node_id: ids.NodeId,
    operators: configured.ConfiguredNodes,
    now: datetime.datetime,
) -> records.Node:
    """Lifts the tombstone, so that the id may be issued anew; gives it as it was.

    Ends every unused token first: whatever was minted before opens nothing afterwards. Raises
    `NoSuchNode`, `OperatorsNode`, `NotRemoved`; undo the transaction then.
    """
    require_ours(node_id, operators=operators)
    await tx.lock(f"node:{node_id}")
    await ending.revoke_for_node(tx, node_id=node_id, now=now)
    node = await get(tx, node_id=node_id)
    lifted = await tx.execute(
        "DELETE FROM nodes WHERE node_id = ? AND state = ?", node_id, states.State.REMOVED.value
    )
    if not lifted:
        raise NotRemoved(
            f"The node {node_id} was not removed, so there is nothing to allow. "
            f"How it stands: enlist nodes show {node_id}"
        )
    await sessions.forget(tx, node_id=node_id)  # what came in while it was being removed
    return node


def require_ours(node_id: ids.NodeId, *, operators: configured.ConfiguredNodes) -> None:
    """Raises `OperatorsNode` for a node that the settings name and for the Platform's own id."""
    if operators.holds(node_id):
        raise OperatorsNode(
            f"The node {node_id} is configured on this Platform: change it in the settings."
        )
