"""One snapshot of a store, read in pages by somebody who takes his time (a backup).

`contract.Store.read` runs a short work function on a reader's thread or on a connection of the
pool, may run it again, and gives up after half a minute. Here a connection of its own holds one
snapshot for as long as the `async with` lasts, while the engine goes on writing.

Known limit: while it lasts, SQLite's write-ahead log cannot shrink and PostgreSQL keeps old row
versions; so the caller bounds how long it may last.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from platform_server.store import contract, opening, placeholders, sqlite_files

T = TypeVar("T")

PAGE_ROWS: Final = 500
_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 15.0
_IDLE_SECONDS: Final = 300  # longer than any reader may take for one part


class Snapshot(Protocol):
    """Reads that all see the same moment."""

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        ...

    async def fetch_all(self, sql: str, *values: object) -> Sequence[contract.Row]:
        """All rows; the statement bounds them."""
        ...

    def pages(self, table: str) -> AsyncIterator[Sequence[contract.Row]]:
        """Every row of a table, `PAGE_ROWS` at a time; `table` is a name of our own."""
        ...


@contextlib.asynccontextmanager
async def taken(url: str, *, busy_seconds: float) -> AsyncIterator[Snapshot]:
    """A snapshot of the store that the URL names; raises `StoreError`, or ValueError for the URL.

    The store is there already and up to date: an engine works on it.
    """
    opened = _sqlite if url.startswith("sqlite:") else _postgres
    async with opened(url, busy_seconds=busy_seconds) as snapshot:
        # A snapshot begins with its first statement on either database.
        await snapshot.fetch_one("SELECT MAX(version) AS version FROM migrations")
        yield snapshot


@contextlib.asynccontextmanager
async def _sqlite(url: str, *, busy_seconds: float) -> AsyncIterator[Snapshot]:
    path = opening.sqlite_path(url)
    connection = await asyncio.to_thread(
        sqlite_files.connect, path, read_only=True, busy_seconds=busy_seconds
    )
    snapshot = _SqliteSnapshot(connection, translate=lambda e: sqlite_files.translate(e, path=path))
    try:
        await snapshot.run(lambda: connection.execute("BEGIN"))
        yield snapshot
    finally:
        await asyncio.shield(asyncio.to_thread(connection.close))


class _SqliteSnapshot:
    """On a connection of its own; each step in a thread, one at a time."""

    def __init__(
        self, connection: sqlite3.Connection, *, translate: Callable[[Exception], Exception]
    ) -> None:
        self._connection = connection
        self._translate = translate
        self._turn = asyncio.Lock()

    async def run(self, step: Callable[[], T]) -> T:
        """Runs one step off the loop; raises `StoreError`."""
        async with self._turn:
            try:
                return await asyncio.to_thread(step)
            except sqlite3.Error as error:
                raise self._translate(error) from error

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        row: contract.Row | None = await self.run(
            lambda: self._connection.execute(sql, values).fetchone()
        )
        return row

    async def fetch_all(self, sql: str, *values: object) -> Sequence[contract.Row]:
        """All rows."""
        return await self.run(lambda: self._connection.execute(sql, values).fetchall())

    async def pages(self, table: str) -> AsyncIterator[Sequence[contract.Row]]:
        """Every row of a table."""
        cursor = await self.run(lambda: self._connection.execute(_all_of(table)))
        while page := await self.run(lambda: cursor.fetchmany(PAGE_ROWS)):
            yield page


@contextlib.asynccontextmanager
async def _postgres(url: str, *, busy_seconds: float) -> AsyncIterator[Snapshot]:
    # asyncpg costs memory and start-up time that a Platform on SQLite need not pay.
    import asyncpg  # noqa: PLC0415

    from platform_server.store import postgres_tx  # noqa: PLC0415

    try:
        connection: Any = await asyncpg.connect(
            url,
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS + _CONNECT_SECONDS,
            server_settings={
                "application_name": "enlist backup",
                "lock_timeout": str(int(busy_seconds * 1000)),
                "statement_timeout": str(int(_STATEMENT_SECONDS * 1000)),
                "idle_in_transaction_session_timeout": str(_IDLE_SECONDS * 1000),
                "timezone": "UTC",
            },
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise postgres_tx.translate(error) from error
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            yield _PostgresSnapshot(connection)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:  # an OSError may be its user's
        raise postgres_tx.translate(error) from error
    finally:
        await close_quietly(connection)


async def close_quietly(connection: Any) -> None:
    """Ends a PostgreSQL connection, also one that the server has ended already."""
    import asyncpg  # noqa: PLC0415 - as above

    try:
        await connection.close(timeout=_CONNECT_SECONDS)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        connection.terminate()


class _PostgresSnapshot:
    """On a connection of its own, in one REPEATABLE READ transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        row: contract.Row | None = await self._connection.fetchrow(
            placeholders.numbered(sql), *values
        )
        return row

    async def fetch_all(self, sql: str, *values: object) -> Sequence[contract.Row]:
        """All rows."""
        rows: Sequence[contract.Row] = await self._connection.fetch(
            placeholders.numbered(sql), *values
        )
        return rows

    async def pages(self, table: str) -> AsyncIterator[Sequence[contract.Row]]:
        """Every row of a table."""
        cursor = await self._connection.cursor(_all_of(table))
        while page := await cursor.fetch(PAGE_ROWS):
            yield page


def _all_of(table: str) -> str:
    return f"SELECT * FROM {table}"  # noqa: S608 - a name of our own, never input
