"""The master key over a real store of either kind: made once, judged, changed online."""

import asyncio
import datetime
import pathlib

import pytest

from platform_server.sealing import envelope, key_file, master_key, rotation, sealed_rows
from platform_server.store import contract

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def _ring(store: contract.Store, path: pathlib.Path) -> envelope.Keyring:
    return await master_key.open_keyring(store, path=path, now=NOW)


async def _put(store: contract.Store, ring: envelope.Keyring, name: str, value: bytes) -> None:
    await store.transact(
        lambda tx: sealed_rows.put(tx, keyring=ring, name=name, value=value, now=NOW)
    )


async def _find(store: contract.Store, ring: envelope.Keyring, name: str) -> bytes | None:
    return await store.read(lambda tx: sealed_rows.find(tx, keyring=ring, name=name))


async def _put_trust_key(store: contract.Store, ring: envelope.Keyring) -> None:
    async def work(tx: contract.Tx) -> None:
        sealed = await sealed_rows.seal_value(
            tx, keyring=ring, name="trust-key:k", value=b"private"
        )
        await tx.execute(
            "INSERT INTO trust_keys(key_id, public_key, sealed_private, not_before, not_after, "
            "certificate_pem, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            *("k", b"public", sealed, 0, 1, "pem", 0),
        )

    await store.transact(work)


async def _kek_ids(store: contract.Store) -> set[str]:
    async def work(tx: contract.Tx) -> set[str]:
        rows = await tx.fetch_all("SELECT sealed FROM sealed_secrets LIMIT 1000")
        keys = await tx.fetch_all("SELECT sealed_private FROM trust_keys LIMIT 1000")
        return {envelope.kek_id_of(bytes(row["sealed"])) for row in rows} | {
            envelope.kek_id_of(bytes(row["sealed_private"])) for row in keys
        }

    return await store.read(work)


