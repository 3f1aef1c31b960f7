"""Fills an empty store in one transaction of any length (a restore).

`contract.Store.transact` is for short work functions and cuts long ones off. Here a connection of
its own runs one transaction for as long as the `async with` lasts: committed at its end, taken
back when anything was raised or the process was killed.

Known limit: on SQLite it blocks the event loop it runs on; a restore has nothing else to do.
"""

import contextlib
import pathlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

from platform_server.store import contract, opening, snapshots, sqlite_files, sqlite_writer

_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 60.0
_LOCK: Final = "migrations"  # the one under which engines start: none comes in between


class Loader(Protocol):
    """The one transaction."""

    @property
    def tx(self) -> contract.Tx:
        """For statements, as in any transaction of the store."""
        ...

    async def insert(
        self, table: str, *, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Adds rows in one go; names are our own and checked by the caller."""
        ...

    async def tables(self) -> frozenset[str]:
        """The names of all tables there are, whoever made them."""
        ...

    async def columns(self, table: str) -> frozenset[str]:
        """The names of a table's columns."""
        ...

    async def catch_up_identities(self) -> None:
        """After rows with numbers of their own: the next number given is above them."""
        ...


def exists(url: str) -> bool:
    """Whether the database is there to be looked at; a SQLite file may not be."""
    return not url.startswith("sqlite:") or opening.sqlite_path(url).exists()


@contextlib.asynccontextmanager
async def opened(url: str, *, busy_seconds: float, write: bool) -> AsyncIterator[Loader]:
    """One transaction on the store that the URL names, committed at the end if `write`.

    Raises `StoreError`, and ValueError for a URL out of shape.
    """
    chosen = _sqlite if url.startswith("sqlite:") else _postgres
    async with chosen(url, busy_seconds=busy_seconds, write=write) as loader:
        await loader.tx.lock(_LOCK)
        yield loader


@contextlib.asynccontextmanager
async def _sqlite(url: str, *, busy_seconds: float, write: bool) -> AsyncIterator[Loader]:
    path = opening.sqlite_path(url)
    if write:
        sqlite_files.prepare(path)
    connection = (
        sqlite_files.connect(path, read_only=False, busy_seconds=busy_seconds)
        if write
        else _look_at(path)
    )
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        yield _SqliteLoader(cursor, path=path)
        cursor.execute("COMMIT" if write else "ROLLBACK")
    except sqlite3.Error as error:
        raise sqlite_files.translate(error, path=path) from error
    finally:
        connection.close()


def _look_at(path: pathlib.Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even the journal's mode."""
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise sqlite_files.translate(error, path=path) from error
    connection.row_factory = sqlite3.Row
    return connection


class _SqliteLoader:
    def __init__(self, cursor: sqlite3.Cursor, *, path: pathlib.Path) -> None:
        self._cursor = cursor
        self._path = path
        self.tx: contract.Tx = sqlite_writer.SqliteTx(cursor, path=path)

    async def insert(
        self, table: str, *, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        places = ", ".join("?" for _ in columns)
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608 - checked
        try:
            self._cursor.executemany(sql, rows)
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise sqlite_files.translate(error, path=self._path) from error

    async def tables(self) -> frozenset[str]:
        found = await self.tx.fetch_all(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        return frozenset(str(row["name"]) for row in found)

    async def columns(self, table: str) -> frozenset[str]:
        found = await self.tx.fetch_all("SELECT name FROM pragma_table_info(?)", table)
        return frozenset(str(row["name"]) for row in found)

    async def catch_up_identities(self) -> None:
        """AUTOINCREMENT has seen to it."""


@contextlib.asynccontextmanager
async def _postgres(url: str, *, busy_seconds: float, write: bool) -> AsyncIterator[Loader]:
    # asyncpg costs memory and start-up time that a Platform on SQLite need not pay.
    import asyncpg  # noqa: PLC0415

    from platform_server.store import postgres, postgres_tx  # noqa: PLC0415

    judged = await postgres.connect(url, busy_seconds=busy_seconds)  # its version and encoding
    await judged.close()
    try:
        connection: Any = await asyncpg.connect(
            url,
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS + _CONNECT_SECONDS,
            server_settings={
                "application_name": "enlist restore",
                "lock_timeout": str(int(busy_seconds * 1000)),
                "statement_timeout": str(int(_STATEMENT_SECONDS * 1000)),
                "synchronous_commit": "on",
                "timezone": "UTC",
            },
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise postgres_tx.translate(error) from error
    try:
        async with connection.transaction(readonly=not write):
            yield _PostgresLoader(connection, tx=postgres_tx.PostgresTx(connection))
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:  # an OSError may be its user's
        raise postgres_tx.translate(error) from error
    finally:
        await snapshots.close_quietly(connection)


class _PostgresLoader:
    def __init__(self, connection: Any, *, tx: contract.Tx) -> None:
        self._connection = connection
        self.tx = tx

    async def insert(
        self, table: str, *, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        await self._connection.copy_records_to_table(table, records=rows, columns=list(columns))

    async def tables(self) -> frozenset[str]:
        found = await self.tx.fetch_all(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        return frozenset(str(row["tablename"]) for row in found)

    async def columns(self, table: str) -> frozenset[str]:
        found = await self._columns(table, more="")
        return frozenset(str(row["column_name"]) for row in found)

    async def catch_up_identities(self) -> None:
        for table in await self.tables():
            for row in await self._columns(table, more=" AND is_identity = 'YES'"):
                column = row["column_name"]
                await self.tx.fetch_one(
                    "SELECT setval(pg_get_serial_sequence(?, ?), COALESCE("  # noqa: S608 - the
                    f"(SELECT MAX({column}) FROM {table}), 0) + 1, false)",  # catalogue's names
                    table,
                    column,
                )

    async def _columns(self, table: str, *, more: str) -> Sequence[contract.Row]:
        sql = (
            "SELECT column_name FROM information_schema.columns"  # noqa: S608 - `more` is ours
            f" WHERE table_schema = current_schema() AND table_name = ?{more}"
        )
        return await self.tx.fetch_all(sql, table)
