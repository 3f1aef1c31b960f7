"""What the store says of the Platform: asked by a running engine, or of a store at rest.

Reads only, each question one short snapshot. Known limit: the integrity of a large SQLite store is
not looked at here, since that would keep a reader busy for minutes; the command for it is named.
"""

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from platform_server.mesh import readiness
from platform_server.nodes import engines as engines_kit
from platform_server.store import contract, migrations
from runtime_kit import clock as clock_kit
from wire_protocol import findings, times

T = TypeVar("T")

_INTEGRITY_BYTES: Final = 256 * 1024 * 1024  # read through in a second or two
_WAL_BYTES: Final = 64 * 1024 * 1024  # four times what is kept: something has been reading for long
_SOON: Final = datetime.timedelta(days=21)  # a port's certificate is renewed 30 days before its end
_KEYS_SOON: Final = datetime.timedelta(days=14)
_FUTURE: Final = datetime.timedelta(minutes=1)
_BACKUP_DAYS: Final = 7
_WORST: Final = 5
_MOST_ROWS: Final = 200


class Readable(Protocol):
    """The part of a store that a question needs."""

    @property
    def dialect(self) -> contract.Dialect:
        """The database below."""
        ...

    async def read(self, work: contract.Work[T]) -> T:
        """Runs work on one snapshot."""
        ...


async def schema(store: Readable, *, clock: clock_kit.Clock) -> findings.Finding:
    """Whether it answers, and in which version."""
    started = clock.monotonic()
    try:
        found = await store.read(migrations.newest)
    except contract.StoreError as fault:
        return of_fault("store", fault)
    took = round((clock.monotonic() - started) * 1000, 1)
    known = len(migrations.all_migrations())
    facts = {"kind": store.dialect.value, "schema": found, "known_schema": known, "read_ms": took}
    if found > known:
        return findings.needs_operator(
            "store",
            f"A newer Enlist has opened the store (schema {found}, this one knows {known}).",
            command="pip install --upgrade enlist",
            facts=facts,
        )
    if found < known:
        return findings.warning(
            "store",
            f"The store has schema {found}; the next start brings it to {known}.",
            facts=facts,
        )
    return findings.ok(
        "store", f"{store.dialect.value} answers in {took} ms, schema {found}.", facts=facts
    )


async def integrity(store: Readable, *, database_bytes: int) -> findings.Finding:
    """SQLite's own look at its file."""
    name = "store-integrity"
    if store.dialect is not contract.Dialect.SQLITE:
        return findings.skipped(name, "PostgreSQL keeps its own checksums.")
    if database_bytes > _INTEGRITY_BYTES:
        return findings.skipped(
            name,
            f"The store has {database_bytes // 1_048_576} MB; look yourself: "
            "sqlite3 enlist.db 'PRAGMA quick_check'.",
        )

    async def look(tx: contract.Tx) -> str:
        row = await tx.fetch_one("PRAGMA quick_check(1)")
        return "nothing" if row is None else str(row[0])  # type: ignore[index]

    try:
        found = await store.read(look)
    except contract.StoreError as fault:
        return of_fault(name, fault)
    if found != "ok":
        return findings.needs_operator(
            name,
            f"The store is damaged: {found[:200]}",
            command="enlist backup restore FILE",
        )
    return findings.ok(name, "The file is whole.")


def sizes(found: contract.Sizes, *, free_disk_bytes: int | None) -> findings.Finding:
    """How large the store and its log are, and whether there is room to grow."""
    facts: dict[str, Any] = {
        "database_bytes": found.database_bytes,
        "wal_bytes": found.wal_bytes,
        "free_disk_bytes": free_disk_bytes,
    }
    name = "store-size"
    if free_disk_bytes is not None and free_disk_bytes < 4 * 1_048_576 + found.wal_bytes:
        return findings.needs_operator(
            name,
            f"The disk of the store is full: {free_disk_bytes // 1024} KB are free.",
            command="df -h",
            facts=facts,
        )
    if found.wal_bytes > _WAL_BYTES:
        return findings.warning(
            name,
            f"The write-ahead log has {found.wal_bytes // 1_048_576} MB: some program reads the "
            "store for long.",
            command="fuser -v enlist.db",
            facts=facts,
        )
    return findings.ok(name, f"{found.database_bytes // 1024} KB.", facts=facts)


