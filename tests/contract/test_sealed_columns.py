"""Sealed values in tables of their own follow a change of the master key, on either store."""

import datetime
import pathlib

import pytest

from platform_server.cloud import connections
from platform_server.sealing import envelope, master_key, rotation, sealed_columns, sealed_rows
from platform_server.store import contract

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MANY = 150  # more than one batch


async def _columns_of(store: contract.Store, table: str) -> set[str]:
    async def work(tx: contract.Tx) -> set[str]:
        if tx.dialect is contract.Dialect.SQLITE:
            rows = await tx.fetch_all("SELECT name FROM pragma_table_info(?) LIMIT 500", table)
        else:
            rows = await tx.fetch_all(
                "SELECT column_name AS name FROM information_schema.columns "
                "WHERE table_name = ? AND table_schema = current_schema() LIMIT 500",
                table,
            )
        return {row["name"] for row in rows}

    return await store.read(work)


async def _tables(store: contract.Store) -> set[str]:
    async def work(tx: contract.Tx) -> set[str]:
        if tx.dialect is contract.Dialect.SQLITE:
            rows = await tx.fetch_all(
                "SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 500"
            )
        else:
            rows = await tx.fetch_all(
                "SELECT table_name AS name FROM information_schema.tables "
                "WHERE table_schema = current_schema() LIMIT 500"
            )
        return {row["name"] for row in rows}

    return await store.read(work)


async def test_every_table_with_the_id_of_a_wrapping_key_follows(store: contract.Store) -> None:
    found = {table for table in await _tables(store) if "kek_id" in await _columns_of(store, table)}
    assert found == {"sealed_secrets", *(column.table for column in sealed_columns.ALL)}


async def _seal_one_of_each(store: contract.Store, *, ring: envelope.Keyring, number: int) -> None:
    connection = connections.new(
        connection_id=f"c{number}",
        name=f"name-{number}",
        infra="default",
        provider="hetzner",
        settings={},
        credential_kind="token",
        external_id=None,
        now=NOW,
        created_by="somebody",
    )

    async def work(tx: contract.Tx) -> None:
        sealed, kek_id = await connections.seal_secret(
            tx, keyring=ring, connection_id=connection.connection_id, secret=b"token %d" % number
        )
        await connections.put(tx, connection=connection, sealed=sealed, kek_id=kek_id)
        first_boot = await sealed_rows.seal_value(
            tx, keyring=ring, name=f"cloud-attempt:o{number}:1", value=b"boot %d" % number
        )
        await tx.execute(
            "INSERT INTO cloud_attempts(operation_id, attempt, machine_id, name, client_token, "
            "request, request_sha256, first_boot, kek_id, state, written_at) "
            "VALUES (?, 1, 'm', 'n', 't', '{}', ?, ?, ?, 'written', 0)",
            f"o{number}",
            b"sha",
            first_boot,
            envelope.kek_id_of(first_boot),
        )
        key = await sealed_rows.seal_value(
            tx, keyring=ring, name=f"issuer-key:k{number}", value=b"key %d" % number
        )
        await tx.execute(
            "INSERT INTO issuer_keys(key_id, algorithm, public_jwk, sealed, kek_id, created_at, "
            "signs_from, signs_until, shown_until) VALUES (?, 'RS256', '{}', ?, ?, 0, 0, 1, 1)",
            f"k{number}",
            key,
            envelope.kek_id_of(key),
        )

    await store.transact(work)


async def test_a_change_of_the_master_key_rewraps_credentials_first_boot_data_and_issuer_keys(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    ring = await master_key.open_keyring(store, path=path, now=NOW)
    engine = rotation.Engine(engine_id="e1", key_path=path, keyring=ring)
    await rotation.advance(store, engine=engine, now=NOW)
    for number in range(MANY):
        await _seal_one_of_each(store, ring=ring, number=number)
    begun = await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
    assert await rotation.advance(store, engine=engine, now=NOW)
    assert await store.read(sealed_columns.find_needed) == {begun.to_id}
    fresh = await master_key.open_keyring(store, path=path, now=NOW)
    assert fresh.key_ids == {begun.to_id}
    last = MANY - 1
    opened = await store.read(
        lambda tx: connections.open_secret(tx, keyring=fresh, connection_id=f"c{last}")
    )
    assert opened == b"token %d" % last


async def test_what_was_sealed_late_with_the_old_key_is_found_and_rewrapped(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "master.key"
    ring = await master_key.open_keyring(store, path=path, now=NOW)
    await _seal_one_of_each(store, ring=ring, number=0)
    old = ring.keys()[0]
    engine = rotation.Engine(engine_id="e1", key_path=path, keyring=ring)
    await rotation.advance(store, engine=engine, now=NOW)
    await store.transact(lambda tx: rotation.begin(tx, keyring=ring, now=NOW))
    assert await rotation.advance(store, engine=engine, now=NOW)
    # an engine that had not followed has sealed meanwhile
    late = envelope.Keyring([old], current=old.kek_id)
    sealed = late.seal(b"late", name="cloud-connection:c0")
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_connections SET sealed = ?, kek_id = ? WHERE connection_id = 'c0'",
            sealed,
            old.kek_id,
        )
    )
    assert await store.read(sealed_columns.find_needed) == {old.kek_id, ring.current}
    both = envelope.Keyring([*ring.keys(), old], current=ring.current)
    assert await store.transact(lambda tx: sealed_columns.rewrap(tx, keyring=both, limit=64)) == 1
    opened = await store.read(
        lambda tx: connections.open_secret(tx, keyring=ring, connection_id="c0")
    )
    assert opened == b"late"


async def test_a_credential_copied_to_another_row_does_not_open(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    ring = await master_key.open_keyring(store, path=tmp_path / "master.key", now=NOW)
    for number in range(2):
        await _seal_one_of_each(store, ring=ring, number=number)
    await store.transact(
        lambda tx: tx.execute(
            "UPDATE cloud_connections SET sealed = "
            "(SELECT sealed FROM cloud_connections WHERE connection_id = 'c0') "
            "WHERE connection_id = 'c1'"
        )
    )
    with pytest.raises(envelope.CannotOpen, match="changed or moved"):
        await store.read(lambda tx: connections.open_secret(tx, keyring=ring, connection_id="c1"))
