"""Foreign errors become the kind that says what to do, with a sentence."""

import sqlite3
from pathlib import Path

import asyncpg
import pytest

from platform_server.store import contract, opening, postgres_tx, sqlite_files

PATH = Path("/nonexistent/enlist.db")


def sqlite_error(code: int, name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


SQLITE = {
    "a lock": (sqlite_error(5, "SQLITE_BUSY"), contract.StoreBusy),
    "a lock, extended": (sqlite_error(261, "SQLITE_BUSY_RECOVERY"), contract.StoreBusy),
    "a full disk": (sqlite_error(13, "SQLITE_FULL"), contract.StoreFull),
    "a failing sync": (sqlite_error(1034, "SQLITE_IOERR_FSYNC"), contract.StoreFull),
    "a duplicate": (sqlite_error(2067, "SQLITE_CONSTRAINT_UNIQUE"), contract.StoreConflict),
    "a wrong type": (sqlite_error(3091, "SQLITE_CONSTRAINT_DATATYPE"), contract.StoreInvalid),
    "damage": (sqlite_error(11, "SQLITE_CORRUPT"), contract.StoreUnreachable),
    "no database": (sqlite_error(26, "SQLITE_NOTADB"), contract.StoreUnreachable),
    "no right to write": (sqlite_error(8, "SQLITE_READONLY"), contract.StoreUnreachable),
    "a wrong statement": (sqlite_error(1, "SQLITE_ERROR"), contract.StoreError),
    "a number too large": (OverflowError("too large"), contract.StoreInvalid),
}

POSTGRES = {
    "a lock": (asyncpg.LockNotAvailableError("x"), contract.StoreBusy),
    "a slow statement": (asyncpg.QueryCanceledError("x"), contract.StoreBusy),
    "no free connection": (TimeoutError(), contract.StoreBusy),
    "too many clients": (asyncpg.TooManyConnectionsError("x"), contract.StoreBusy),
    "a full disk": (asyncpg.DiskFullError("x"), contract.StoreFull),
    "a duplicate": (asyncpg.UniqueViolationError("x"), contract.StoreConflict),
    "a NUL": (asyncpg.CharacterNotInRepertoireError("x"), contract.StoreInvalid),
    "no server": (ConnectionRefusedError(), contract.StoreAway),
    "a session cut off": (asyncpg.AdminShutdownError("x"), contract.StoreAway),
    "a closed connection": (asyncpg.InterfaceError("x"), contract.StoreAway),
    "no such account": (
        asyncpg.InvalidAuthorizationSpecificationError("x"),
        contract.StoreUnreachable,
    ),
    "no such database": (asyncpg.InvalidCatalogNameError("x"), contract.StoreUnreachable),
    "a wrong password": (asyncpg.InvalidPasswordError("x"), contract.StoreUnreachable),
    "a standby": (asyncpg.ReadOnlySQLTransactionError("x"), contract.StoreUnreachable),
    "a wrong statement": (asyncpg.PostgresSyntaxError("x"), contract.StoreError),
}


@pytest.mark.parametrize(("error", "kind"), SQLITE.values(), ids=SQLITE.keys())
def test_sqlite_errors(error: Exception, kind: type[contract.StoreError]) -> None:
    translated = sqlite_files.translate(error, path=PATH)
    assert type(translated) is kind
    assert len(str(translated)) > 20


@pytest.mark.parametrize(("error", "kind"), POSTGRES.values(), ids=POSTGRES.keys())
def test_postgres_errors(error: Exception, kind: type[contract.StoreError]) -> None:
    translated = postgres_tx.translate(error)
    assert type(translated) is kind
    assert len(str(translated)) > 20


def test_every_kind_has_a_sentence() -> None:
    kinds = [contract.StoreError, *contract.StoreError.__subclasses__()]
    assert all((kind.__doc__ or "").endswith(".") for kind in kinds)


@pytest.mark.parametrize("url", ["sqlite:///srv/enlist.db", "sqlite:////srv/enlist.db"])
def test_a_sqlite_url_names_a_full_path(url: str) -> None:
    assert opening.sqlite_path(url) == Path("/srv/enlist.db")
