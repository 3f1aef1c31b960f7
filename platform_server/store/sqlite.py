"""The store on SQLite: one writer's thread, a few readers' threads, one file.

The threads and the files are in `sqlite_writer` and `sqlite_files`; this is the contract's face
to the event loop. One engine works on the file at a time; other programs may hold it for a
while (a backup, a shell), then callers wait up to `busy_seconds` and get StoreBusy.

Known limit: a work function's Python runs on the writer's thread and shares the interpreter
lock with the event loop, so work functions decide and write, and compute elsewhere.
"""

import asyncio
import functools
import pathlib
import sqlite3
import threading
import time
from typing import TypeVar

from platform_server.store import (
    contract,
    jobs,
    migrations,
    signals,
    sqlite_files,
    sqlite_writer,
)

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long a caller waits for its turn before StoreBusy."""

READERS = 2
"""Threads that read beside the writer; more only help where the disk is slow."""

CLOSE_SECONDS = 7.0
"""How long closing waits for work under way: within the 10 s in which the Platform is gone."""


class SqliteStore:
    """A `contract.Store` on one SQLite file; made by `open_store`, bound to one event loop."""

    dialect = contract.Dialect.SQLITE

    def __init__(self, path: pathlib.Path, *, busy_seconds: float, readers: int) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._hub = signals.Hub()
        self._path = path
        self._busy_seconds = busy_seconds
        self._writes = jobs.Mailbox(loop=loop, wait_seconds=busy_seconds)
        self._reads = jobs.Mailbox(loop=loop, wait_seconds=busy_seconds)
        self._writer = sqlite_writer.Writer(path, mailbox=self._writes)
        # Daemons: a thread that the disk does not let go of must not keep the process alive.
        self._writer_thread = threading.Thread(
            target=self._writer.run, name="store-writer", daemon=True
        )
        self._reader_threads = [
            threading.Thread(target=self._read_on, name=f"store-reader-{number}", daemon=True)
            for number in range(readers)
        ]

    async def start(self) -> None:
        """Open the file and start the threads. Raises StoreError when it cannot be opened."""
        await asyncio.to_thread(self._open_patiently)
        for thread in (self._writer_thread, *self._reader_threads):
            thread.start()

    async def transact(self, work: contract.Work[T]) -> T:
        """Run work in one write transaction; see `contract.Store.transact`."""
        return await self._writes.post(work, rehearsal=False)

    async def rehearse(self, work: contract.Work[T]) -> T:
        """Run work and roll it back; see `contract.Store.rehearse`."""
        return await self._writes.post(work, rehearsal=True)

    async def read(self, work: contract.Work[T]) -> T:
        """Run work on one snapshot; see `contract.Store.read`."""
        return await self._reads.post(work, rehearsal=True)

    async def health(self) -> contract.Health:
        """Whether reads answer and the last batch of writes went through."""
        migration = 0
        trouble: contract.StoreError | None = None
        try:
            migration = await self.read(migrations.newest)
            if self._writer.trouble is not None:
                # Nothing may be written while the Platform is not ready, so look by ourselves
                # whether the disk or the lock has come free.
                await self.transact(_try_writing)
        except contract.StoreError as error:
            trouble = error
        return contract.Health(
            ok=trouble is None,
            detail="" if trouble is None else str(trouble),
            dialect=self.dialect,
            migration=migration,
        )

    async def sizes(self) -> contract.Sizes:
        """Database, log and free space in bytes."""
        return await asyncio.to_thread(self._measure)

    def signal(self, channel: str, payload: str) -> None:
        """Wake whoever listens in this engine, the only one."""
        signals.check_channel(channel)
        signals.check_payload(payload)
        self._loop.call_soon(self._hub.tell, channel, payload)

    def listen(self, channel: str, listener: signals.Listener) -> signals.Cancel:
        """Call the listener for each signal; see `contract.Store.listen`."""
        cancel = self._hub.add(channel, listener)
        tell = functools.partial(self._hub.tell_missed, listener, channel=channel)
        self._loop.call_soon(tell)
        return cancel

    async def close(self) -> None:
        """Finish what waits, at most CLOSE_SECONDS, and close; may be repeated."""
        self._reads.close()
        self._writes.close()
        threads = [*self._reader_threads, self._writer_thread]
        await asyncio.to_thread(_join, threads, seconds=CLOSE_SECONDS)

    def _open_patiently(self) -> None:
        # A new file is switched to its write-ahead log under a lock that may be taken; the
        # wait for it is SQLite's own and bounded by busy_seconds.
        sqlite_files.prepare(self._path)
        sqlite_files.recognise(self._path)
        sqlite_files.connect(self._path, read_only=False, busy_seconds=self._busy_seconds).close()
        self._writer.open()

    def _read_on(self) -> None:
        connection: sqlite3.Connection | None = None
        while self._reads.wait():
            for job in self._reads.take(1):
                try:
                    if connection is None:
                        connection = sqlite_files.connect(
                            self._path, read_only=True, busy_seconds=self._busy_seconds
                        )
                    self._read_once(connection, job)
                except Exception as error:  # noqa: BLE001 - the reader outlives every fault
                    job.error = (
                        error
                        if isinstance(error, contract.StoreError)
                        else sqlite_files.translate(error, path=self._path)
                    )
                if job.error is not None and connection is not None:
                    connection.close()
                    connection = None
                self._reads.settle([job])
        if connection is not None:
            connection.close()

    def _read_once(self, connection: sqlite3.Connection, job: jobs.Job[T]) -> None:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        tx = sqlite_writer.SqliteTx(cursor, path=self._path)
        job.run(tx)
        job.error = job.error or tx.failure
        cursor.execute("ROLLBACK")

    def _measure(self) -> contract.Sizes:
        connection = sqlite_files.connect(
            self._path, read_only=True, busy_seconds=self._busy_seconds
        )
        try:
            return sqlite_files.sizes(connection, path=self._path)
        except sqlite3.Error as error:
            raise sqlite_files.translate(error, path=self._path) from error
        finally:
            connection.close()


async def _try_writing(tx: contract.Tx) -> None:
    await tx.execute(
        "INSERT INTO platform_values (name, value) VALUES ('store.written-after-trouble', '1')"
        " ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(platform_values.value AS INTEGER) + 1"
        " AS TEXT)"
    )


def _join(threads: list[threading.Thread], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
