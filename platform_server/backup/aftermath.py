"""What is no longer true in a store that was just filled from a backup, in the same transaction.

The world went on after the backup was made. So whatever was waiting to be used once is void (it
may have been used), nobody's API token counts (it may have been revoked), orders are not given
twice, operations are not carried on, and no node counts as heard. Tombstones, labels and the two
logs stay as they were. The trust epoch rises, with a statement signed by the keys that machines
hold, so that they follow this Platform and no longer the one it came from.

Known limit: what happened after the backup is forgotten; machines that enrolled later are unknown.
"""

import dataclasses
import datetime
import json
from typing import Final

from platform_server.audit import actions
from platform_server.backup import clouds, manifest
from platform_server.nodes import liveness, states
from platform_server.sealing import envelope
from platform_server.store import contract
from platform_server.tokens import ending
from platform_server.trust import keys, rotation, statements
from runtime_kit import clock as clock_kit
from wire_protocol import times

RESTORED: Final = clouds.RESTORED
REASON: Final = "restored"
_BATCH: Final = 500
_EVENTS_A_SECOND: Final = 1000  # more than any Platform writes: see `_events_after`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Who restores what, when."""

    restore_id: str
    actor: str
    now: datetime.datetime
    head: manifest.Head


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was made void, and where trust stands."""

    epoch: int
    enrollments_revoked: int
    tokens_voided: int
    orders_cancelled: int
    nodes: int
    trust_ended: bool


async def find_restore_id(tx: contract.Tx) -> str | None:
    """By which restore this store was filled, if it was."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", RESTORED)
    return None if row is None else str(json.loads(row["value"]).get("restore_id"))


async def settle(tx: contract.Tx, *, restore: Restore, keyring: envelope.Keyring) -> Settled:
    """Does all of it; raises `envelope.CannotOpen` when the backup's keys do not fit its rows."""
    epoch = await _raise_epoch(tx, now=restore.now)
    revoked = await _revoke_pending(tx, restore=restore)
    moment = clock_kit.to_micros(restore.now)
    voided = await tx.execute(
        "UPDATE api_tokens SET revoked_at = ? WHERE revoked_at IS NULL", moment
    )
    cancelled = await tx.execute(
        "UPDATE orders SET state = 'cancelled', ended_at = ?, detail = ? "
        "WHERE state IN ('queued', 'accepted')",
        moment,
        REASON,
    )
    await _end_operations(tx, restore=restore)
    await clouds.settle(tx, now=restore.now)
    await tx.execute(
        "UPDATE nodes SET state = ?, reason = ? WHERE state IN (?, ?)",
        states.State.UNREACHABLE.value,
        liveness.NOT_HEARD,
        states.State.READY.value,
        states.State.UNREACHABLE.value,
    )
    counted = await tx.fetch_one("SELECT COUNT(*) AS n FROM nodes WHERE state <> 'removed'")
    settled = Settled(
        epoch=epoch,
        enrollments_revoked=revoked,
        tokens_voided=voided,
        orders_cancelled=cancelled,
        nodes=0 if counted is None else int(counted["n"]),
        trust_ended=await _publish(tx, restore=restore, keyring=keyring),
    )
    await _tell(tx, restore=restore, settled=settled)
    return settled


