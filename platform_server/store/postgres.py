"""The store on PostgreSQL: a pool of connections, one transaction a work function.

Any number of engines share one database; each may be killed at any time. A transaction that
lost a race (serialization failure, deadlock) or its connection before the commit was asked for
is run again with full jitter, bounded by `busy_seconds`. A connection lost during the commit
leaves the outcome unknown, and the error says so.

Known limit: `sslmode` and passwords follow libpq's rules in the URL; over a network use
`?sslmode=verify-full`.
"""

import asyncio
import contextlib
import random
from typing import Any, TypeVar, cast

import asyncpg

from platform_server.store import contract, migrations, postgres_signals, postgres_tx, signals
from runtime_kit import crash_points, retry

T = TypeVar("T")

CONNECTIONS = 10
"""Connections an engine opens at most; a default server of 100 then serves several engines."""

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 15.0
"""No statement of ours takes longer on a healthy server; the server itself cuts it off."""

CLOSE_SECONDS = 7.0
"""How long closing waits for work under way: within the 10 s in which the Platform is gone."""

OLDEST_SERVER = 150_000
"""PostgreSQL 15, the oldest the suite has run on."""

RETRIES = retry.Schedule(first_seconds=0.01, cap_seconds=0.5, tries=10)

BEFORE_COMMIT = crash_points.declare(
    "store.before-postgres-commit", story="The work function has run, its commit was not asked for."
)
AFTER_COMMIT = crash_points.declare(
    "store.after-postgres-commit", story="PostgreSQL has committed, nobody has been answered."
)


class _Again(Exception):
    """The transaction may be run once more; the cause says why."""


class PostgresStore:
    """A `contract.Store` on a PostgreSQL database; made by `connect`, bound to one event loop."""

    dialect = contract.Dialect.POSTGRESQL

    def __init__(
        self, pool: Any, *, busy_seconds: float, carried: postgres_signals.PostgresSignals
    ) -> None:
        self._pool = pool
        self._signals = carried
        self._busy_seconds = busy_seconds
        self._chance = random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._returning: set[asyncio.Task[None]] = set()

    async def transact(self, work: contract.Work[T]) -> T:
        """Run work in one write transaction; see `contract.Store.transact`."""
        return await self._patiently(work, begin="BEGIN", keep=True)

    async def rehearse(self, work: contract.Work[T]) -> T:
        """Run work and roll it back; see `contract.Store.rehearse`."""
        return await self._patiently(work, begin="BEGIN", keep=False)

    async def read(self, work: contract.Work[T]) -> T:
        """Run work on one snapshot; see `contract.Store.read`."""
        return await self._patiently(
            work, begin="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", keep=False
        )

    async def health(self) -> contract.Health:
        """Whether a connection answers and the server takes writes."""
        try:
            migration = await self.rehearse(migrations.newest)
        except contract.StoreError as error:
            return contract.Health(ok=False, detail=str(error), dialect=self.dialect, migration=0)
        return contract.Health(ok=True, detail="", dialect=self.dialect, migration=migration)

    async def sizes(self) -> contract.Sizes:
        """The database's size as the server counts it."""

        async def ask(tx: contract.Tx) -> int:
            row = await tx.fetch_one("SELECT pg_database_size(current_database()) AS size")
            return int(row["size"]) if row is not None else 0

        return contract.Sizes(database_bytes=await self.read(ask), wal_bytes=0, free_bytes=0)

    def signal(self, channel: str, payload: str) -> None:
        """Wake whoever listens, in every engine; see `contract.Store.signal`."""
        self._signals.signal(channel, payload)

    def listen(self, channel: str, listener: signals.Listener) -> signals.Cancel:
        """Call the listener for each signal; see `contract.Store.listen`."""
        return self._signals.listen(channel, listener)

    async def close(self) -> None:
        """Finish what is under way, at most CLOSE_SECONDS, and close; may be repeated."""
        if self._closed:
            return
        self._closed = True
        await self._signals.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _patiently(self, work: contract.Work[T], *, begin: str, keep: bool) -> T:
        if self._closed:
            raise contract.StoreUnreachable("The store is closed; the Platform is stopping.")
        self._running += 1
        self._idle.clear()
        try:
            return await self._repeatedly(work, begin=begin, keep=keep)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _repeatedly(self, work: contract.Work[T], *, begin: str, keep: bool) -> T:
        waits = RETRIES.waits(chance=self._chance)
        while True:
            try:
                return await self._once(work, begin=begin, keep=keep)
            except _Again as again:
                cause = cast("Exception", again.__cause__)
                pause = next(waits, None)
                if pause is None:
                    raise postgres_tx.translate(cause) from cause
            await asyncio.sleep(pause)

    async def _once(self, work: contract.Work[T], *, begin: str, keep: bool) -> T:
        connection = await self._acquire()
        try:
            return await self._on(connection, work, begin=begin, keep=keep)
        finally:
            if _has_open_transaction(connection):
                # The work failed or its caller was cancelled, perhaps twice: giving back the
                # connection outlives the caller.
                returning = asyncio.create_task(self._take_back(connection), name="store-rollback")
                self._returning.add(returning)
                returning.add_done_callback(self._returning.discard)
                await asyncio.shield(returning)
            else:
                await self._pool.release(connection)

    async def _take_back(self, connection: Any) -> None:
        try:
            await connection.execute("ROLLBACK", timeout=self._busy_seconds)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            _drop(connection)
        await self._pool.release(connection)

    async def _acquire(self) -> Any:
        try:
            return await self._pool.acquire(timeout=self._busy_seconds)
        except postgres_tx.GONE as error:
            if isinstance(error, TimeoutError):
                raise postgres_tx.translate(error) from error
            raise _Again from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise postgres_tx.translate(error) from error

    async def _on(self, connection: Any, work: contract.Work[T], *, begin: str, keep: bool) -> T:
        tx = postgres_tx.PostgresTx(connection)
        try:
            await tx.execute(begin)
            value = await work(tx)
        except contract.StoreError:
            if self._worth_repeating(connection, tx.cause):
                if not isinstance(tx.cause, postgres_tx.LOST_RACE):
                    _drop(connection)
                raise _Again from tx.cause
            raise
        if tx.failure is not None:
            raise tx.failure
        if keep:
            await self._commit(connection)
        else:
            await tx.execute("ROLLBACK")
        return value

    def _worth_repeating(self, connection: Any, cause: Exception | None) -> bool:
        """Whether nothing was committed and another try may fare better."""
        if isinstance(cause, TimeoutError):
            return False
        return isinstance(cause, (*postgres_tx.LOST_RACE, *postgres_tx.GONE)) or (
            isinstance(cause, asyncpg.InterfaceError) and _is_lost(connection)
        )

    async def _commit(self, connection: Any) -> None:
        crash_points.reach(BEFORE_COMMIT)
        try:
            said = await connection.execute("COMMIT")
        except postgres_tx.LOST_RACE as error:
            raise _Again from error
        except (*postgres_tx.GONE, asyncpg.InterfaceError) as error:
            raise contract.StoreUnreachable(
                "PostgreSQL was lost during a commit: whether the change was written is "
                "unknown, asking again is safe."
            ) from error
        except asyncpg.PostgresError as error:
            raise postgres_tx.translate(error) from error
        if said != "COMMIT":
            raise contract.StoreError(f"PostgreSQL answered {said} to a commit.")
        crash_points.reach(AFTER_COMMIT)