async def test_is_made_once_for_an_empty_store(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    first = await _ring(store, path)
    written = path.read_bytes()
    second = await _ring(store, path)
    assert first.current == second.current
    assert path.read_bytes() == written
    assert path.stat().st_mode & 0o777 == 0o600


async def test_is_never_made_anew_over_an_existing_store(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    await _ring(store, path)
    path.unlink()
    with pytest.raises(master_key.WrongMasterKey, match="missing"):
        await _ring(store, path)
    assert not path.exists()


async def test_another_key_than_the_stores_is_refused(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    ring = await _ring(store, tmp_path / "master.key")
    key_file.create(tmp_path / "other.key", envelope.new_key())
    with pytest.raises(master_key.WrongMasterKey, match=ring.current):
        await _ring(store, tmp_path / "other.key")


@pytest.mark.parametrize(
    ("content", "mode", "word"),
    [
        (b"", 0o600, "holds no master key"),
        (b"emk_00", 0o600, "holds no master key"),
        (b"emk_" + b"0" * 64, 0o644, "chmod 600"),
        (b"x" * 5000, 0o600, "larger"),
    ],
)
async def test_a_file_that_is_no_key_is_refused_and_left_alone(
    content: bytes, mode: int, word: str, store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(key_file.Unusable, match=word):
        await _ring(store, path)
    assert path.read_bytes() == content


async def test_an_engine_that_lost_the_race_to_found_the_store_leaves_no_key(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    await _ring(store, tmp_path / "first.key")
    with pytest.raises(master_key.WrongMasterKey):
        await _ring(store, tmp_path / "second.key")
    assert not (tmp_path / "second.key").exists()


async def test_a_change_rewraps_everything_and_drops_the_old_key(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    ring = await _ring(store, path)
    engine = rotation.Engine(engine_id="e1", key_path=path, keyring=ring)
    await rotation.advance(store, engine=engine, now=NOW)
    for number in range(150):  # more than one batch
        await _put(store, ring, f"s{number}", b"%d" % number)
    await _put_trust_key(store, ring)
    old = ring.current
    begun = await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
    assert await rotation.advance(store, engine=engine, now=NOW)
    assert await _kek_ids(store) == {begun.to_id}
    assert begun.to_id != old
    fresh = await _ring(store, path)
    assert fresh.key_ids == {begun.to_id}
    assert await _find(store, fresh, "s149") == b"149"
    assert await store.read(rotation.find_under_way) is None


async def test_a_second_change_is_refused_while_one_is_under_way(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    ring = await _ring(store, tmp_path / "master.key")
    await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
    with pytest.raises(rotation.RotationUnderWay):
        await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))


async def test_a_change_waits_for_every_live_engine_and_ends_when_all_have_followed(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    if store.dialect is contract.Dialect.SQLITE:
        pytest.skip("on SQLite one engine runs")
    paths = [tmp_path / "one.key", tmp_path / "two.key"]
    first = await _ring(store, paths[0])
    paths[1].write_bytes(paths[0].read_bytes())
    paths[1].chmod(0o600)
    second = await _ring(store, paths[1])
    one = rotation.Engine(engine_id="e1", key_path=paths[0], keyring=first)
    two = rotation.Engine(engine_id="e2", key_path=paths[1], keyring=second)
    await rotation.advance(store, engine=one, now=NOW)
    await rotation.advance(store, engine=two, now=NOW)

    await store.transact(lambda tx: rotation.begin(tx, keyring=first, now=NOW))
    assert not await rotation.advance(store, engine=one, now=NOW)
    await _put(store, second, "by-two", b"2")  # it has not followed yet and may still seal
    assert await _find(store, first, "by-two") == b"2"
    assert len(key_file.read(paths[0])) == 2
    assert await rotation.advance(store, engine=two, now=NOW)
    assert await rotation.advance(store, engine=one, now=NOW)

    assert key_file.read(paths[0]) == key_file.read(paths[1])
    assert len(key_file.read(paths[0])) == 1
    assert await _kek_ids(store) == {first.current}
    assert await _find(store, second, "by-two") == b"2"


async def test_on_sqlite_an_engine_that_died_is_not_waited_for(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    if store.dialect is contract.Dialect.POSTGRESQL:
        pytest.skip("on PostgreSQL it may live elsewhere")
    path = tmp_path / "master.key"
    dead = rotation.Engine(engine_id="dead", key_path=path, keyring=await _ring(store, path))
    await rotation.advance(store, engine=dead, now=NOW)
    ring = await _ring(store, path)
    await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
    alive = rotation.Engine(engine_id="alive", key_path=path, keyring=ring)
    assert await rotation.advance(store, engine=alive, now=NOW)


async def test_an_engine_that_slept_through_a_change_may_not_seal(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    paths = [tmp_path / "one.key", tmp_path / "two.key"]
    first = await _ring(store, paths[0])
    paths[1].write_bytes(paths[0].read_bytes())
    paths[1].chmod(0o600)
    asleep = await _ring(store, paths[1])
    one = rotation.Engine(engine_id="e1", key_path=paths[0], keyring=first)
    two = rotation.Engine(engine_id="e2", key_path=paths[1], keyring=asleep)
    await rotation.advance(store, engine=two, now=NOW)
    later = NOW + datetime.timedelta(seconds=rotation.PRESENCE_SECONDS + 1)
    await store.transact(lambda tx: rotation.begin(tx, keyring=first, now=later))
    assert await rotation.advance(store, engine=one, now=later)
    with pytest.raises(envelope.UnknownKey):
        await _put(store, asleep, "late", b"x")
    with pytest.raises(envelope.UnknownKey):
        await rotation.advance(store, engine=two, now=later)


async def test_a_tick_beside_an_operators_change_loses_no_key(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    ring = await _ring(store, path)
    engine = rotation.Engine(engine_id="one", key_path=path, keyring=ring)
    await _put(store, ring, "precious", b"value")
    await _put_trust_key(store, ring)

    async def change() -> None:
        await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
        await rotation.advance(store, engine=engine, now=NOW)

    for _ in range(10):
        await asyncio.gather(
            rotation.advance(store, engine=engine, now=NOW),
            change(),
            rotation.advance(store, engine=engine, now=NOW),
        )
        kept = {key.kek_id for key in key_file.read(path)}
        assert await _kek_ids(store) <= kept
        assert await _find(store, ring, "precious") == b"value"
    await rotation.advance(store, engine=engine, now=NOW)
    assert len(key_file.read(path)) == 1
