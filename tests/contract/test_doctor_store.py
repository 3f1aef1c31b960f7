"""What the doctor reads of a store, on both databases."""

import datetime
import json
from collections.abc import Mapping

from platform_server.doctor import population, rows, stored
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from wire_protocol import findings

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
MINUTE = 60_000_000
AT = clock_kit.to_micros(NOW)


async def write(store: contract.Store, table: str, values: Mapping[str, object]) -> None:
    async def work(tx: contract.Tx) -> None:
        marks = ", ".join("?" for _ in values)
        await tx.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",  # noqa: S608 - the test's own
            *values.values(),
        )

    await store.transact(work)


async def add_node(store: contract.Store, node_id: str, state: str, reason: str | None) -> None:
    await write(
        store,
        "nodes",
        {
            "node_id": node_id,
            "state": state,
            "connectivity": "dial-out",
            "certificate_pem": "secret-looking-pem",
            "certificate_sha256": "sha256:00",
            "pin": f"sha256:{node_id}",
            "version": "1",
            "enrollment_id": "e",
            "enrolled_at": AT,
            "reason": reason,
        },
    )


async def test_nodes_are_counted_and_the_worst_come_first(store: contract.Store) -> None:
    assert (await population.nodes(store)).status is findings.Status.OK
    await add_node(store, "a-1", "ready", None)
    await add_node(store, "b-1", "unreachable", "session-lost")
    silent = await population.nodes(store)
    assert silent.facts["by_state"] == {"ready": 1, "unreachable": 1}
    assert (silent.kind, "1/2 are ready" in silent.detail) == ("transient", True)
    await add_node(store, "c-1", "needs-operator", "node-newer")
    found = await population.nodes(store)
    assert found.command == "enlist nodes show c-1"
    assert found.kind == "needs-operator"


async def test_an_engine_that_ended_without_a_word_is_told(store: contract.Store) -> None:
    await write(store, "engines", {"engine_id": "one", "started_at": AT, "seen_at": AT})
    assert (await population.engines(store, now=NOW)).facts["alive"] == 1
    gone = AT - 5 * MINUTE
    await write(store, "engines", {"engine_id": "two", "started_at": gone, "seen_at": gone})
    found = await population.engines(store, now=NOW)
    assert (found.status, found.facts["gone"]) == (findings.Status.WARNING, 1)


async def test_work_that_no_engine_does_is_told_where_several_may(store: contract.Store) -> None:
    lease = {"name": "probe", "holder": "one", "fence": 1, "expires_at": AT - MINUTE}
    await write(store, "leases", lease)
    found = await population.leases(store, now=NOW)
    if store.dialect is contract.Dialect.SQLITE:
        assert found.status is findings.Status.SKIPPED
    else:
        assert (found.kind, "probe" in found.detail) == ("transient", True)


async def test_members_of_the_mesh_count_by_their_last_handshake(store: contract.Store) -> None:
    assert (await population.mesh(store, now=NOW)).status is findings.Status.SKIPPED
    for number, seen in enumerate((AT, AT - 60 * MINUTE, None)):
        await write(
            store,
            "mesh_members",
            {
                "node_id": f"m-{number}",
                "public_key": f"key-{number}",
                "address": f"fd00::{number}",
                "handshake_at": seen,
                "updated_at": AT,
            },
        )
    found = await population.mesh(store, now=NOW)
    assert found.facts == {"members": 3, "live": 1, "silent": ["m-1", "m-2"]}


async def test_a_backup_is_expected_each_week_in_production_alone(store: contract.Store) -> None:
    async def status(environment: str, now: datetime.datetime = NOW) -> findings.Status:
        found = await population.backup(store, now=now, environment=environment)
        return found.status

    assert await status("dev") is findings.Status.SKIPPED
    assert await status("prod") is findings.Status.WARNING
    value = json.dumps({"made_at": NOW.isoformat()})
    await write(store, "platform_values", {"name": "last_backup", "value": value})
    assert await status("prod") is findings.Status.OK
    assert await status("prod", NOW + datetime.timedelta(days=8)) is findings.Status.WARNING


async def test_trust_keys_are_judged_by_their_last_end(store: contract.Store) -> None:
    assert (await stored.trust_keys(store, now=NOW)).status is findings.Status.SKIPPED
    await write(
        store,
        "trust_keys",
        {
            "key_id": "k1",
            "public_key": b"p",
            "sealed_private": b"s",
            "not_before": AT - MINUTE,
            "not_after": AT + 60 * 24 * 60 * MINUTE,
            "certificate_pem": "",
            "created_at": AT,
        },
    )

    async def judged(days: int) -> findings.Finding:
        return await stored.trust_keys(store, now=NOW + datetime.timedelta(days=days))

    assert (await judged(0)).status is findings.Status.OK
    assert (await judged(50)).command == "enlist platform rotate-trust-key"
    assert (await judged(70)).command == "timedatectl"


async def test_a_certificate_that_nobody_renewed_is_told(store: contract.Store) -> None:
    ends = AT + 10 * 24 * 60 * MINUTE
    row = {"name": "gateway", "certificate_pem": "", "not_after": ends, "updated_at": AT}
    await write(store, "certificates", row)
    found = await stored.certificates(store, now=NOW)
    assert (found.kind, "gateway" in found.detail) == ("needs-operator", True)


async def test_a_support_archives_rows_hold_no_hash_and_no_certificate(
    store: contract.Store,
) -> None:
    await add_node(store, "a-1", "ready", None)
    await write(
        store,
        "enrollments",
        {
            "enrollment_id": "e",
            "node_id": "a-1",
            "state": "pending",
            "token_hash": b"hash-of-a-token",
            "created_at": AT,
            "created_by": "x",
            "expires_at": AT,
        },
    )
    found = await rows.read(store)
    assert set(found) >= {"nodes", "enrollments", "engines", "orders", "mesh_members", "migrations"}
    text = json.dumps(found)
    assert "secret-looking-pem" not in text
    assert "hash-of-a-token" not in text
