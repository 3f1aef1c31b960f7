"""The cloud in a store that was filled from a backup: nothing twice, nothing lost."""

import datetime
import json
import pathlib

import pytest

from platform_server.backup import clouds
from platform_server.cloud import connections
from platform_server.store import contract, opening
from runtime_kit import clock as clock_kit
from tests.support import backups, domain
from wire_protocol import times

NOW = domain.START
LATER = NOW + datetime.timedelta(hours=3)
SECRET = b'{"kind": "token", "token": "hz-token"}'


async def _fill(tx: contract.Tx, here: domain.Domain) -> None:
    made = connections.new(
        connection_id="c1",
        name="main",
        infra="default",
        provider="hetzner",
        settings={},
        credential_kind="token",
        external_id=None,
        now=NOW,
        created_by="person:somebody",
    )
    sealed, kek_id = await connections.seal_secret(
        tx, keyring=here.keyring, connection_id="c1", secret=SECRET
    )
    await connections.put(tx, connection=made, sealed=sealed, kek_id=kek_id)
    await tx.execute("UPDATE cloud_connections SET consent = ?", json.dumps({"most_machines": 5}))
    for number, state in enumerate(("written", "sent", "present", "absent")):
        await tx.execute(
            "INSERT INTO cloud_attempts(operation_id, attempt, machine_id, name, client_token, "
            "request, request_sha256, state, written_at) VALUES (?, 1, ?, 'n', 't', '{}', ?, ?, 0)",
            f"op-{state}",
            f"m{number}",
            b"x",
            state,
        )
    await tx.execute(
        "INSERT INTO cloud_children(child_id, connection_id, kind, name, operation_id, keep, "
        "written_at) VALUES ('v1', 'c1', 'volume', 'data', 'op-v', 1, 0)"
    )
    await tx.execute(
        "INSERT INTO operations(operation_id, kind, infra, subject, state, request, created_at, "
        "created_by, updated_at, next_at) VALUES ('op-sent', 'create-machine', 'default', 'web-1', "
        "'creating', '{}', 0, 'x', 0, 0)"
    )


@pytest.fixture
async def restored_url(
    store_url: str, store: contract.Store, tmp_path: pathlib.Path
) -> tuple[str, domain.Domain]:
    """A store that was filled from a backup of one with orders under way, and the former domain."""
    here = await domain.build(store, folder=tmp_path)
    await store.transact(lambda tx: _fill(tx, here))
    pair = backups.new_pair()
    path = tmp_path / "made.enlist"
    path.write_bytes(await backups.make(store_url, keyring=here.keyring, pair=pair, now=NOW))
    other = f"sqlite:///{tmp_path}/restored/enlist.db"
    await backups.put_back(path, pair=pair, folder=tmp_path / "restored", url=other, now=LATER)
    return other, here


async def test_pending_orders_count_as_sent_so_that_they_are_looked_up_and_never_sent_again(
    restored_url: tuple[str, domain.Domain],
) -> None:
    url, _ = restored_url
    attempts = await backups.rows_of(url, table="cloud_attempts")
    moment = clock_kit.to_micros(LATER)
    assert {str(row["operation_id"]): (row["state"], row["sent_at"]) for row in attempts} == {
        "op-written": ("sent", moment),
        "op-sent": ("sent", moment),
        "op-present": ("present", None),
        "op-absent": ("absent", None),
    }
    (volume,) = await backups.rows_of(url, table="cloud_children")
    assert volume["sent_at"] == moment
    (operation,) = await backups.rows_of(url, table="operations")
    assert (operation["state"], operation["error_class"]) == ("failed", "needs-operator")


async def test_a_connection_comes_back_with_its_credential_and_without_its_consent(
    restored_url: tuple[str, domain.Domain],
) -> None:
    url, here = restored_url
    store = await opening.open_store(url)
    try:
        opened = await store.read(
            lambda tx: connections.open_secret(tx, keyring=here.keyring, connection_id="c1")
        )
        found = await store.read(lambda tx: connections.get(tx, connection_id="main"))
        spot = await store.read(clouds.find_blind_spot)
    finally:
        await store.close()
    assert opened == SECRET
    assert (found.consent, found.has_secret) == (None, True)
    assert spot is not None
    assert spot.holds(NOW + datetime.timedelta(hours=1))
    assert spot.holds(None)
    assert not spot.holds(NOW - datetime.timedelta(days=2))


async def test_a_store_that_was_never_restored_has_no_blind_spot(store: contract.Store) -> None:
    assert await store.read(clouds.find_blind_spot) is None
    told = {"made_at": times.to_rfc3339(NOW), "at": times.to_rfc3339(LATER)}
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO platform_values(name, value) VALUES (?, ?)",
            clouds.RESTORED,
            json.dumps(told),
        )
    )
    spot = await store.read(clouds.find_blind_spot)
    assert spot == clouds.BlindSpot(
        since=NOW - datetime.timedelta(hours=1), until=LATER + datetime.timedelta(hours=1)
    )
