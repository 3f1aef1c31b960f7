"""The store under full disks, foreign locks, `kill -9` and callers that go away.

Lessons D6 (a full disk corrupted the manager's key file) and D8 ("database is locked", then
every write failed until a restart).
"""

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_server.store import contract, opening, postgres, sqlite_writer
from tests.support import foreign_lock, small_disk
from tests.support import postgres as servers

BUSY_SECONDS = 0.4
SLACK_SECONDS = 2.0
"""What a loaded machine may add to a wait."""


async def write(tx: contract.Tx, *, name: str, size: int = 1) -> None:
    for half in ("left", "right"):
        await tx.execute(
            "INSERT INTO platform_values (name, value) VALUES (?, ?)", f"{name}.{half}", "x" * size
        )


async def put(store: contract.Store, name: str, *, size: int = 1) -> None:
    await store.transact(lambda tx: write(tx, name=name, size=size))


async def names(store: contract.Store) -> set[str]:
    """The pairs in the store; fails on half a pair."""

    async def work(tx: contract.Tx) -> list[str]:
        rows = await tx.fetch_all("SELECT name FROM platform_values WHERE name LIKE '%.%t'")
        return [row["name"] for row in rows]

    found = await store.read(work)
    left = {name.removesuffix(".left") for name in found if name.endswith(".left")}
    right = {name.removesuffix(".right") for name in found if name.endswith(".right")}
    assert left == right, "half a transaction is in the store"
    return left


async def test_under_a_foreign_lock_callers_wait_their_limit_and_no_longer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "enlist.db"
    store = await opening.open_store(f"sqlite://{path}", busy_seconds=BUSY_SECONDS)
    await put(store, "before")
    with foreign_lock.held(path):
        started = time.monotonic()
        results = await asyncio.gather(
            *[put(store, f"during-{n}") for n in range(40)], return_exceptions=True
        )
        waited = time.monotonic() - started
        assert {type(result) for result in results} == {contract.StoreBusy}
        assert BUSY_SECONDS <= waited < BUSY_SECONDS + SLACK_SECONDS
        assert await names(store) == {"before"}, "reading goes on"
        assert not (await store.health()).ok
    await put(store, "after")
    assert (await store.health()).ok
    assert await names(store) == {"before", "after"}
    await store.close()


async def test_a_lock_that_goes_in_time_is_only_a_delay(tmp_path: Path) -> None:
    path = tmp_path / "enlist.db"
    store = await opening.open_store(f"sqlite://{path}", busy_seconds=30)
    with foreign_lock.held(path):
        waiting = [asyncio.create_task(put(store, f"n{n}")) for n in range(20)]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert not done
    await asyncio.gather(*waiting)
    assert len(await names(store)) == 20
    await store.close()


async def test_callers_that_give_up_under_a_lock_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "enlist.db"
    store = await opening.open_store(f"sqlite://{path}", busy_seconds=30)
    with foreign_lock.held(path):
        waiting = [asyncio.create_task(put(store, f"n{n}")) for n in range(20)]
        await asyncio.sleep(0)
        for task in waiting[:15]:
            task.cancel()
        await asyncio.wait(waiting[:15])
    await asyncio.gather(*waiting[15:])
    assert await names(store) == {f"n{n}" for n in range(15, 20)}
    await store.close()


@pytest.mark.long
async def test_a_lock_of_twenty_seconds_under_load_ends_without_a_restart(
    tmp_path: Path,
) -> None:
    path = tmp_path / "enlist.db"
    store = await opening.open_store(f"sqlite://{path}")
    worst, refused, ended = 0.0, 0, False

    async def load(number: int) -> None:
        nonlocal worst, refused
        turn = 0
        while not ended:
            turn += 1
            started = time.monotonic()
            try:
                await put(store, f"{number}-{turn}")
                await asyncio.sleep(0.01)
            except contract.StoreBusy:
                refused += 1
            worst = max(worst, time.monotonic() - started)

    tasks = [asyncio.create_task(load(number)) for number in range(32)]
    with foreign_lock.held(path):
        await asyncio.sleep(20)
    await put(store, "after")
    ended = True
    await asyncio.gather(*tasks)
    assert refused >= 3 * 32
    assert worst < 5 + SLACK_SECONDS
    await store.close()


