"""Opens the store that `--database-url` names and brings it up to date.

`sqlite:///abs/path` (three or four slashes) or `postgresql://user@host:port/name`, whose other
parameters (`sslmode`, `passfile`, …) are libpq's.
"""

import pathlib

from platform_server.store import contract, migrations, sqlite
from runtime_kit import clock
from wire_protocol import product

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql://", "postgres://")


async def open_store(
    url: str,
    *,
    time: clock.Clock | None = None,
    busy_seconds: float = sqlite.BUSY_SECONDS,
    enlist_version: str = product.VERSION,
) -> contract.Store:
    """Open, create or upgrade the store.

    Raises ValueError for a URL out of shape, StoreNewer for the store of a newer Enlist, and
    the other kinds of StoreError when it cannot be opened; the caller prints the message and
    does not start.
    """
    store = await _connect(url, busy_seconds=busy_seconds)
    now_micros = clock.to_micros((time or clock.SystemClock()).now())
    try:
        await store.transact(
            lambda tx: migrations.apply(tx, now_micros=now_micros, enlist_version=enlist_version)
        )
    except BaseException:
        await store.close()
        raise
    return store


def sqlite_path(url: str) -> pathlib.Path:
    """The file of a `sqlite:///` URL. Raises ValueError when it names none."""
    path = "/" + url.removeprefix(_SQLITE).lstrip("/")
    if not url.startswith(_SQLITE) or path == "/" or "?" in path or "\0" in path:
        raise ValueError("A SQLite store is named by its full path: sqlite:///full/path/enlist.db")
    return pathlib.Path(path)


async def _connect(url: str, *, busy_seconds: float) -> contract.Store:
    if url.startswith(_SQLITE):
        store = sqlite.SqliteStore(
            sqlite_path(url), busy_seconds=busy_seconds, readers=sqlite.READERS
        )
        await store.start()
        return store
    if url.startswith(_POSTGRESQL):
        # asyncpg costs memory and start-up time that a Platform on SQLite need not pay.
        from platform_server.store import postgres  # noqa: PLC0415

        return await postgres.connect(url, busy_seconds=busy_seconds)
    raise ValueError("--database-url starts with sqlite:/// or postgresql://")
