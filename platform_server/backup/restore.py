"""Fills an empty data directory and an empty store from a backup.

First the whole file is read and proven; then the target is judged; only then is anything written,
in this order: the mark (`under_way`), the store in one transaction, master.key, settings files, and
the mark goes. Killed anywhere, the same command finishes: a store is either empty or filled by this
very restore, and a master key that is there already is left as it is. The caller holds the locks of
directory and store.
"""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from platform_server.backup import aftermath, contents, encryption, failures, manifest, under_way
from platform_server.sealing import envelope, key_file
from platform_server.store import contract, loads, migrations
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, private_files
from wire_protocol import product, times

_BUSY_SECONDS: Final = 5.0

MARKED = crash_points.declare(
    "restore.marked", story="the mark of a restore stands, nothing else was written"
)
BEFORE_COMMIT = crash_points.declare(
    "restore.before-commit", story="all rows are in the transaction, its commit was not asked for"
)
FILLED = crash_points.declare(
    "restore.filled", story="the store is filled, its master key is not there yet"
)
KEY_KEPT = crash_points.declare(
    "restore.key-kept", story="store and master key are there, the mark still stands"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to."""

    data_dir: pathlib.Path
    key_path: pathlib.Path
    database_url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done; `settled` is None when an earlier try had filled the store."""

    settled: aftermath.Settled | None
    written: Sequence[str]
    kept: Sequence[str]


async def judge(target: Target, *, head: manifest.Head) -> under_way.UnderWay | None:
    """Looks at the target and changes nothing: None when it is empty, the mark when this goes on.

    Raises `TargetInUse`, `Invalid` for the URL, and `StoreError`.
    """
    mark = under_way.find(target.data_dir)
    if mark is not None and mark.backup_id != head.backup_id:
        raise failures.TargetInUse(
            f"Another backup, made at {mark.made_at}, was being restored into {target.data_dir}: "
            "give that file, or empty the directory (and the database) first."
        )
    if mark is not None and mark.key_path != str(target.key_path.absolute()):
        raise failures.TargetInUse(
            f"The restore into {target.data_dir} was begun with its master key at {mark.key_path}, "
            f"not at {target.key_path}: set ENLIST_MASTER_KEY_FILE as it was (none, if the key "
            "lies in the directory). Nothing was changed."
        )
    if mark is None:
        _require_empty(target)
    with _url_judged():
        if not loads.exists(target.database_url):
            return mark
        async with loads.opened(
            target.database_url, busy_seconds=_BUSY_SECONDS, write=False
        ) as loader:
            await _is_filled(loader, mark=mark)
    return mark


async def restore(
    path: pathlib.Path,
    *,
    key: encryption.Key,
    target: Target,
    proven: manifest.Manifest,
    actor: str,
    clock: clock_kit.Clock,
    told: encryption.Told = encryption.tell_nobody,
) -> Restored:
    """Restores the file that was proven; raises as `judge` does, and `Unwritable`."""
    mark = await judge(target, head=proven.head)
    with _faults_told():
        if mark is None:
            mark = under_way.begin(
                target.data_dir,
                backup_id=proven.head.backup_id,
                made_at=times.to_rfc3339(proven.head.made_at),
                key_path=target.key_path,
            )
        crash_points.reach(MARKED)
        details = aftermath.Restore(
            restore_id=mark.restore_id, actor=actor, now=clock.now(), head=proven.head
        )
        files, settled = await _fill(
            lambda: contents.opened(path, key=key, told=told),
            target=target,
            proven=proven,
            details=details,
            mark=mark,
        )
        crash_points.reach(FILLED)
        _keep_key(target.key_path, keys=files.keys)
        crash_points.reach(KEY_KEPT)
        written, kept = _write_config(target.data_dir, files=files.config)
        under_way.end(target.data_dir)
    return Restored(settled=settled, written=written, kept=kept)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Files:
    """What goes beside the store."""

    keys: tuple[envelope.KeyEncryptionKey, ...] = ()
    config: dict[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def keyring(self) -> envelope.Keyring:
        """What opens the sealed values."""
        return envelope.Keyring(self.keys, current=self.keys[0].kek_id)


async def _fill(
    opened: Callable[[], contextlib.AbstractContextManager[Iterator[contents.Piece]]],
    *,
    target: Target,
    proven: manifest.Manifest,
    details: aftermath.Restore,
    mark: under_way.UnderWay,
) -> tuple[_Files, aftermath.Settled | None]:
    """Fills the store unless that was done; gives the files of the backup either way."""
    files = _Files()
    settled = None
    async with loads.opened(target.database_url, busy_seconds=_BUSY_SECONDS, write=True) as loader:
        filled = await _is_filled(loader, mark=mark)
        with opened() as pieces:
            await _load(pieces, loader=None if filled else loader, files=files, proven=proven)
        if not filled:
            await _migrate(loader.tx, until=migrations.MAX_COUNT)
            await loader.catch_up_identities()
            settled = await aftermath.settle(loader.tx, restore=details, keyring=files.keyring)
            crash_points.reach(BEFORE_COMMIT)
    return files, settled


async def _load(
    pieces: Iterator[contents.Piece],
    *,
    loader: loads.Loader | None,
    files: _Files,
    proven: manifest.Manifest,
) -> None:
    """Takes every piece to its place; without a loader the rows are passed over."""
    columns: dict[str, frozenset[str]] = {}
    last: contents.Piece | None = None
    for last in pieces:
        if isinstance(last, contents.MasterKey):
            files.keys = last.keys
        elif isinstance(last, contents.Config):
            files.config[last.name] = last.content
        elif isinstance(last, contents.Rows) and loader is not None:
            if not columns:
                await _migrate(loader.tx, until=proven.head.schema)
            if last.table not in columns:
                columns[last.table] = await loader.columns(last.table)
            await _insert(loader, last, known=columns[last.table])
    if last != proven:
        raise failures.Damaged("The backup was changed while it was read.")


async def _insert(loader: loads.Loader, part: contents.Rows, *, known: frozenset[str]) -> None:
    names = list(part.rows[0]) if part.rows else []
    if not names or not known.issuperset(names) or any(list(row) != names for row in part.rows):
        raise failures.Damaged(f"The backup's rows of {part.table} do not fit the schema.")
    await loader.insert(part.table, columns=names, rows=[tuple(row.values()) for row in part.rows])


async def _migrate(tx: contract.Tx, *, until: int) -> None:
    await migrations.apply(
        tx,
        now_micros=clock_kit.to_micros(clock_kit.SystemClock().now()),
        enlist_version=product.VERSION,
        until=until,
    )


async def _is_filled(loader: loads.Loader, *, mark: under_way.UnderWay | None) -> bool:
    """Whether this restore has filled the store; raises `TargetInUse` when somebody else has."""
    found = await loader.tables()
    if not found:
        return False
    if (
        mark is not None
        and "platform_values" in found
        and await aftermath.find_restore_id(loader.tx) == mark.restore_id
    ):
        return True
    raise failures.TargetInUse(
        f"The database is not empty ({len(found)} tables, {min(found)} among them): a backup is "
        "restored into an empty one. Nothing was changed."
    )


def _require_empty(target: Target) -> None:
    """Settings may lie there, and what an earlier try left of locks; nothing else."""
    folder = target.data_dir
    try:
        found = sorted(one.name for one in folder.iterdir())
    except FileNotFoundError:
        found = []
    except OSError as fault:
        raise failures.TargetInUse(f"{folder} cannot be used: {fault.strerror}.") from None
    others = [name for name in found if not _may_stay(folder / name)]
    if others:
        raise failures.TargetInUse(
            f"{folder} is not empty ({', '.join(others[:3])}): a backup is restored into an empty "
            "data directory. Name another with --data-dir, or move away what is there. Nothing "
            "was changed."
        )
    if target.key_path.parent != folder and os.path.lexists(target.key_path):
        raise failures.TargetInUse(
            f"There is a master key already: {target.key_path} (ENLIST_MASTER_KEY_FILE). Move it "
            "away. Nothing was changed."
        )


def _may_stay(path: pathlib.Path) -> bool:
    name = path.name
    if name == "run":
        return all(one.name in ("host.lock", "listener") for one in path.iterdir())
    if name in ("enlist.db", "enlist.db-wal", "enlist.db-shm"):
        return True  # the store is judged by what is in it
    return (
        name in ("lost+found", "enlist.db.lock", "bundles")  # bundles are in no backup
        or name.startswith(".tmp-")
        or (name.startswith("config") and name.endswith(".toml"))
    )


def _keep_key(path: pathlib.Path, *, keys: Sequence[envelope.KeyEncryptionKey]) -> None:
    """Writes the master key where none is; raises `TargetInUse` where another one is."""
    if private_files.create_private(path, key_file.content_of(keys)):
        return
    private_files.sweep(path)
    if key_file.read(path) != tuple(keys):
        raise failures.TargetInUse(
            f"Another master key lies in {path}, and was left as it is: it may be the only one of "
            "another Platform. Move it away and run the same command again."
        )


def _write_config(
    folder: pathlib.Path, *, files: dict[str, bytes]
) -> tuple[Sequence[str], Sequence[str]]:
    """Writes those that are not there; gives the names written and those left as they were."""
    written: list[str] = []
    kept: list[str] = []
    for name, content in files.items():
        made = private_files.create_private(folder / name, content)
        same = (
            made
            or private_files.read_regular(folder / name, max_bytes=len(content) + 1_048_576)
            == content
        )
        (written if same else kept).append(name)
    return written, kept


@contextlib.contextmanager
def _url_judged() -> Iterator[None]:
    try:
        yield
    except ValueError as fault:
        raise failures.Invalid(str(fault)) from None


@contextlib.contextmanager
def _faults_told() -> Iterator[None]:
    """What stops a restore half-way is said with what to do next."""
    try:
        yield
    except (contract.StoreFull, contract.StoreBusy, contract.StoreAway, OSError) as fault:
        raise failures.Unwritable(
            f"The restore could not go on: {fault} Mend that and run the same command again; it "
            "goes on where it was."
        ) from fault
    except envelope.CannotOpen as fault:
        raise failures.Damaged(f"The backup's master key does not open its rows: {fault}") from None
    except key_file.Unusable as fault:
        raise failures.Unwritable(f"{fault} Then run the same command again.") from None