async def connect(url: str, *, busy_seconds: float) -> PostgresStore:
    """Connect to the server.

    Raises StoreAway or StoreBusy when it does not answer, and StoreUnreachable when it answers and
    a person must act (account, database, version, encoding).
    """
    milliseconds = str(int(busy_seconds * 1000))
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS + CONNECT_SECONDS,
            statement_cache_size=512,
            max_cached_statement_lifetime=0,
            reset=_nothing_to_reset,
            server_settings={
                "application_name": "enlist",
                "lock_timeout": milliseconds,
                "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
                "idle_in_transaction_session_timeout": "60000",
                # A commit is on the disk before it is answered, whatever the server's default.
                "synchronous_commit": "on",
                "timezone": "UTC",
            },
        )
    except ValueError as error:
        raise ValueError(
            "--database-url is no PostgreSQL URL: see the docs for its form."
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise postgres_tx.translate(error) from error
    store = PostgresStore(
        pool, busy_seconds=busy_seconds, carried=postgres_signals.PostgresSignals(url)
    )
    try:
        await store.read(_check_server)
    except BaseException:
        await store.close()
        raise
    return store


def _is_lost(connection: Any) -> bool:
    """Whether the pool's connection is gone; asyncpg then takes it back by itself."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def _drop(connection: Any) -> None:
    """Give up a connection in an unknown state; the server takes back what it left open."""
    with contextlib.suppress(asyncpg.InterfaceError):
        connection.terminate()


def _has_open_transaction(connection: Any) -> bool:
    return not _is_lost(connection) and bool(connection.is_in_transaction())


async def _nothing_to_reset(connection: Any) -> None:
    """Our transactions leave nothing in a session; the default costs a round trip for each."""


async def _check_server(tx: contract.Tx) -> None:
    row = await tx.fetch_one(
        "SELECT current_setting('server_version_num') AS version,"
        " current_setting('server_encoding') AS encoding"
    )
    if row is None or int(row["version"]) < OLDEST_SERVER:
        raise contract.StoreUnreachable("PostgreSQL is too old: Enlist needs 15 or newer.")
    if row["encoding"] != "UTF8":
        raise contract.StoreUnreachable(
            f"The database's encoding is {row['encoding']}: create it with ENCODING 'UTF8'."
        )
