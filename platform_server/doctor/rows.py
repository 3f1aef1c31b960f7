"""The rows that a support archive holds: columns named one by one, none of them secret."""

from typing import Any, Final

from platform_server.doctor import stored
from platform_server.store import contract

_MOST_ROWS: Final = 200

_TABLES: Final = {
    "nodes": "SELECT node_id, infra, state, scheduling, connectivity, certificate_sha256, pin, "
    "generation, version, url, enrolled_at, first_ready_at, last_seen_at, probe_answered_at, "
    "clock_offset_ms, reason, removed_at, next_pin FROM nodes ORDER BY node_id LIMIT ?",
    "enrollments": "SELECT enrollment_id, node_id, state, created_at, expires_at, consumed_at, "
    "ended_at FROM enrollments ORDER BY created_at DESC LIMIT ?",
    "enrollment_attempts": "SELECT outcome, reason, node_id, version, count, first_at, last_at "
    "FROM enrollment_attempts ORDER BY last_at DESC LIMIT ?",
    "action_log": "SELECT seq, at, actor, action, target FROM action_log ORDER BY seq DESC LIMIT ?",
    "events": "SELECT seq, at, kind, subject FROM events ORDER BY seq DESC LIMIT ?",
    "engines": "SELECT engine_id, started_at, seen_at FROM engines LIMIT ?",
    "sessions": "SELECT node_id, engine_id, address, generation, started_at, lost_at "
    "FROM sessions ORDER BY node_id LIMIT ?",
    "orders": "SELECT node_id, epoch, sequence, kind, state, tries, created_at, ended_at, detail "
    "FROM orders ORDER BY created_at DESC LIMIT ?",
    "mesh_members": "SELECT node_id, public_key, address, handshake_at, state, reason "
    "FROM mesh_members ORDER BY node_id LIMIT ?",
    "identity_conflicts": "SELECT node_id, address, first_at, last_at, count "
    "FROM identity_conflicts ORDER BY last_at DESC LIMIT ?",
    "leases": "SELECT name, fence, expires_at FROM leases ORDER BY name LIMIT ?",
    "migrations": "SELECT version, applied_at, enlist_version FROM migrations LIMIT ?",
}


async def read(store: stored.Readable) -> dict[str, list[dict[str, Any]]]:
    """What a support archive holds of the store: columns named one by one, none of them secret.

    Never a token's hash, a sealed value, a certificate or a signed text. A table that this store
    does not have is left out.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, sql in _TABLES.items():
        columns = [part.split()[-1] for part in sql[7 : sql.index(" FROM ")].split(", ")]

        async def look(
            tx: contract.Tx, sql: str = sql, columns: list[str] = columns
        ) -> list[dict[str, Any]]:
            rows = await tx.fetch_all(sql, _MOST_ROWS)
            return [{column: row[column] for column in columns} for row in rows]

        try:
            found[name] = await store.read(look)
        except contract.StoreError:
            continue
    return found
