"""One transaction on a PostgreSQL connection, and what asyncpg's errors mean.

`LOST_RACE` and `GONE` are the errors after which a transaction that was not committed may be run
again; `postgres` decides about that. Every other foreign error ends here, as one of ours.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import asyncpg

from platform_server.store import contract, placeholders

_APPEND_LOCK = "append"

LOST_RACE = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # What asyncpg says when the server ended the session between two statements.
    asyncpg.InternalClientError,
    OSError,
)
_KINDS: tuple[tuple[tuple[type[Exception], ...], type[contract.StoreError]], ...] = (
    (
        (asyncpg.DiskFullError, asyncpg.OutOfMemoryError, asyncpg.PostgresIOError),
        contract.StoreFull,
    ),
    (
        (
            *LOST_RACE,
            asyncpg.LockNotAvailableError,
            asyncpg.QueryCanceledError,
            asyncpg.TooManyConnectionsError,
            asyncpg.CannotConnectNowError,
            TimeoutError,
        ),
        contract.StoreBusy,
    ),
    ((asyncpg.IntegrityConstraintViolationError,), contract.StoreConflict),
    ((asyncpg.DataError, UnicodeEncodeError, OverflowError), contract.StoreInvalid),
)


def translate(error: Exception) -> contract.StoreError:
    """Our error for one of asyncpg's; the caller raises it from the original."""
    for foreign, kind in _KINDS:
        if isinstance(error, foreign):
            return kind(f"{(kind.__doc__ or '').rstrip('.')} ({type(error).__name__}).")
    if isinstance(error, (*GONE, asyncpg.InterfaceError)):
        return contract.StoreAway(
            f"PostgreSQL cannot be reached ({type(error).__name__}): check that it runs. It works "
            "again once the database answers."
        )
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return contract.StoreUnreachable(
            "PostgreSQL does not accept the account of --database-url: check user and password."
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return contract.StoreUnreachable(
            "The database of --database-url does not exist: create it (CREATE DATABASE)."
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError | asyncpg.InsufficientPrivilegeError):
        return contract.StoreUnreachable(
            f"PostgreSQL does not let Enlist write ({error}): check the server and its rights."
        )
    return contract.StoreError(f"The store refused a statement: {error}")


class PostgresTx:
    """The transaction of one work function on one connection."""

    __slots__ = ("_connection", "cause", "failure")

    dialect = contract.Dialect.POSTGRESQL

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.failure: contract.StoreError | None = None
        self.cause: Exception | None = None

    async def execute(self, sql: str, *values: object) -> int:
        """Run a statement; how many rows it changed."""
        with self._translating():
            status: str = await self._connection.execute(placeholders.numbered(sql), *values)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() and not status.startswith("SELECT") else 0

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        with self._translating():
            return cast(
                "contract.Row | None",
                await self._connection.fetchrow(placeholders.numbered(sql), *values),
            )

    async def fetch_all(self, sql: str, *values: object) -> Sequence[contract.Row]:
        """All rows."""
        with self._translating():
            return cast(
                "Sequence[contract.Row]",
                await self._connection.fetch(placeholders.numbered(sql), *values),
            )

    async def lock(self, name: str) -> None:
        """Hold the advisory lock of this name until the transaction ends."""
        await self.fetch_one(
            "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", f"enlist:{name}"
        )

    async def lock_append(self) -> None:
        """Hold the lock of the append-only tables until the transaction ends."""
        await self.lock(_APPEND_LOCK)

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except (asyncpg.PostgresError, asyncpg.InterfaceError, *_FOREIGN) as error:
            self.cause = error
            self.failure = translate(error)
            raise self.failure from error


_FOREIGN = (OSError, UnicodeEncodeError, OverflowError, asyncpg.InternalClientError)
