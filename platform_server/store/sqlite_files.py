"""The files of the SQLite store: private from the first byte, opened one way, errors translated.

The database file is made before SQLite sees it, with its final mode; SQLite gives `-wal` and
`-shm` the mode of the database file, whatever the umask. An existing file is looked at by path
only: closing a descriptor of it would drop the locks that another connection of this process
holds on it (POSIX record locks belong to the process).
"""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import stat
import time

from platform_server.store import contract

PRIVATE = 0o600
WAL_KEPT_BYTES = 16 * 1024 * 1024
"""A log that a burst has blown up is cut back to this at the next checkpoint."""

CHECKPOINT_PAGES = 1000
"""Pages in the log after which a commit also checkpoints: SQLite's own default, 4 MB."""

STATEMENTS_KEPT = 512
"""Prepared statements a connection keeps; the Platform has fewer."""

NO_SPACE_BYTES = 256 * 1024
"""With less than this free, failing to make a file is the full disk's fault."""

_WRONG_TYPE = 3091
"""SQLITE_CONSTRAINT_DATATYPE, which the sqlite3 module of Python 3.11 does not name."""

SWITCH_PAUSE_SECONDS = 0.01
"""Between two tries to switch a new file to its write-ahead log."""

_KINDS: dict[int, type[contract.StoreError]] = {
    sqlite3.SQLITE_BUSY: contract.StoreBusy,
    sqlite3.SQLITE_LOCKED: contract.StoreBusy,
    sqlite3.SQLITE_FULL: contract.StoreFull,
    sqlite3.SQLITE_IOERR: contract.StoreFull,
    sqlite3.SQLITE_NOMEM: contract.StoreFull,
    sqlite3.SQLITE_CONSTRAINT: contract.StoreConflict,
    sqlite3.SQLITE_MISMATCH: contract.StoreInvalid,
    sqlite3.SQLITE_TOOBIG: contract.StoreInvalid,
    sqlite3.SQLITE_READONLY: contract.StoreUnreachable,
    sqlite3.SQLITE_CANTOPEN: contract.StoreUnreachable,
    sqlite3.SQLITE_PERM: contract.StoreUnreachable,
    sqlite3.SQLITE_AUTH: contract.StoreUnreachable,
    sqlite3.SQLITE_CORRUPT: contract.StoreUnreachable,
    sqlite3.SQLITE_NOTADB: contract.StoreUnreachable,
    sqlite3.SQLITE_PROTOCOL: contract.StoreBusy,
}


def translate(error: Exception, *, path: pathlib.Path) -> contract.StoreError:
    """Our error for one of SQLite's; the caller raises it from the original."""
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return contract.StoreInvalid(f"A value cannot be stored: {error}")
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None:
        return contract.StoreError(f"The store refused a statement: {error}")
    primary = code & 0xFF
    kind = (
        contract.StoreInvalid if code == _WRONG_TYPE else _KINDS.get(primary, contract.StoreError)
    )
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and not _has_space(path):
        kind = contract.StoreFull
    name = getattr(error, "sqlite_errorname", "")
    if kind is contract.StoreUnreachable:
        return kind(_advice(primary, path=path, error=error))
    if kind is contract.StoreError:
        return kind(f"The store refused a statement: {error} ({name}).")
    return kind(f"{(kind.__doc__ or '').rstrip('.')} ({name}).")


def prepare(path: pathlib.Path) -> None:
    """Make the database file with mode 0600, or see that the one there is ours and private.

    Raises StoreUnreachable when it belongs to another account or cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        _tighten(path)
        return
    except OSError as error:
        kind = contract.StoreUnreachable if _has_space(path) else contract.StoreFull
        raise kind(f"The store {path} cannot be made: {error.strerror}.") from error
    try:
        os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def connect(path: pathlib.Path, *, read_only: bool, busy_seconds: float) -> sqlite3.Connection:
    """Open a connection set up our way. Raises StoreError of the kind that fits."""
    try:
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS_KEPT,
            timeout=busy_seconds,
        )
    except sqlite3.Error as error:
        raise translate(error, path=path) from error
    try:
        connection.row_factory = sqlite3.Row
        mode = _write_ahead(connection, seconds=busy_seconds)
        if mode != "wal":
            raise contract.StoreUnreachable(
                f"The store {path} lies on a file system on which SQLite cannot keep a "
                f"write-ahead log (it stays in mode {mode!r}): put it on a local disk."
            )
        # FULL: a commit is on the disk before it is answered, also after a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA trusted_schema = OFF")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, path=path) from error
    except contract.StoreError:
        connection.close()
        raise
    return connection


def recognise(path: pathlib.Path) -> None:
    """See that the file is empty or an Enlist store, changing nothing.

    Raises StoreUnreachable for anything else: another program's database is left alone.
    """
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error as error:
        raise translate(error, path=path) from error
    finally:
        connection.close()
    if tables and "migrations" not in tables:
        raise contract.StoreUnreachable(_advice(sqlite3.SQLITE_NOTADB, path=path, error=None))


def sizes(connection: sqlite3.Connection, *, path: pathlib.Path) -> contract.Sizes:
    """What the files take on the disk, and how much of it is free for new rows."""
    free_pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    return contract.Sizes(
        database_bytes=_size(path),
        wal_bytes=_size(path.with_name(f"{path.name}-wal")),
        free_bytes=free_pages * page_bytes,
    )


def _write_ahead(connection: sqlite3.Connection, *, seconds: float) -> str:
    """Switch to the write-ahead log; the journal mode after it.

    Two connections that switch a new file at once refuse each other without using the time-out,
    lest they wait for one another; so the wait is here.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(SWITCH_PAUSE_SECONDS)


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _tighten(path: pathlib.Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(f"{path.name}{suffix}")
        try:
            info = file.stat()
            if not stat.S_ISREG(info.st_mode):
                raise contract.StoreUnreachable(f"{file} is no file: give the store another path.")
            if info.st_uid != os.geteuid():
                raise contract.StoreUnreachable(
                    f"{file} belongs to uid {info.st_uid}, not to uid {os.geteuid()}: "
                    "start the Platform as its owner."
                )
            if stat.S_IMODE(info.st_mode) != PRIVATE:
                file.chmod(PRIVATE)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise contract.StoreUnreachable(f"{file} cannot be read: {error.strerror}.") from error


def _has_space(path: pathlib.Path) -> bool:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free >= NO_SPACE_BYTES
    return True


def _advice(primary: int, *, path: pathlib.Path, error: Exception | None) -> str:
    if primary == sqlite3.SQLITE_NOTADB:
        return f"{path} is not an Enlist store: give --database-url another path."
    if primary == sqlite3.SQLITE_CORRUPT:
        return f"The store {path} is damaged ({error}): restore a backup."
    return f"The store {path} cannot be opened or written ({error}): check its owner and its disk."
