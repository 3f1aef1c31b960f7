"""The store of a Platform that does not run, opened for reading alone and never brought up to date.

SQLite: without a write-ahead log nothing else can be at work, and the file is opened as one that
does not change, so that no file is made beside it; with one, SQLite reads through it. PostgreSQL:
as an engine connects.
"""

import asyncio
import contextlib
import pathlib
import sqlite3
from collections.abc import AsyncIterator
from typing import TypeVar

from platform_server.doctor import stored
from platform_server.sealing import envelope, key_file, sealed_rows
from platform_server.store import contract, jobs, opening, sqlite_files, sqlite_writer
from wire_protocol import findings

T = TypeVar("T")
_BUSY_SECONDS = 3.0


class StoppedSqlite:
    """One SQLite file, read on the caller's behalf in a thread."""

    dialect = contract.Dialect.SQLITE

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    async def read(self, work: contract.Work[T]) -> T:
        """Runs work on one snapshot; raises `StoreError`."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: contract.Work[T]) -> T:
        wal = self._path.with_name(f"{self._path.name}-wal")
        still = "mode=ro" if wal.exists() else "mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(
                f"{self._path.as_uri()}?{still}", uri=True, isolation_level=None,
                timeout=_BUSY_SECONDS,
            )  # fmt: skip
        except sqlite3.Error as error:
            raise sqlite_files.translate(error, path=self._path) from error
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            try:
                cursor = connection.cursor()
                cursor.execute("BEGIN")
            except sqlite3.Error as error:
                raise sqlite_files.translate(error, path=self._path) from error
            return jobs.drive(work, sqlite_writer.SqliteTx(cursor, path=self._path))


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[stored.Readable]:
    """The store for the length of a block; raises `StoreError`, and `ValueError` for a bad URL."""
    if url.startswith("sqlite:"):
        path = opening.sqlite_path(url)
        if not path.exists():
            raise contract.StoreUnreachable(
                f"There is no store at {path}. If the Platform was started with --database-url or "
                "--config, put that setting into its config.toml, so that it is found."
            )
        yield StoppedSqlite(path)
        return
    from platform_server.store import postgres  # noqa: PLC0415 - as in `opening`

    store = await postgres.connect(url, busy_seconds=_BUSY_SECONDS)
    try:
        yield store
    finally:
        await store.close()


async def master_key(store: stored.Readable, *, path: pathlib.Path) -> findings.Finding:
    """Whether the master key there opens what the store holds sealed."""
    name = "master-key"
    try:
        keys = await asyncio.to_thread(key_file.read, path)
    except key_file.Unusable as fault:
        return findings.needs_operator(name, str(fault), command=f"ls -l {path}")

    async def look(tx: contract.Tx) -> bytes | None:
        row = await tx.fetch_one(
            "SELECT sealed FROM sealed_secrets WHERE name = ?", sealed_rows.CHECK
        )
        return None if row is None else bytes(row["sealed"])

    try:
        sealed = await store.read(look)
    except contract.StoreError as fault:
        return stored.of_fault(name, fault)
    if sealed is None:
        return findings.ok(name, "The store holds nothing sealed yet.")
    if not keys:
        return findings.needs_operator(
            name,
            f"The store is sealed, and its master key {path} is missing.",
            command=f"cp BACKUP/master.key {path}   (or copy it from another engine)",
        )
    try:
        envelope.Keyring(keys, current=keys[0].kek_id).open(sealed, name=sealed_rows.CHECK)
    except envelope.CannotOpen as fault:
        return findings.needs_operator(
            name,
            f"The master key {path} is not this store's: {fault}",
            command=f"cp BACKUP/master.key {path}   (or copy it from another engine)",
        )
    return findings.ok(name, "It opens what the store holds sealed.")
