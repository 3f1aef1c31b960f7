"""Makes a backup while everything runs: one snapshot of the store, encrypted as it is read.

`prepare` looks at the snapshot and counts; `encrypted` gives the file piece by piece. Building and
encrypting run in a thread of their own, which asks the loop for pages of rows and hands it pieces,
a few at a time: memory stays the same whatever the size, a slow reader slows the thread, and one
that leaves ends it. The plain archive is never written anywhere.

Known limit: files that the settings name (an own TLS certificate) are not in it, only the settings.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import pathlib
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Final, Protocol, TypeVar

from platform_server.backup import archive, encryption, manifest, rows, tables
from platform_server.sealing import envelope, key_file
from platform_server.store import contract, migrations, snapshots
from platform_server.trust import statements
from runtime_kit import private_files
from wire_protocol import product

T = TypeVar("T")

_PIECES_AHEAD: Final = 4
_MOST_CONFIG_BYTES: Final = 1_048_576
_STEP_SECONDS: Final = 0.2  # how late the thread may notice that nobody wants the rest
_BESIDE: Final = ("config.dev.toml", "config.test.toml", "config.prod.toml", "config.local.toml")


class MasterKeyChanges(Exception):
    """The master key is being changed at this moment: try again in a few seconds."""


class Reads(Protocol):
    """A snapshot, or a transaction."""

    async def fetch_one(self, sql: str, *values: object) -> contract.Row | None:
        """The first row, or None."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that goes into a backup but the rows."""

    head: manifest.Head
    master_key: bytes = dataclasses.field(repr=False)
    config: Mapping[str, bytes] = dataclasses.field(repr=False)


async def count_rows(reads: Reads) -> dict[str, int]:
    """How many rows each table has that would be kept."""
    counted = {}
    for table in tables.KEPT:
        row = await reads.fetch_one(f"SELECT COUNT(*) AS n FROM {table}")  # noqa: S608 - our own
        counted[table] = 0 if row is None else int(row["n"])
    return counted


async def prepare(
    snapshot: snapshots.Snapshot,
    *,
    backup_id: str,
    keys_before: Sequence[envelope.KeyEncryptionKey],
    keyring: envelope.Keyring,
    config: Mapping[str, bytes],
    environment: str,
    now: datetime.datetime,
) -> Plan:
    """Looks at the snapshot; raises `MasterKeyChanges`.

    `keys_before` are the keyring's keys before the snapshot was taken: with those after it, every
    key that the snapshot can need.
    """
    held = {key.kek_id: key for key in (*keyring.keys(), *keys_before)}
    if not await _key_ids_in(snapshot) <= held.keys():
        raise MasterKeyChanges("The master key is being changed; try again in a few seconds.")
    schema = await snapshot.fetch_one("SELECT MAX(version) AS version FROM migrations")
    head = manifest.Head(
        backup_id=backup_id,
        enlist_version=product.VERSION,
        schema=len(migrations.all_migrations()) if schema is None else int(schema["version"]),
        platform_id=await _value(snapshot, statements.PLATFORM_ID, default=""),
        epoch=int(await _value(snapshot, statements.EPOCH, default=str(statements.FIRST_EPOCH))),
        environment=environment,
        made_at=now,
        rows=await count_rows(snapshot),
    )
    return Plan(head=head, master_key=key_file.content_of(list(held.values())), config=config)


def read_config(data_dir: pathlib.Path, *, config_file: pathlib.Path | None) -> dict[str, bytes]:
    """The settings files by their names in the archive; `--config FILE` stands for config.toml.

    Raises OSError and `private_files.FileTooLarge`.
    """
    main = config_file or data_dir / "config.toml"
    found = {"config.toml": main, **{name: main.parent / name for name in _BESIDE}}
    return {
        f"{manifest.CONFIG}{name}": private_files.read_regular(path, max_bytes=_MOST_CONFIG_BYTES)
        for name, path in found.items()
        if path.exists()
    }


