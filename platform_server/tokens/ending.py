"""How enrollments end without a machine: withdrawn, revoked with their node, expired, forgotten.

Each is a conditional write on `pending`, so ending one that a machine is just spending changes
nothing. Rows that ended stay for a while, to answer late retries and questions, and go in small
batches, so that a purge never holds the store for long.
"""

import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.store import contract
from platform_server.tokens import states
from runtime_kit import clock
from wire_protocol import ids

KEPT: Final = datetime.timedelta(days=30)
BATCH: Final = 500


async def withdraw(
    tx: contract.Tx, *, enrollment_id: ids.EnrollmentId | str, now: datetime.datetime
) -> bool:
    """Takes back an unused enrollment; False if it has already ended or there is none."""
    changed = await tx.execute(
        "UPDATE enrollments SET state = ?, ended_at = ? WHERE enrollment_id = ? AND state = ?",
        states.after(states.State.PENDING, states.Event.REVOKE).value,
        clock.to_micros(now),
        enrollment_id,
        states.before(states.Event.REVOKE).value,
    )
    return changed == 1


async def revoke_for_node(tx: contract.Tx, *, node_id: ids.NodeId, now: datetime.datetime) -> int:
    """Ends every unused enrollment of a node that goes; gives how many there were."""
    return await tx.execute(
        "UPDATE enrollments SET state = ?, ended_at = ? WHERE node_id = ? AND state = ?",
        states.after(states.State.PENDING, states.Event.REVOKE).value,
        clock.to_micros(now),
        node_id,
        states.before(states.Event.REVOKE).value,
    )


async def expire_due(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """Writes down that time has passed for at most a batch of enrollments; gives how many."""
    moment = clock.to_micros(now)
    return await tx.execute(
        "UPDATE enrollments SET state = ?, ended_at = expires_at WHERE enrollment_id IN ("
        "SELECT enrollment_id FROM enrollments WHERE state = ? AND expires_at <= ? LIMIT ?)",
        states.after(states.State.PENDING, states.Event.EXPIRE).value,
        states.before(states.Event.EXPIRE).value,
        moment,
        BATCH,
    )


async def find_forgettable(
    tx: contract.Tx, *, now: datetime.datetime
) -> Sequence[ids.EnrollmentId]:
    """At most a batch of enrollments that ended long ago and by which no node lives.

    Looks at every old row, so it is asked on a snapshot and not while holding the writer.
    """
    rows = await tx.fetch_all(
        "SELECT e.enrollment_id FROM enrollments e LEFT JOIN nodes n "
        "ON n.node_id = e.node_id AND n.enrollment_id = e.enrollment_id "
        "WHERE e.state <> 'pending' AND e.ended_at < ? AND n.node_id IS NULL LIMIT ?",
        clock.to_micros(now - KEPT),
        BATCH,
    )
    return [ids.EnrollmentId(row["enrollment_id"]) for row in rows]


async def forget(tx: contract.Tx, *, enrollment_ids: Sequence[ids.EnrollmentId]) -> int:
    """Deletes these ended enrollments; gives how many. One by which a node lives stays.

    Its machine may ask for its answer again, for as long as it has that key.
    """
    if not enrollment_ids:
        return 0
    places = ", ".join("?" for _ in enrollment_ids)
    return await tx.execute(
        f"DELETE FROM enrollments WHERE enrollment_id IN ({places}) "  # noqa: S608 - only marks
        "AND state <> 'pending' AND NOT EXISTS (SELECT 1 FROM nodes "
        "WHERE nodes.node_id = enrollments.node_id "
        "AND nodes.enrollment_id = enrollments.enrollment_id)",
        *enrollment_ids,
    )
