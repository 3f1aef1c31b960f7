"""Starting on an empty, an up-to-date and a newer store, alone and at the same moment."""

import asyncio
import datetime
import sqlite3
from pathlib import Path

import pytest

from platform_server.store import contract, migrations, opening
from runtime_kit import clock

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def applied(store: contract.Store) -> list[tuple[int, int, str]]:
    async def work(tx: contract.Tx) -> list[tuple[int, int, str]]:
        rows = await tx.fetch_all("SELECT * FROM migrations ORDER BY version LIMIT 100")
        return [(row["version"], row["applied_at"], row["enlist_version"]) for row in rows]

    return await store.read(work)


async def test_every_migration_is_applied_once_with_its_time(store_url: str) -> None:
    manual = clock.ManualClock(START)
    for _ in range(2):
        store = await opening.open_store(store_url, time=manual, enlist_version="1.2.3")
        rows = await applied(store)
        await store.close()
        manual.advance(60)
    assert rows == [
        (migration.version, clock.to_micros(START), "1.2.3")
        for migration in migrations.all_migrations()
    ]


async def test_engines_that_start_at_once_apply_each_migration_once(store_url: str) -> None:
    stores = await asyncio.gather(*[opening.open_store(store_url) for _ in range(4)])
    rows = await applied(stores[0])
    await asyncio.gather(*[store.close() for store in stores])
    assert [row[0] for row in rows] == [m.version for m in migrations.all_migrations()]


async def test_a_store_of_a_newer_enlist_is_refused_and_left_alone(store_url: str) -> None:
    store = await opening.open_store(store_url)

    async def from_the_future(tx: contract.Tx) -> None:
        await tx.execute(
            "INSERT INTO migrations (version, applied_at, enlist_version) VALUES (9999, 1, '7.5.0')"
        )

    await store.transact(from_the_future)
    before = await applied(store)
    await store.close()
    with pytest.raises(contract.StoreNewer, match=r"newer Enlist.*install Enlist 7\.5\.0 or newer"):
        await opening.open_store(store_url)

    again = await opening._connect(store_url, busy_seconds=5)
    assert await applied(again) == before
    await again.close()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "enlist.db"
    file.write_bytes(b"Dear diary, today I was mistaken for a database. " * 100)
    before = file.read_bytes()
    with pytest.raises(contract.StoreUnreachable, match="not an Enlist store"):
        await opening.open_store(f"sqlite://{file}")
    assert file.read_bytes() == before


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "enlist.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(contract.StoreUnreachable, match="not an Enlist store"):
        await opening.open_store(f"sqlite://{file}")
    with sqlite3.connect(file) as other:
        tables = [row[0] for row in other.execute("SELECT name FROM sqlite_master")]
    other.close()
    assert tables == ["songs"]


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(contract.StoreUnreachable, match="no-such"):
        await opening.open_store(f"sqlite://{tmp_path}/no-such/enlist.db")


@pytest.mark.parametrize(
    "url", ["", "enlist.db", "sqlite://", "sqlite:///", "mysql://x/y", "postgresql://[::1/x"]
)
async def test_a_url_out_of_shape_is_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///|postgresql|PostgreSQL"):
        await opening.open_store(url)


async def test_a_database_that_does_not_exist_is_named(postgres_url: str) -> None:
    with pytest.raises(contract.StoreUnreachable, match="CREATE DATABASE"):
        await opening.open_store(postgres_url + "_missing")


async def test_a_server_that_is_not_there_is_unreachable_without_the_password() -> None:
    with pytest.raises(contract.StoreAway, match="once the database answers") as caught:
        await opening.open_store("postgresql://user:hunter2@127.0.0.1:1/enlist")
    assert "hunter2" not in repr(caught.value)
