"""What the rest of the Platform may rely on, whichever database stands below.

A caller writes a work function, `async def work(tx): …`, and hands it to the store. The store
runs it in one transaction and may run it again after it lost a race (PostgreSQL), so a work
function changes nothing but the store, and it awaits nothing but its `tx`: on SQLite it runs on
the writer's thread, where nothing else can be awaited.

SQL uses `?` for values and the subset that SQLite 3.40 and PostgreSQL 15 share (RETURNING,
ON CONFLICT). Times are microseconds since 1970 in UTC, truth is 0 or 1, JSON is text.

Isolation: SQLite runs one writer at a time. PostgreSQL runs READ COMMITTED, so a decision rests
on a conditional write (`UPDATE … WHERE state = 'pending'`, one row changed or not) or is made
after `tx.lock(name)`; a read followed by a write proves nothing by itself.

Known limit: after any statement failed, the transaction is over, as PostgreSQL has it. A work
function that swallows the error gets it raised by `transact` all the same.
"""

import dataclasses
import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from platform_server.store import signals

T = TypeVar("T")


class StoreError(Exception):
    """The store refused a statement: that is a fault of ours; please report it."""


class StoreBusy(StoreError):
    """The store is busy: another process holds it, or too much waits; try again soon."""


class StoreFull(StoreError):
    """The store could not write: the disk is full or failing; nothing was changed, free space."""


class StoreNewer(StoreError):
    """The store was made by a newer Enlist: install that version or a newer one."""


class StoreUnreachable(StoreError):
    """The store cannot be reached or read; the message says why and what to do."""


class StoreAway(StoreUnreachable):
    """The database server does not answer; this works again by itself once it does."""


class StoreConflict(StoreError):
    """A row breaks a rule of the store (one that must be unique exists): nothing was changed."""


class StoreInvalid(StoreError):
    """A value cannot be stored (a NUL character, a lone surrogate, a number out of range)."""


class Dialect(enum.StrEnum):
    """The two databases."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Row(Protocol):
    """One row, read by column name: `row["node_id"]`. Not changed, not kept for long."""

    def __getitem__(self, key: str, /) -> Any:
        """The column's value; raises IndexError or KeyError for an unknown name."""
        ...


class Tx(Protocol):
    """A transaction. Each call is one statement; values are given for its `?` in order."""

    @property
    def dialect(self) -> Dialect:
        """The database below, for the rare statement that must differ."""
        ...

    async def execute(self, sql: str, *values: object) -> int:
        """Run a statement; how many rows it changed."""
        ...

    async def fetch_one(self, sql: str, *values: object) -> Row | None:
        """The first row, or None."""
        ...

    async def fetch_all(self, sql: str, *values: object) -> Sequence[Row]:
        """All rows; the statement bounds them with LIMIT."""
        ...

    async def lock(self, name: str) -> None:
        """Until the end, no other transaction that locks this name runs beside this one.

        Take it before reading what the decision rests on, and before `lock_append`. Costs
        nothing on SQLite, where one writer runs at a time anyway.
        """
        ...

    async def lock_append(self) -> None:
        """The lock under which the next `seq` of `action_log` and `events` is chosen.

        Take it late: it makes transactions wait for one another until their commit.
        """
        ...


Work = Callable[[Tx], Awaitable[T]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the store answers and takes writes; `detail` is a sentence when it does not."""

    ok: bool
    detail: str
    dialect: Dialect
    migration: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much the store holds. `wal_bytes` and `free_bytes` are zero on PostgreSQL."""

    database_bytes: int
    wal_bytes: int
    free_bytes: int


class Store(Protocol):
    """The Platform's state. Every call is bounded in time and may raise `StoreError`.

    Of its kinds, `StoreBusy`, `StoreFull` and `StoreUnreachable` are transient: the caller
    answers 503 and nothing was changed, unless the message says that the outcome is unknown.
    """

    @property
    def dialect(self) -> Dialect:
        """The database below."""
        ...

    async def transact(self, work: Work[T]) -> T:
        """Run work in one write transaction; returns once its commit is durable.

        Whatever work raises rolls it back and is raised here.
        """
        ...

    async def rehearse(self, work: Work[T]) -> T:
        """Run work as `transact` would and roll it back: check mode."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run work on one snapshot that cannot be written."""
        ...

    async def health(self) -> Health:
        """Ask the store; never raises."""
        ...

    async def sizes(self) -> Sizes:
        """How large it has grown."""
        ...

    def signal(self, channel: str, payload: str) -> None:
        """Wake whoever listens, in every engine of this store; may be lost (see `signals`).

        Sent from an event loop, waits for nothing and never fails. For after the commit of what
        it tells of.
        """
        ...

    def listen(self, channel: str, listener: signals.Listener) -> signals.Cancel:
        """Call the listener, on the event loop, for each signal; gives what ends that.

        It is called with an empty text once it hears, and whenever signals may have been missed.
        It must be quick.
        """
        ...

    async def close(self) -> None:
        """Let waiting work finish, bounded, then close; may be repeated."""
        ...
