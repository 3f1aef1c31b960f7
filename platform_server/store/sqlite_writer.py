"""The one thread that writes to SQLite, with group commit.

Whatever waits when the writer becomes free shares one transaction: one sync of the disk for all.
Each work function stands in a savepoint of its own, so one that fails takes back only its own
changes. Callers hear of success after the shared commit.

A lock held by another process is waited for in short slices, so that every caller waits at most
its own limit and the writer is at work again at once when the lock goes (a "database is locked"
that lasts until a restart is what this is built against). When the disk is full, everybody in
the batch gets StoreFull, and the next batch starts on a fresh connection.
"""

import pathlib
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from platform_server.store import contract, jobs, sqlite_files
from runtime_kit import crash_points

MAX_BATCH = 128
"""Work functions that may share a commit; at 0.2 ms each the first waits 25 ms for the last."""

LOCK_SLICE_SECONDS = 0.1
"""How long one try for a foreign lock lasts before the writer looks at who still waits."""

RETRY_SECONDS = 0.05
"""Pause after a connection could not be made, so that a broken disk does not burn a core."""

BEFORE_COMMIT = crash_points.declare(
    "store.before-commit", story="Work functions have run, their shared commit has not begun."
)
AFTER_COMMIT = crash_points.declare(
    "store.after-commit", story="The commit is on the disk, nobody has been answered."
)

_FATAL = (contract.StoreFull, contract.StoreUnreachable, contract.StoreBusy)


class SqliteTx:
    """The transaction of one work function. Its methods never really suspend."""

    __slots__ = ("_cursor", "_path", "failure")

    dialect = contract.Dialect.SQLITE

    def __init__(self, cursor: sqlite3.Cursor, *, path: pathlib.Path) -> None:
        self._cursor = cursor
        self._path = path
        self.failure: contract.StoreError | None = None

    async def execute(self, sql: str, *values: object) -> int:
        """Run a statement; how many rows it changed."""
        self._run(sql, values)
        return max(self._cursor.rowcount, 0)

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        self._run(sql, values)
        try:
            row: contract.Row | None = self._cursor.fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return row

    async def fetch_all(self, sql: str, *values: object) -> Sequence[contract.Row]:
        """All rows."""
        self._run(sql, values)
        try:
            return self._cursor.fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    async def lock(self, name: str) -> None:
        """Nothing to do: one writer runs at a time."""

    async def lock_append(self) -> None:
        """Nothing to do: one writer runs at a time."""

    def _run(self, sql: str, values: tuple[object, ...]) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            self._cursor.execute(sql, values)
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> contract.StoreError:
        self.failure = sqlite_files.translate(error, path=self._path)
        return self.failure


class Writer:
    """What the writer's thread runs, from `run` to its return."""

    def __init__(self, path: pathlib.Path, *, mailbox: jobs.Mailbox) -> None:
        self._path = path
        self._mailbox = mailbox
        self._connection: sqlite3.Connection | None = None
        self.trouble: contract.StoreError | None = None
        """What the last batch failed with; None once a batch has been committed."""

    def open(self) -> None:
        """Make the first connection, so that a bad path is known at start."""
        self._connection = self._connect()

    def run(self) -> None:
        """Serve the mailbox until it is closed and empty."""
        while self._mailbox.wait():
            batch: list[jobs.Job[Any]] = []
            try:
                cursor = self._begin()
                if cursor is None:
                    continue
                batch = self._mailbox.take(MAX_BATCH)
                self._run_batch(cursor, batch)
                self.trouble = None
            except Exception as error:  # noqa: BLE001 - the writer outlives every fault
                self._fail(batch, error)
            self._mailbox.settle(batch)
        self._disconnect()

    def _begin(self) -> sqlite3.Cursor | None:
        """A transaction, or None when the foreign lock stayed and everybody has given up."""
        while self._mailbox.anybody_waits():
            try:
                if self._connection is None:
                    self._connection = self._connect()
                cursor = self._connection.cursor()
                cursor.execute("BEGIN IMMEDIATE")
            except (sqlite3.Error, contract.StoreError) as error:
                if not isinstance(error, contract.StoreError):
                    error = sqlite_files.translate(error, path=self._path)
                self.trouble = error
                if not isinstance(error, contract.StoreBusy):
                    time.sleep(RETRY_SECONDS)
                    raise error from None
            else:
                return cursor
        return None

    def _run_batch(self, cursor: sqlite3.Cursor, batch: list[jobs.Job[Any]]) -> None:
        changed = False
        for job in batch:
            tx = SqliteTx(cursor, path=self._path)
            cursor.execute("SAVEPOINT work")
            job.run(tx)
            if tx.failure is not None:
                if isinstance(tx.failure, _FATAL):
                    raise tx.failure
                job.error = job.error or tx.failure
            if job.rehearsal or job.error is not None:
                cursor.execute("ROLLBACK TO work")
            else:
                changed = True
            cursor.execute("RELEASE work")
        if not changed:
            cursor.execute("ROLLBACK")
            return
        crash_points.reach(BEFORE_COMMIT)
        cursor.execute("COMMIT")
        crash_points.reach(AFTER_COMMIT)

    def _fail(self, batch: list[jobs.Job[Any]], error: Exception) -> None:
        """Nothing of this batch was written: tell everybody, and start afresh."""
        self._disconnect()
        if not isinstance(error, contract.StoreError):
            error = sqlite_files.translate(error, path=self._path)
        self.trouble = error
        # A failed start has taken nobody yet; those who wait are told now, not at their limit.
        batch.extend(self._mailbox.take(MAX_BATCH) if not batch else [])
        for job in batch:
            # One each: a shared exception would gather the tracebacks of all its raisers.
            job.error = type(error)(*error.args)
            job.error.__cause__ = error

    def _connect(self) -> sqlite3.Connection:
        sqlite_files.prepare(self._path)
        return sqlite_files.connect(self._path, read_only=False, busy_seconds=LOCK_SLICE_SECONDS)

    def _disconnect(self) -> None:
        """Close, which takes back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # closing takes it back as well
        finally:
            connection.close()