async def trust_keys(store: Readable, *, now: datetime.datetime) -> findings.Finding:
    """Which keys are valid now, and when the last ends."""
    name = "trust-keys"

    async def look(tx: contract.Tx) -> list[tuple[str, int, int]]:
        rows = await tx.fetch_all(
            "SELECT key_id, not_before, not_after FROM trust_keys ORDER BY not_after LIMIT 64"
        )
        return [(row["key_id"], row["not_before"], row["not_after"]) for row in rows]

    try:
        keys = await store.read(look)
    except contract.StoreError as fault:
        return of_fault(name, fault)
    if not keys:
        return findings.skipped(name, "There is none: this Platform has never taken a node.")
    moment = clock_kit.to_micros(now)
    valid = [key for key in keys if key[1] <= moment <= key[2]]
    last = clock_kit.from_micros(keys[-1][2])
    facts = {
        "keys": [
            {
                "key_id": key_id,
                "not_before": times.to_rfc3339(clock_kit.from_micros(since)),
                "not_after": times.to_rfc3339(clock_kit.from_micros(until)),
            }
            for key_id, since, until in keys
        ]
    }
    if not valid:
        return findings.needs_operator(
            name,
            f"No trust key is valid now (the last: {last:%Y-%m-%d}), so nodes refuse this "
            "Platform. Check this machine's clock first.",
            command="timedatectl",
            facts=facts,
        )
    if last - now < _KEYS_SOON:
        return findings.needs_operator(
            name,
            f"The last trust key ends on {last:%Y-%m-%d}, and no next one has been published.",
            command="enlist platform rotate-trust-key",
            facts=facts,
        )
    return findings.ok(
        name, f"{len(valid)} valid now, the last until {last:%Y-%m-%d}.", facts=facts
    )


async def certificates(store: Readable, *, now: datetime.datetime) -> findings.Finding:
    """The dates of the ports' certificates."""
    name = "certificates"

    async def look(tx: contract.Tx) -> Mapping[str, int]:
        rows = await tx.fetch_all("SELECT name, not_after FROM certificates ORDER BY name LIMIT 64")
        return {row["name"]: row["not_after"] for row in rows}

    try:
        ends = await store.read(look)
    except contract.StoreError as fault:
        return of_fault(name, fault)
    if not ends:
        return findings.skipped(name, "There is none: no port has one of the Platform's own.")
    facts = {port: times.to_rfc3339(clock_kit.from_micros(until)) for port, until in ends.items()}
    port, first = min(ends.items(), key=lambda one: one[1])
    end = clock_kit.from_micros(first)
    if end < now + _SOON:
        over = "ended" if end < now else "ends"
        return findings.needs_operator(
            name,
            f"The certificate of the {port} port {over} on {end:%Y-%m-%d} and was not renewed; a "
            "running engine does that by itself, with the same key.",
            command="enlist serve   (the engine's log says why not)",
            facts=facts,
        )
    return findings.ok(name, f"The first ends on {end:%Y-%m-%d}.", facts=facts)


async def clock(store: Readable, *, now: datetime.datetime) -> findings.Finding:
    """Whether this machine's time goes on from where the store's times end."""
    name = "clock"

    async def look(tx: contract.Tx) -> int:
        row = await tx.fetch_one(
            "SELECT MAX(at) AS at FROM (SELECT MAX(at) AS at FROM events "
            "UNION ALL SELECT MAX(at) AS at FROM action_log) AS latest"
        )
        return 0 if row is None or row["at"] is None else int(row["at"])

    try:
        latest = clock_kit.from_micros(await store.read(look))
    except contract.StoreError as fault:
        return of_fault(name, fault)
    facts = {"now": times.to_rfc3339(now), "latest": times.to_rfc3339(latest)}
    if latest > now + _FUTURE:
        return findings.needs_operator(
            name,
            f"The store's last entry is of {latest:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M}: this machine's clock is behind, or was ahead.",
            command="timedatectl set-ntp true",
            facts=facts,
        )
    return findings.ok(name, "It goes on from the store's last entry.", facts=facts)


async def nodes(store: Readable) -> findings.Finding:
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
        return of_fault(name, fault)
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


async def engines(store: Readable, *, now: datetime.datetime) -> findings.Finding:
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
        return of_fault(name, fault)
    facts = {"alive": alive, "gone": gone, "sessions": held, "sessions_lost": lost}
    text = f"{alive} alive, {held} sessions."
    if gone:
        return findings.warning(
            name, f"{text} {gone} ended without saying so and are not back.", facts=facts
        )
    return findings.ok(name, text, facts=facts)


async def leases(store: Readable, *, now: datetime.datetime) -> findings.Finding:
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
        return of_fault(name, fault)
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


async def mesh(store: Readable, *, now: datetime.datetime) -> findings.Finding:
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
        return of_fault(name, fault)
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


async def backup(store: Readable, *, now: datetime.datetime, environment: str) -> findings.Finding:
    """When the last backup was made; in production one is expected each week."""
    name = "backup"

    async def look(tx: contract.Tx) -> str | None:
        row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = 'last_backup'")
        return None if row is None else str(row["value"])

    try:
        kept = await store.read(look)
    except contract.StoreError as fault:
        return of_fault(name, fault)
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


async def tables(store: Readable) -> dict[str, list[dict[str, Any]]]:
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


def of_fault(name: str, fault: contract.StoreError) -> findings.Finding:
    """The finding for a store that refuses to answer."""
    if isinstance(fault, contract.StoreBusy | contract.StoreAway):
        return findings.transient(name, str(fault), command="enlist doctor   (again in a minute)")
    if isinstance(fault, contract.StoreFull):
        return findings.needs_operator(name, str(fault), command="df -h")
    return findings.needs_operator(
        name, str(fault), command="enlist backup restore FILE   (if the store is damaged)"
    )
