"""What the probe heard, written down in batches.

A change of state is written at once, with its event, by a conditional write on the node's key: an
answer given under an old key counts for nothing. That nothing changed is written rarely, many
nodes in one transaction, since `last_seen_at` of ten thousand nodes every few seconds would keep
the store busy for no news.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from platform_server.audit import events
from platform_server.nodes import engines, states
from platform_server.store import contract
from runtime_kit import clock
from wire_protocol import ids, pins

NOT_HEARD: Final = "not-heard-since-start"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One node's news: what happened, and what its answer said where there was one."""

    node_id: ids.NodeId
    pin: pins.Pin
    event: states.Event
    reason: str | None = None
    version: str | None = None
    answered_at: datetime.datetime | None = None
    clock_offset_ms: int | None = None
    certificate_sha256: str | None = None  # with which it proved its key


async def write_change(
    tx: contract.Tx, *, report: Report, now: datetime.datetime
) -> states.State | None:
    """Carries out one event; gives the state that stands then, None if the node has gone."""
    node_id, pin = report.node_id, report.pin
    row = await tx.fetch_one(
        "SELECT state, reason, infra FROM nodes WHERE node_id = ? AND pin = ?", node_id, pin
    )
    if row is None:
        return None
    before = states.State(row["state"])
    after = states.find_after(before, report.event)
    if after is None:
        return before
    if report.event is states.Event.ANSWER:
        await _write_answer(tx, report=report, before=before, after=after)
    else:
        await tx.execute(
            "UPDATE nodes SET state = ?, reason = ? WHERE node_id = ? AND pin = ? AND state = ?",
            after.value,
            report.reason,
            node_id,
            pin,
            before.value,
        )
    if after is not before:
        await events.append(
            tx,
            at=now,
            kind=f"node.{after.value}",
            subject=node_id,
            infra=row["infra"],
            data={} if report.reason is None else {"reason": report.reason},
        )
    return after


async def _write_answer(
    tx: contract.Tx, *, report: Report, before: states.State, after: states.State
) -> None:
    moment = None if report.answered_at is None else clock.to_micros(report.answered_at)
    await tx.execute(
        "UPDATE nodes SET state = ?, reason = NULL, last_seen_at = ?, probe_answered_at = ?, "
        "clock_offset_ms = ?, version = ?, first_ready_at = COALESCE(first_ready_at, ?) "
        "WHERE node_id = ? AND pin = ? AND state = ?",
        after.value,
        moment,
        moment,
        report.clock_offset_ms,
        report.version,
        moment,
        report.node_id,
        report.pin,
        before.value,
    )


async def write_seen(tx: contract.Tx, *, reports: Sequence[Report]) -> None:
    """Writes that these nodes went on answering; their states stay what they are."""
    for report in reports:
        if report.answered_at is None:
            continue
        moment = clock.to_micros(report.answered_at)
        await tx.execute(
            "UPDATE nodes SET last_seen_at = ?, probe_answered_at = ?, clock_offset_ms = ?, "
            "version = ? WHERE node_id = ? AND pin = ? AND state = 'ready'",
            moment,
            moment,
            report.clock_offset_ms,
            report.version,
            report.node_id,
            report.pin,
        )


async def forget_answers(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """After a start nothing has been heard yet: every ready node is unreachable until it answers.

    Not one whose session another engine holds: that one hears it. Gives how many. One event tells
    of them all, since a start concerns every node alike.
    """
    state = states.after(states.State.READY, states.Event.RESTART)
    count = await tx.execute(
        "UPDATE nodes SET state = ?, reason = ? WHERE state = ? AND node_id NOT IN ("
        "SELECT s.node_id FROM sessions s JOIN engines e ON e.engine_id = s.engine_id "
        "WHERE s.lost_at IS NULL AND e.seen_at >= ?)",
        state.value,
        NOT_HEARD,
        states.State.READY.value,
        engines.alive_since(now),
    )
    if count:
        await events.append(
            tx,
            at=now,
            kind="nodes.unheard",
            subject="*",
            data={"nodes": count, "reason": NOT_HEARD},
        )
    return count
