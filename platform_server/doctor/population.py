"""Who is there: nodes, engines, what each engine does for all, the mesh; and the last backup.

Reads only, each question one short snapshot.
"""

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.doctor import stored
from platform_server.mesh import readiness
from platform_server.nodes import engines as engines_kit
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import findings, times

_BACKUP_DAYS: Final = 7
_WORST: Final = 5


async def nodes(store: stored.Readable) -> findings.Finding:
    """How many are ready of how many, and the worst by name."""
    name = "nodes"

    async def look(tx: contract.Tx) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
        counts = await tx.fetch_all(
            "SELECT state, COUNT(*) AS count FROM nodes WHERE state <> 'removed' GROUP BY state"
        )
        worst = await tx.fetch_all(
            "SELECT node_id, state, reason FROM nodes WHERE state NOT IN ('ready', 'removed') "
            "ORDER BY CASE state WHEN 'needs-operator' THEN 0 WHEN 'unreachable' THEN 1 ELSE 2 "
            "END, node_id LIMIT ?",
            _WORST,
        )
        return (
            {row["state"]: int(row["count"]) for row in counts},
            [(row["node_id"], row["state"], row["reason"] or "") for row in worst],
        )

    try:
        counts, worst = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    total, ready = sum(counts.values()), counts.get("ready", 0)
    facts: dict[str, Any] = {"by_state": counts, "ready": ready, "total": total}
    if not total:
        return findings.ok(name, "There is none yet.", facts=facts)
    if not worst:
        return findings.ok(name, f"{ready}/{total} are ready.", facts=facts)
    facts["worst"] = [
        {"node_id": node_id, "state": state, "reason": reason} for node_id, state, reason in worst
    ]
    shown = ", ".join(f"{one} {state} ({why or 'not heard yet'})" for one, state, why in worst)
    more = f" and {total - ready - len(worst)} more" if total - ready > len(worst) else ""
    text = f"{ready}/{total} are ready. Not: {shown}{more}."
    first = worst[0][0]
    if counts.get("needs-operator"):
        return findings.needs_operator(
            name, text, command=f"enlist nodes show {first}", facts=facts
        )
    return findings.transient(name, text, command=f"enlist nodes show {first}", facts=facts)


async def engines(store: stored.Readable, *, now: datetime.datetime) -> findings.Finding:
    """Which engines say that they run, and the sessions they hold."""
    name = "engines"

    async def look(tx: contract.Tx) -> tuple[int, int, int, int]:
        since = engines_kit.alive_since(now)
        alive = await tx.fetch_one("SELECT COUNT(*) AS n FROM engines WHERE seen_at >= ?", since)
        gone = await tx.fetch_one("SELECT COUNT(*) AS n FROM engines WHERE seen_at < ?", since)
        held = await tx.fetch_one("SELECT COUNT(*) AS n FROM sessions WHERE lost_at IS NULL")
        lost = await tx.fetch_one("SELECT COUNT(*) AS n FROM sessions WHERE lost_at IS NOT NULL")
        return tuple(0 if row is None else int(row["n"]) for row in (alive, gone, held, lost))  # type: ignore[return-value]

    try:
        alive, gone, held, lost = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    facts = {"alive": alive, "gone": gone, "sessions": held, "sessions_lost": lost}
    text = f"{alive} alive, {held} sessions."
    if gone:
        return findings.warning(
            name, f"{text} {gone} ended without saying so and are not back.", facts=facts
        )
    return findings.ok(name, text, facts=facts)


async def leases(store: stored.Readable, *, now: datetime.datetime) -> findings.Finding:
    """On PostgreSQL: whether the work that one engine does for all is being done."""
    name = "leases"
    if store.dialect is contract.Dialect.SQLITE:
        return findings.skipped(name, "On SQLite the one engine does everything.")

    async def look(tx: contract.Tx) -> Mapping[str, int]:
        rows = await tx.fetch_all("SELECT name, expires_at FROM leases ORDER BY name LIMIT 64")
        return {row["name"]: int(row["expires_at"]) for row in rows}

    try:
        found = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    moment = clock_kit.to_micros(now)
    free = sorted(lease for lease, until in found.items() if until < moment)
    facts = {lease: until >= moment for lease, until in found.items()}
    if free:
        return findings.transient(
            name,
            f"No engine does this at present: {', '.join(free)}. One takes it up within seconds.",
            facts=facts,
        )
    return findings.ok(name, f"{len(found)} kinds of work have an engine each.", facts=facts)


async def mesh(store: stored.Readable, *, now: datetime.datetime) -> findings.Finding:
    """How many members of the mesh have proved themselves lately."""
    name = "mesh"
    since = clock_kit.to_micros(now - readiness.LIVE)

    async def look(tx: contract.Tx) -> tuple[int, int, list[str]]:
        total = await tx.fetch_one("SELECT COUNT(*) AS n FROM mesh_members")
        live = await tx.fetch_one(
            "SELECT COUNT(*) AS n FROM mesh_members WHERE handshake_at >= ?", since
        )
        silent = await tx.fetch_all(
            "SELECT node_id FROM mesh_members WHERE handshake_at IS NULL OR handshake_at < ? "
            "ORDER BY node_id LIMIT ?",
            since,
            _WORST,
        )
        counts = [0 if row is None else int(row["n"]) for row in (total, live)]
        return counts[0], counts[1], [row["node_id"] for row in silent]

    try:
        total, live, silent = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    if not total:
        return findings.skipped(name, "No node has a place in a mesh.")
    facts = {"members": total, "live": live, "silent": silent}
    if silent:
        return findings.transient(
            name,
            f"{live}/{total} members are connected. Not: {', '.join(silent)}.",
            command=f"enlist doctor   (on {silent[0]})",
            facts=facts,
        )
    return findings.ok(name, f"{live}/{total} members are connected.", facts=facts)


async def backup(
    store: stored.Readable, *, now: datetime.datetime, environment: str
) -> findings.Finding:
    """When the last backup was made; in production one is expected each week."""
    name = "backup"

    async def look(tx: contract.Tx) -> str | None:
        row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = 'last_backup'")
        return None if row is None else str(row["value"])

    try:
        kept = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    made = _made_at(kept)
    command = "enlist backup create FILE"
    if made is None:
        if environment != "prod":
            return findings.skipped(name, "None has been made; outside of prod nobody asks for it.")
        return findings.warning(name, "No backup has ever been made.", command=command)
    facts = {"made_at": times.to_rfc3339(made)}
    days = (now - made).days
    if days >= _BACKUP_DAYS and environment == "prod":
        return findings.warning(
            name, f"The last backup is {days} days old.", command=command, facts=facts
        )
    return findings.ok(name, f"The last one is of {made:%Y-%m-%d %H:%M} UTC.", facts=facts)


def _made_at(kept: str | None) -> datetime.datetime | None:
    try:
        return None if kept is None else times.from_rfc3339(json.loads(kept)["made_at"])
    except (ValueError, KeyError, TypeError):
        return None