async def encrypted(
    snapshot: snapshots.Snapshot,
    *,
    plan: Plan,
    recipients: Sequence[encryption.Recipient],
    on_made: Callable[[manifest.Manifest], Awaitable[None]],
) -> AsyncGenerator[bytes, None]:
    """The encrypted file, piece by piece; `on_made` is called once all of it was taken.

    Closing it early ends the thread. Raises `StoreError`.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=_PIECES_AHEAD)
    building = _Building(snapshot, plan=plan, loop=loop)

    def run() -> None:
        try:
            encryption.encrypt(
                building.plain(),
                recipients=recipients,
                write=lambda piece: building.ask(lambda: pieces.put(piece)),
            )
        finally:
            with contextlib.suppress(_Gone):
                building.ask(lambda: pieces.put(None))

    running = asyncio.create_task(asyncio.to_thread(run), name="backup-encrypt")
    try:
        while (piece := await pieces.get()) is not None:
            yield piece
        await running
        if building.made is not None:
            await on_made(building.made)
    finally:
        building.gone.set()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen: the reader was told, or there is none any more


class _Gone(Exception):
    """Whoever wanted the backup has left."""


class _Building:
    """The thread's side: builds the archive, asking the loop for rows."""

    def __init__(
        self,
        snapshot: snapshots.Snapshot,
        *,
        plan: Plan,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._loop = loop
        self.gone = threading.Event()
        self.made: manifest.Manifest | None = None

    def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Has the loop do it and waits; raises `_Gone` when nobody wants it any more."""

        async def answer() -> T:
            return await question()

        if self.gone.is_set():
            raise _Gone
        asked = asyncio.run_coroutine_threadsafe(answer(), self._loop)
        while not self.gone.is_set():
            done, _ = concurrent.futures.wait([asked], timeout=_STEP_SECONDS)
            if done:
                return asked.result()
        asked.cancel()
        raise _Gone

    def plain(self) -> Iterator[bytes]:
        """The archive's bytes."""
        head = self._plan.head
        writer = archive.Writer(head)
        yield writer.add(manifest.HEAD, json.dumps(head.to_document()).encode())
        yield writer.add(manifest.MASTER_KEY, self._plan.master_key)
        for name, content in self._plan.config.items():
            yield writer.add(name, content)
        for table in tables.KEPT:
            yield from self._table(table, writer=writer)
        last, self.made = writer.finish()
        yield last

    def _table(self, table: str, *, writer: archive.Writer) -> Iterator[bytes]:
        pages = self._snapshot.pages(table)
        number, held, lines = 0, 0, bytearray()
        while page := self.ask(lambda: _next(pages)):
            columns = rows.columns_of(page[0])
            for row in page:
                lines += rows.line(row, columns=columns)
            held += len(page)
            if len(lines) >= archive.PART_BYTES:
                number += 1
                yield writer.add(_part(table, number), bytes(lines), rows=held)
                held, lines = 0, bytearray()
        if lines:
            yield writer.add(_part(table, number + 1), bytes(lines), rows=held)


async def _next(pages: AsyncIterator[Sequence[contract.Row]]) -> Sequence[contract.Row]:
    # not anext with a default, whose awaitable Python 3.11 loses the exception of
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return ()


def _part(table: str, number: int) -> str:
    return f"{manifest.TABLES}{table}/{number:06}.jsonl"


async def _value(snapshot: snapshots.Snapshot, name: str, *, default: str) -> str:
    row = await snapshot.fetch_one("SELECT value FROM platform_values WHERE name = ?", name)
    return default if row is None else str(row["value"])


async def _key_ids_in(snapshot: snapshots.Snapshot) -> set[str]:
    """The keys by which anything in the snapshot is sealed."""
    secrets = await snapshot.fetch_all("SELECT DISTINCT kek_id FROM sealed_secrets LIMIT 1000")
    own = await snapshot.fetch_all("SELECT sealed_private FROM trust_keys LIMIT 1000")
    return {str(row["kek_id"]) for row in secrets} | {
        envelope.kek_id_of(bytes(row["sealed_private"])) for row in own
    }
