"""How the store stands, and the keys and dates in it: of a running engine, or of a store at rest.

Reads only, each question one short snapshot. Known limit: the integrity of a large SQLite store is
not looked at here, since that would keep a reader busy for minutes; the command for it is named.
"""

import datetime
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from platform_server.store import contract, migrations
from runtime_kit import clock as clock_kit
from wire_protocol import findings, times

T = TypeVar("T")

_INTEGRITY_BYTES: Final = 256 * 1024 * 1024  # read through in a second or two
_WAL_BYTES: Final = 64 * 1024 * 1024  # four times what is kept: something has been reading for long
_SOON: Final = datetime.timedelta(days=21)  # a port's certificate is renewed 30 days before its end
_KEYS_SOON: Final = datetime.timedelta(days=14)
_FUTURE: Final = datetime.timedelta(minutes=1)


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


def of_fault(name: str, fault: contract.StoreError) -> findings.Finding:
    """The finding for a store that refuses to answer."""
    if isinstance(fault, contract.StoreBusy | contract.StoreAway):
        return findings.transient(name, str(fault), command="enlist doctor   (again in a minute)")
    if isinstance(fault, contract.StoreFull):
        return findings.needs_operator(name, str(fault), command="df -h")
    return findings.needs_operator(
        name, str(fault), command="enlist backup restore FILE   (if the store is damaged)"
    )
