"""Ends a connection: its credential, its consent and its row, once nothing hangs on it any more.

Refused while a machine or anything else that was made through it is not confirmed gone, since only
this credential can see and delete it. The lock is that of orders: one that was stored first is
seen, one that comes later finds no connection.
"""

import datetime

from platform_server.audit import actions, events
from platform_server.cloud import connections
from platform_server.store import contract

_NAMED = 5
_OPEN = 1000


class ConnectionInUse(Exception):
    """Something made through the connection is not confirmed gone; the message names it."""


async def forget(
    tx: contract.Tx, *, name: str, actor: str, environment: str, now: datetime.datetime
) -> connections.Connection:
    """Removes the connection; gives what it was.

    Raises `connections.NoSuchConnection` and `ConnectionInUse`.
    """
    found = await connections.get(tx, connection_id=name)
    await connections.lock(tx, connection_id=found.connection_id)
    left = await list_left(tx, connection_id=found.connection_id)
    if left:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        raise ConnectionInUse(
            f"Not confirmed gone yet: {', '.join(left[:_NAMED])}{more}. Delete them first (enlist "
            "cloud machines|volumes|snapshots|addresses|orphans list); what nobody can delete any "
            "more can be forgotten one by one."
        )
    await connections.remove(tx, connection_id=found.connection_id)
    await tx.execute("DELETE FROM cloud_orphans WHERE connection_id = ?", found.connection_id)
    details = {
        "connection_id": found.connection_id,
        "provider": found.provider,
        "account": found.account,
        "consent_ended": found.consent is not None,
    }
    await events.append(
        tx,
        at=now,
        kind="cloud-connection.forgotten",
        subject=found.name,
        infra=found.infra,
        data=details,
    )
    await actions.append(
        tx,
        action=actions.Action(
            at=now,
            actor=actor,
            action="cloud.connections.forget",
            target=found.name,
            environment=environment,
            infra=found.infra,
            details=details,
        ),
    )
    return found


async def list_left(tx: contract.Tx, *, connection_id: str) -> list[str]:
    """What was made through the connection and is not confirmed gone, each as a few words."""
    machines = await tx.fetch_all(
        "SELECT node_id FROM cloud_machines WHERE connection_id = ? "
        "AND gone_at IS NULL AND forgotten_at IS NULL ORDER BY ordered_at LIMIT ?",
        connection_id,
        _OPEN,
    )
    # what goes with a machine is named once the machine itself is gone, and forgotten with it
    beside = await tx.fetch_all(
        "SELECT c.kind, c.name, m.node_id FROM cloud_children c LEFT JOIN cloud_machines m "
        "ON m.machine_id = c.machine_id WHERE c.connection_id = ? AND c.gone_at IS NULL "
        "AND CASE WHEN c.keep = 1 THEN c.provider_ref IS NULL OR c.sent_at IS NOT NULL "
        "ELSE m.forgotten_at IS NULL AND (m.machine_id IS NULL OR m.gone_at IS NOT NULL) END "
        "ORDER BY c.written_at LIMIT ?",
        connection_id,
        _OPEN,
    )
    orphans = await tx.fetch_all(
        "SELECT kind, name FROM cloud_orphans WHERE connection_id = ? AND gone_at IS NULL "
        "ORDER BY first_seen_at LIMIT ?",
        connection_id,
        _OPEN,
    )
    # what came with a machine has no name of its own
    hanging = dict.fromkeys(f"the {row['kind']} {row['name'] or _of(row)}" for row in beside)
    return [
        *(f"the machine of {row['node_id']}" for row in machines),
        *hanging,
        *(f"the orphan {row['name']} ({row['kind']})" for row in orphans),
    ]


def _of(row: contract.Row) -> str:
    return f"of {row['node_id']}" if row["node_id"] else "without a name"
