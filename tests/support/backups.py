"""Backups inside the test's own process: made from a store, restored into another."""

import dataclasses
import datetime
import pathlib
from collections.abc import Mapping, Sequence

import pyrage

from platform_server.backup import contents, create, encryption, manifest, restore
from platform_server.backup import rows as backup_rows
from platform_server.sealing import envelope
from platform_server.store import contract, snapshots
from runtime_kit import clock as clock_kit
from runtime_kit import private_files
from runtime_kit import secret as secret_kit

BACKUP_ID = "00112233aabbccdd"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An age key and its public half."""

    secret: str = dataclasses.field(repr=False)
    recipient: str

    @property
    def key(self) -> encryption.Key:
        """What opens a backup made to it."""
        return encryption.Identities(secret_kit.Secret(f"# a comment\n{self.secret}\n"))

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Its identity file."""
        path = folder / "identity.txt"
        path.write_text(f"{self.secret}\n")
        return path


def new_pair() -> Pair:
    """A fresh one."""
    identity = pyrage.x25519.Identity.generate()
    return Pair(secret=str(identity), recipient=str(identity.to_public()))


async def make(
    url: str,
    *,
    keyring: envelope.Keyring,
    pair: Pair,
    now: datetime.datetime,
    config: Mapping[str, bytes] | None = None,
) -> bytes:
    """The file of a backup of that store."""
    async with snapshots.taken(url, busy_seconds=5) as snapshot:
        return await of_snapshot(snapshot, keyring=keyring, pair=pair, now=now, config=config)


async def of_snapshot(
    snapshot: snapshots.Snapshot,
    *,
    keyring: envelope.Keyring,
    pair: Pair,
    now: datetime.datetime,
    config: Mapping[str, bytes] | None = None,
) -> bytes:
    """The file of a backup of what that snapshot sees."""
    told: list[manifest.Manifest] = []
    plan = await plan_of(snapshot, keyring=keyring, now=now, config=config)

    async def on_made(made: manifest.Manifest) -> None:
        told.append(made)

    parts = create.encrypted(
        snapshot,
        plan=plan,
        recipients=encryption.parse_recipients([pair.recipient]),
        on_made=on_made,
    )
    content = b"".join([part async for part in parts])
    assert len(told) == 1
    return content


async def plan_of(
    snapshot: snapshots.Snapshot,
    *,
    keyring: envelope.Keyring,
    now: datetime.datetime,
    config: Mapping[str, bytes] | None = None,
) -> create.Plan:
    """What a backup of that snapshot is to hold."""
    return await create.prepare(
        snapshot,
        backup_id=BACKUP_ID,
        keys_before=(),
        keyring=keyring,
        config=config or {},
        environment="test",
        now=now,
    )


async def put_back(
    file: pathlib.Path,
    *,
    pair: Pair,
    folder: pathlib.Path,
    url: str | None = None,
    now: datetime.datetime,
    key_path: pathlib.Path | None = None,
) -> restore.Restored:
    """Restores the file; the folder is made."""
    private_files.ensure_private_folder(folder)
    return await restore.restore(
        file,
        key=pair.key,
        target=restore.Target(
            data_dir=folder,
            key_path=key_path or folder / "master.key",
            database_url=url or f"sqlite:///{folder}/enlist.db",
        ),
        proven=contents.verify(file, key=pair.key),
        actor="local:0",
        clock=clock_kit.ManualClock(now),
    )


async def rows_of(url: str, *, table: str) -> list[dict[str, object]]:
    """Every row of a table, in an order of its own."""
    async with snapshots.taken(url, busy_seconds=5) as snapshot:
        sql = f"SELECT * FROM {table}"  # noqa: S608 - a test's own
        found: Sequence[contract.Row] = await snapshot.fetch_all(sql)
    plain = [{name: _plain(row[name]) for name in backup_rows.columns_of(row)} for row in found]
    return sorted(plain, key=repr)


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