async def test_on_a_full_disk_writing_fails_whole_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    with small_disk.mounted(tmp_path / "disk", megabytes=8) as disk:
        store = await opening.open_store(f"sqlite://{disk}/enlist.db")
        await put(store, "before")
        ballast = small_disk.fill(disk)
        results = await asyncio.gather(
            *[put(store, f"during-{n}", size=5000) for n in range(40)], return_exceptions=True
        )
        assert {type(result) for result in results} == {contract.StoreFull}
        assert await names(store) == {"before"}, "reading goes on"
        health = await store.health()
        assert not health.ok
        assert "disk is full" in health.detail
        ballast.unlink()
        await put(store, "after", size=5000)
        assert (await store.health()).ok
        assert await names(store) == {"before", "after"}
        await store.close()
        checked = sqlite3.connect(disk / "enlist.db")
        assert checked.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        checked.close()


async def test_health_notices_by_itself_that_there_is_room_again(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk", megabytes=8) as disk:
        store = await opening.open_store(f"sqlite://{disk}/enlist.db")
        ballast = small_disk.fill(disk)
        with pytest.raises(contract.StoreFull):
            await put(store, "during", size=50_000)
        assert not (await store.health()).ok
        ballast.unlink()
        assert (await store.health()).ok
        await store.close()


async def test_a_store_cannot_start_on_a_full_disk_and_says_why(tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk", megabytes=1) as disk:
        ballast = small_disk.fill(disk)
        with pytest.raises(contract.StoreFull, match="full"):
            await opening.open_store(f"sqlite://{disk}/enlist.db")
        ballast.unlink()
        store = await opening.open_store(f"sqlite://{disk}/enlist.db")
        await put(store, "after")
        await store.close()


@pytest.mark.parametrize("umask", [0o000, 0o777], ids=["open umask", "closed umask"])
async def test_every_file_is_private_from_the_first_byte(tmp_path: Path, umask: int) -> None:
    seen: set[tuple[str, str]] = set()

    def look(event: str, _: tuple[object, ...]) -> None:
        if watching and event in {"open", "os.chmod", "sqlite3.connect", "sqlite3.connect/handle"}:
            seen.update(_modes(tmp_path))

    watching = True
    sys.addaudithook(look)
    former = os.umask(umask)
    try:
        store = await opening.open_store(f"sqlite://{tmp_path}/enlist.db")
        await put(store, "a")
        final = _modes(tmp_path)
        await store.close()
    finally:
        os.umask(former)
        watching = False
    assert final == {(f"enlist.db{suffix}", "0o600") for suffix in ("", "-wal", "-shm")}
    assert seen
    assert {mode for _, mode in seen if int(mode, 8) & 0o177} == set(), "never more than 0600"


def _modes(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add((file.name, oct(stat.S_IMODE(file.stat().st_mode))))
    return found


async def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/enlist.db"
    await (await opening.open_store(url)).close()
    (tmp_path / "enlist.db").chmod(0o644)
    await (await opening.open_store(url)).close()
    assert _modes(tmp_path) == {("enlist.db", "0o600")}


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
async def test_somebody_elses_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/enlist.db"
    await (await opening.open_store(url)).close()
    os.chown(tmp_path / "enlist.db", 12345, 12345)
    with pytest.raises(contract.StoreUnreachable, match="belongs to uid 12345"):
        await opening.open_store(url)
    assert (tmp_path / "enlist.db").stat().st_uid == 12345


async def test_the_log_is_checkpointed_while_writing_goes_on(tmp_path: Path) -> None:
    store = await opening.open_store(f"sqlite://{tmp_path}/enlist.db")
    for number in range(400):
        await put(store, f"n{number}", size=20_000)
    sizes = await store.sizes()
    assert sizes.database_bytes > 10_000_000
    assert sizes.wal_bytes < 8_000_000
    await store.close()


@contextlib.contextmanager
def writer(url: str, *, run: str, crash_point: str = "") -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.store_writer", url, run, crash_point],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_kill_9_loses_nothing_that_was_acknowledged(store_url: str) -> None:
    acknowledged: set[str] = set()
    for run in range(3):
        with writer(store_url, run=f"run{run}") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            lines = [process.stdout.readline() for _ in range(50 + 17 * run)]
            process.kill()
            lines += process.stdout.read().splitlines(keepends=True)
        acknowledged |= {line.decode().strip() for line in lines if line.endswith(b"\n")}
    store = await opening.open_store(store_url)
    kept = await names(store)
    await store.close()
    assert len(acknowledged) >= 150
    assert acknowledged - kept == set()


@pytest.mark.parametrize("kept", [False, True], ids=["before the commit", "after the commit"])
async def test_at_the_named_crash_points_a_change_is_there_whole_or_not_at_all(
    store_kind: str, store_url: str, *, kept: bool
) -> None:
    module = sqlite_writer if store_kind == "sqlite" else postgres
    point = module.AFTER_COMMIT if kept else module.BEFORE_COMMIT
    with writer(store_url, run="r", crash_point=point) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"open\n", "nobody was answered"
        assert process.wait(timeout=30) == -9
    store = await opening.open_store(store_url)
    assert bool(await names(store)) is kept
    await put(store, "after")
    await store.close()


@pytest.mark.parametrize("moment", ["BEFORE_COMMIT", "AFTER_COMMIT"])
def test_a_start_killed_during_its_first_migration_is_finished_by_the_next(
    store_kind: str, store_url: str, moment: str
) -> None:
    point = getattr(sqlite_writer if store_kind == "sqlite" else postgres, moment)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.store_writer", store_url, "r"],
        env={**os.environ, "ENLIST_CRASH_AT": point},
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert killed.returncode == -9

    async def start_again() -> None:
        store = await opening.open_store(store_url)
        await put(store, "after")
        await store.close()

    asyncio.run(start_again())


async def test_a_lost_connection_before_the_commit_is_only_a_delay(
    postgres_url: str, postgres_server: servers.Server
) -> None:
    store = await opening.open_store(postgres_url)
    tries = 0

    async def cut_off_once(tx: contract.Tx) -> None:
        nonlocal tries
        tries += 1
        await write(tx, name="a")
        if tries == 1:
            await asyncio.to_thread(_cut_off, postgres_server, postgres_url)
        await write(tx, name="b")

    await store.transact(cut_off_once)
    assert tries == 2
    assert await names(store) == {"a", "b"}
    await asyncio.to_thread(_cut_off, postgres_server, postgres_url)
    await asyncio.gather(*[put(store, f"n{n}") for n in range(20)])
    assert len(await names(store)) == 22
    await store.close()


def _cut_off(server: servers.Server, url: str) -> None:
    server.run_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"  # noqa: S608 - our own name
        f" WHERE datname = '{url.rpartition('/')[2]}'"
    )


async def test_a_locked_table_is_busy_and_normal_afterwards(postgres_url: str) -> None:
    store = await opening.open_store(postgres_url, busy_seconds=BUSY_SECONDS)
    other = await opening.open_store(postgres_url, busy_seconds=30)
    holding, finish = asyncio.Event(), asyncio.Event()

    async def hold(tx: contract.Tx) -> None:
        await tx.execute("LOCK TABLE platform_values IN ACCESS EXCLUSIVE MODE")
        holding.set()
        await finish.wait()

    holder = asyncio.create_task(other.transact(hold))
    await holding.wait()
    started = time.monotonic()
    results = await asyncio.gather(
        *[put(store, f"during-{n}") for n in range(20)], return_exceptions=True
    )
    assert {type(result) for result in results} == {contract.StoreBusy}
    assert time.monotonic() - started < 2 * BUSY_SECONDS + SLACK_SECONDS
    finish.set()
    await holder
    await put(store, "after")
    assert await names(store) == {"after"}
    await asyncio.gather(store.close(), other.close())


async def test_callers_cancelled_in_the_middle_leave_no_transaction_open(
    postgres_url: str, postgres_server: servers.Server
) -> None:
    store = await opening.open_store(postgres_url)
    inside = asyncio.Event()

    async def stuck(tx: contract.Tx) -> None:
        await write(tx, name="stuck")
        inside.set()
        await tx.execute("SELECT pg_sleep(60)")

    for _ in range(12):  # more than the pool has
        inside.clear()
        task = asyncio.create_task(store.transact(stuck))
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    await put(store, "after")
    assert await names(store) == {"after"}
    await store.close()
    left = await asyncio.to_thread(
        postgres_server.run_sql,
        "SELECT count(*) FROM pg_stat_activity WHERE datname ="  # noqa: S608 - our own name
        f" '{postgres_url.rpartition('/')[2]}' AND state LIKE '%transaction%'",
    )
    assert left == "0"


async def test_a_server_that_goes_away_is_unreachable_within_bounds() -> None:
    with servers.running_server() as server:
        store = await opening.open_store(server.new_database())
        await put(store, "before")
        server.process.kill()
        server.process.wait(timeout=10)
        with pytest.raises(contract.StoreUnreachable):
            await put(store, "during")
        assert not (await store.health()).ok
        await store.close()