async def _raise_epoch(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """At least one more; the time, so that two restores of one backup never share an epoch."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", statements.EPOCH)
    before = statements.FIRST_EPOCH if row is None else int(row["value"])
    epoch = max(before + 1, int(now.timestamp()))
    await _put(tx, name=statements.EPOCH, value=str(epoch))
    return epoch


async def _revoke_pending(tx: contract.Tx, *, restore: Restore) -> int:
    revoked = 0
    while True:
        found = await tx.fetch_all(
            "SELECT enrollment_id, node_id, infra FROM enrollments WHERE state = 'pending' "
            "ORDER BY enrollment_id LIMIT ?",
            _BATCH,
        )
        for row in found:
            await ending.withdraw(tx, enrollment_id=row["enrollment_id"], now=restore.now)
            await actions.append(
                tx,
                action=_action(
                    restore,
                    action="enrollments.revoke",
                    target=row["node_id"],
                    infra=row["infra"],
                    details={"enrollment_id": row["enrollment_id"], "reason": REASON},
                ),
            )
        revoked += len(found)
        if not found:
            return revoked


async def _end_operations(tx: contract.Tx, *, restore: Restore) -> None:
    """What was under way may have gone on after the backup; nobody knows how far.

    A node that was out of service for one stays so, since what runs on it has to be looked at.
    """
    await tx.execute(
        "UPDATE operations SET state = CASE WHEN state = 'requested' THEN 'cancelled' "
        "ELSE 'failed' END, reason = ?, error_class = 'needs-operator', updated_at = ?, "
        "ended_at = ?, next_at = NULL, holder = NULL, fence = fence + 1 WHERE ended_at IS NULL",
        "The Platform was restored from a backup since: look at the node, and see whether it is to "
        "take work again.",
        clock_kit.to_micros(restore.now),
        clock_kit.to_micros(restore.now),
    )


async def _publish(tx: contract.Tx, *, restore: Restore, keyring: envelope.Keyring) -> bool:
    """The present keys and addresses under the new epoch; says whether all keys have ended."""
    if await statements.find_number(tx) is None:
        return False  # nodes were never turned on: the first statement will carry the epoch
    ended = not await keys.load(tx, keyring=keyring, now=restore.now)
    await rotation.advance(
        tx, keyring=keyring, facts=None, environment=restore.head.environment, now=restore.now
    )
    return ended


async def _tell(tx: contract.Tx, *, restore: Restore, settled: Settled) -> None:
    made_at = times.to_rfc3339(restore.head.made_at)
    details = {
        "made_at": made_at,
        "epoch": settled.epoch,
        "enrollments_revoked": settled.enrollments_revoked,
        "tokens_voided": settled.tokens_voided,
        "orders_cancelled": settled.orders_cancelled,
    }
    await actions.append(
        tx,
        action=_action(
            restore, action="backup.restore", target=restore.head.backup_id, details=details
        ),
    )
    await tx.execute(
        "INSERT INTO events(seq, at, kind, subject, infra, data) VALUES (?, ?, ?, ?, ?, ?)",
        await _events_after(tx, restore=restore),
        clock_kit.to_micros(restore.now),
        "platform.restored",
        restore.head.backup_id,
        "default",
        json.dumps({"made_at": made_at, "epoch": settled.epoch}),
    )
    await _put(
        tx,
        name=RESTORED,
        value=json.dumps(
            {
                "restore_id": restore.restore_id,
                "backup_id": restore.head.backup_id,
                "made_at": made_at,
                "at": times.to_rfc3339(restore.now),
            }
        ),
    )


async def _events_after(tx: contract.Tx, *, restore: Restore) -> int:
    """A number above all that were given after the backup was made.

    A reader resumes behind the last one he saw; were numbers given again, he would miss events.
    """
    await tx.lock_append()
    row = await tx.fetch_one("SELECT MAX(seq) AS seq FROM events")
    last = 0 if row is None else int(row["seq"] or 0)
    seconds = max(0.0, (restore.now - restore.head.made_at).total_seconds())
    return last + _EVENTS_A_SECOND * (1 + int(seconds))


async def _put(tx: contract.Tx, *, name: str, value: str) -> None:
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        value,
    )


def _action(
    restore: Restore,
    *,
    action: str,
    target: str,
    details: dict[str, object],
    infra: str = "default",
) -> actions.Action:
    return actions.Action(
        at=restore.now,
        actor=restore.actor,
        action=action,
        target=target,
        infra=infra,
        environment=restore.head.environment,
        details=details,
    )
