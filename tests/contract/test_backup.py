"""A backup over real stores of either kind: made while writes go on, restored into either."""

import asyncio
import dataclasses
import datetime
import json
import pathlib
import random
import tracemalloc
from collections.abc import Callable

import pytest

from platform_server.access import tokens
from platform_server.audit import chain, events
from platform_server.backup import (
    aftermath,
    archive,
    contents,
    create,
    encryption,
    failures,
    manifest,
    tables,
)
from platform_server.nodes import liveness
from platform_server.sealing import envelope, key_file, sealed_rows
from platform_server.store import contract, loads, opening, snapshots
from platform_server.trust import port_certificate, statements
from runtime_kit import clock as clock_kit
from tests.support import backups, domain
from wire_protocol import statements as wire_statements
from wire_protocol import trust

NOW = domain.START
LATER = NOW + datetime.timedelta(hours=3)
ODD = "Ä 'quoted' \"twice\" \\ \t 漢字 \u2028 🔑"


@dataclasses.dataclass(kw_only=True)
class Rig:
    """A filled store, and how to back it up and restore it."""

    url: str
    folder: pathlib.Path
    here: domain.Domain
    pair: backups.Pair

    async def backup(self) -> pathlib.Path:
        path = self.folder / "made.enlist"
        content = await backups.make(
            self.url, keyring=self.here.keyring, pair=self.pair, now=self.here.clock.now()
        )
        path.write_bytes(content)
        return path


@pytest.fixture
async def rig(store_url: str, store: contract.Store, tmp_path: pathlib.Path) -> Rig:
    here = await domain.build(store, folder=tmp_path)
    for name in ("old-1", "gone-1"):
        token = await here.new_token(name, labels={"place": "cellar"})
        said = await here.knock(name, token)
        assert said.status == 201
        await here.mark_ready(name)
    await here.remove("gone-1")
    await here.new_token("waiting-1")
    await here.knock("old-1", "ent_0", certificate=domain.new_certificate())
    await store.transact(lambda tx: _odd_rows(tx, keyring=here.keyring))
    return Rig(url=store_url, folder=tmp_path, here=here, pair=backups.new_pair())


async def _odd_rows(tx: contract.Tx, *, keyring: envelope.Keyring) -> None:
    """What a Platform comes to have, and values that are hard to carry."""
    await sealed_rows.put(tx, keyring=keyring, name="odd", value=bytes(range(256)), now=NOW)
    await port_certificate.ensure(
        tx, port="enrollment", names=["localhost"], keyring=keyring, now=NOW
    )
    await tokens.create(
        tx,
        name=ODD,
        permissions=["nodes.view"],
        infra="default",
        created_by="local:0",
        now=NOW,
        expires_at=None,
    )
    moment = clock_kit.to_micros(NOW)
    await tx.execute(
        "INSERT INTO orders(order_id, node_id, epoch, sequence, kind, signed, signatures, state, "
        "created_at, created_by, expires_at) VALUES ('o1', 'old-1', 1, 1, 'renew', ?, '[]', "
        "'queued', ?, 'local:0', ?)",
        b"\x00\xff",
        moment,
        2**62,
    )
    await tx.execute(
        "INSERT INTO identity_conflicts(node_id, address, first_at, last_at) "
        "VALUES ('old-1', '192.0.2.9', ?, ?)",
        moment,
        moment,
    )
    await events.append(tx, at=NOW, kind="test.odd", subject=ODD, data={"text": ODD, "none": None})


@pytest.fixture(params=["sqlite", "postgresql"])
def other_url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """Where a backup is restored to: either kind, whatever it was made from."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/restored/enlist.db"
    make: Callable[[], str] = request.getfixturevalue("new_database")
    return make()


async def test_every_table_has_its_place_in_a_backup_or_a_reason_why_not(store_url: str) -> None:
    opened = await opening.open_store(store_url)
    await opened.close()
    async with loads.opened(store_url, busy_seconds=5, write=False) as loader:
        there = await loader.tables()
    assert set(tables.KEPT) | set(tables.LEFT_OUT) == there
    assert set(tables.KEPT) & set(tables.LEFT_OUT) == set()


async def test_every_row_comes_back_in_either_database(rig: Rig, other_url: str) -> None:
    before = {table: await backups.rows_of(rig.url, table=table) for table in tables.KEPT}
    path = await rig.backup()
    await backups.put_back(
        path, pair=rig.pair, folder=rig.folder / "restored", url=other_url, now=LATER
    )
    untouched = set(tables.KEPT) - {
        *("platform_values", "enrollments", "nodes", "api_tokens", "orders"),
        *("action_log", "events", "trust_statements"),
    }
    for table in untouched:
        assert await backups.rows_of(other_url, table=table) == before[table], table
    for table in ("action_log", "events", "trust_statements", "nodes"):
        after = await backups.rows_of(other_url, table=table)
        changed = ("state", "reason") if table == "nodes" else ()
        kept = [_without(row, changed) for row in after]
        assert all(_without(row, changed) in kept for row in before[table]), table
    for table in tables.LEFT_OUT.keys() - {"migrations"}:
        assert await backups.rows_of(other_url, table=table) == [], table


def _without(row: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in names}


async def test_what_was_waiting_is_void_and_tombstones_stand(rig: Rig, other_url: str) -> None:
    path = await rig.backup()
    done = await backups.put_back(
        path, pair=rig.pair, folder=rig.folder / "restored", url=other_url, now=LATER
    )
    assert done.settled is not None
    assert (done.settled.enrollments_revoked, done.settled.tokens_voided) == (1, 1)
    assert (done.settled.orders_cancelled, done.settled.nodes) == (1, 1)
    assert done.settled.trust_ended is False
    states = {
        str(row["node_id"]): row["state"]
        for row in await backups.rows_of(other_url, table="enrollments")
    }
    assert states == {"old-1": "consumed", "gone-1": "consumed", "waiting-1": "revoked"}
    nodes = {
        str(row["node_id"]): (row["state"], row["reason"])
        for row in await backups.rows_of(other_url, table="nodes")
    }
    assert nodes["old-1"] == ("unreachable", liveness.NOT_HEARD)
    assert nodes["gone-1"][0] == "removed"
    (token,) = await backups.rows_of(other_url, table="api_tokens")
    assert token["revoked_at"] == clock_kit.to_micros(LATER)
    (order,) = await backups.rows_of(other_url, table="orders")
    assert (order["state"], order["detail"]) == ("cancelled", aftermath.REASON)


async def test_the_restore_stands_in_the_log_and_the_chain_is_whole(
    rig: Rig, other_url: str
) -> None:
    path = await rig.backup()
    await backups.put_back(
        path, pair=rig.pair, folder=rig.folder / "restored", url=other_url, now=LATER
    )
    restored = await opening.open_store(other_url)
    try:
        verdict = await chain.verify(restored)
        page = await restored.read(lambda tx: chain.list_page(tx, limit=2, chosen=chain.Filter()))
        assert verdict.broken_at is None
        assert [(one.action, one.target) for one in page] == [
            ("backup.restore", backups.BACKUP_ID),
            ("enrollments.revoke", "waiting-1"),
        ]
        assert page[1].details["reason"] == "restored"
        last = max(int(str(row["seq"])) for row in await backups.rows_of(rig.url, table="events"))
        newer, _ = await restored.read(
            lambda tx: events.read_after(tx, after=last + 1000, infra=None, limit=10)
        )
        assert [event.kind for event in newer] == ["platform.restored"]
        # an identity column goes on behind the numbers that came with the backup
        await restored.transact(
            lambda tx: tx.execute(
                "INSERT INTO enrollment_attempts(outcome, reason, first_at, last_at) "
                "VALUES ('refused', 'expired', 1, 1)"
            )
        )
    finally:
        await restored.close()


async def test_machines_follow_the_restored_platform_and_not_the_one_it_came_from(
    rig: Rig,
) -> None:
    old = rig.here.trust.published
    held = trust.Held(signed=old.signed, statement=old.statement)
    path = await rig.backup()
    url = f"sqlite:///{rig.folder}/restored/enlist.db"
    await backups.put_back(path, pair=rig.pair, folder=rig.folder / "restored", now=LATER)
    new = await _published(url)
    assert new.statement.epoch > old.statement.epoch
    answer = wire_statements.TrustAnswer(present=new.signed, chain=new.chain)
    followed = trust.accept(held, answer, now=LATER)
    assert followed.statement.number == new.statement.number
    # the old one goes on, and even rotates: whoever saw the new one refuses all of it
    rig.here.clock.advance(3600)
    await rig.here.trust.publish(statements.Facts(enrollment_url="https://old.example"))
    stale = rig.here.trust.published
    assert stale.statement.serial > old.statement.serial
    with pytest.raises(trust.Refused, match="older than the one held"):
        trust.accept(
            followed,
            wire_statements.TrustAnswer(present=stale.signed, chain=stale.chain),
            now=LATER,
        )


async def test_two_restores_of_one_backup_never_share_an_epoch(rig: Rig) -> None:
    path = await rig.backup()
    epochs = []
    for number in (1, 2):
        moment = LATER + datetime.timedelta(days=number)
        folder = rig.folder / f"restored-{number}"
        await backups.put_back(path, pair=rig.pair, folder=folder, now=moment)
        epochs.append((await _published(f"sqlite:///{folder}/enlist.db")).statement.epoch)
    assert epochs[0] < epochs[1]


async def _published(url: str) -> statements.Published:
    opened = await opening.open_store(url)
    try:
        found = await opened.read(statements.find_published)
    finally:
        await opened.close()
    assert found is not None
    return found


async def test_a_backup_sees_one_moment_while_writes_go_on(rig: Rig) -> None:
    async with snapshots.taken(rig.url, busy_seconds=5) as snapshot:
        await rig.here.store.transact(
            lambda tx: events.append(tx, at=NOW, kind="test.late", subject="late")
        )
        await rig.here.remove("old-1")
        content = await backups.of_snapshot(
            snapshot, keyring=rig.here.keyring, pair=rig.pair, now=NOW
        )
    path = rig.folder / "made.enlist"
    path.write_bytes(content)
    found = _rows_in(path, key=rig.pair, table="nodes")
    assert {row["node_id"]: row["state"] for row in found}["old-1"] == "ready"
    assert "test.late" not in {row["kind"] for row in _rows_in(path, key=rig.pair, table="events")}


def _rows_in(path: pathlib.Path, *, key: backups.Pair, table: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    with contents.opened(path, key=key.key) as pieces:
        for piece in pieces:
            if isinstance(piece, contents.Rows) and piece.table == table:
                found += piece.rows
    return found


async def test_a_backup_under_a_former_master_key_restores_since_it_carries_its_own(
    rig: Rig,
) -> None:
    path = await rig.backup()
    before = rig.here.keyring.keys()
    rig.here.keyring.adopt(envelope.new_key())  # changed afterwards
    rig.here.keyring.forget_others()
    folder = rig.folder / "restored"
    await backups.put_back(path, pair=rig.pair, folder=folder, now=LATER)
    assert key_file.read(folder / "master.key") == before
    restored = await opening.open_store(f"sqlite:///{folder}/enlist.db")
    try:
        ring = envelope.Keyring(before, current=before[0].kek_id)
        value = await restored.read(lambda tx: sealed_rows.find(tx, keyring=ring, name="odd"))
    finally:
        await restored.close()
    assert value == bytes(range(256))


async def test_a_store_of_an_older_enlist_is_brought_up_to_date(
    other_url: str, tmp_path: pathlib.Path
) -> None:
    pair, key = backups.new_pair(), envelope.new_key()
    node = {
        "node_id": "old-1",
        "state": "ready",
        "connectivity": "dial-out",
        "version": "0.1.0",
        "certificate_pem": "pem",
        "certificate_sha256": "sha256:00",
        "pin": "sha256:11",
        "enrollment_id": "0" * 16,
        "enrolled_at": 1,
    }
    head = manifest.Head(
        backup_id=backups.BACKUP_ID,
        enlist_version="0.0.9",
        schema=1,
        platform_id="p-aaaaaaaaaaaaaaaa",
        epoch=4,
        environment="test",
        made_at=NOW,
        rows={"nodes": 1, "platform_values": 1},
    )
    path = tmp_path / "old.enlist"
    path.write_bytes(
        _archive(
            head,
            pair=pair,
            parts={
                "master.key": key_file.content_of([key]),
                "tables/platform_values/000001.jsonl": b'{"name":"epoch","value":"4"}\n',
                "tables/nodes/000001.jsonl": json.dumps(node).encode() + b"\n",
            },
        )
    )
    await backups.put_back(path, pair=pair, folder=tmp_path / "restored", url=other_url, now=LATER)
    (row,) = await backups.rows_of(other_url, table="nodes")
    assert (row["node_id"], row["adopted_epoch"], row["next_pin"]) == ("old-1", 0, None)


def _archive(head: manifest.Head, *, pair: backups.Pair, parts: dict[str, bytes]) -> bytes:
    writer = archive.Writer(head)
    plain = writer.add("head.json", json.dumps(head.to_document()).encode())
    for name, content in parts.items():
        plain += writer.add(name, content, rows=content.count(b"\n"))
    plain += writer.finish()[0]
    written: list[bytes] = []
    encryption.encrypt(
        iter([plain]),
        recipients=encryption.parse_recipients([pair.recipient]),
        write=written.append,
    )
    return b"".join(written)


async def test_a_target_with_anything_in_it_is_left_as_it_is(rig: Rig, other_url: str) -> None:
    path = await rig.backup()
    there = await opening.open_store(other_url) if not other_url.startswith("sqlite") else None
    if there is None:
        (rig.folder / "restored").mkdir()
        there = await opening.open_store(other_url)
    await there.close()
    with pytest.raises(failures.TargetInUse, match="database is not empty"):
        await backups.put_back(
            path, pair=rig.pair, folder=rig.folder / "restored", url=other_url, now=LATER
        )
    assert await backups.rows_of(other_url, table="nodes") == []
    assert not (rig.folder / "restored" / "master.key").exists()
    assert not (rig.folder / "restored" / "restore-under-way.json").exists()


async def test_a_reader_that_leaves_ends_the_work_at_once(rig: Rig) -> None:
    chance = random.Random(1)
    rows = [(1000 + number, 1, "test", "x", chance.randbytes(800).hex()) for number in range(3000)]
    async with loads.opened(rig.url, busy_seconds=5, write=True) as loader:
        await loader.insert("events", columns=["seq", "at", "kind", "subject", "data"], rows=rows)
    told: list[manifest.Manifest] = []

    async def on_made(made: manifest.Manifest) -> None:
        told.append(made)

    async with asyncio.timeout(20), snapshots.taken(rig.url, busy_seconds=5) as snapshot:
        plan = await backups.plan_of(snapshot, keyring=rig.here.keyring, now=NOW)
        parts = create.encrypted(
            snapshot,
            plan=plan,
            recipients=encryption.parse_recipients([rig.pair.recipient]),
            on_made=on_made,
        )
        assert await anext(parts)
        await parts.aclose()
    assert told == []


async def test_memory_does_not_grow_with_the_number_of_rows(rig: Rig) -> None:
    # 20,000 events of some 1.2 KB each: 24 MB as lines of JSON
    rows = [
        (1000 + number, 1, "test", "x", json.dumps({"text": f"{number} {'x' * 1100}"}))
        for number in range(20_000)
    ]
    async with loads.opened(rig.url, busy_seconds=5, write=True) as loader:
        await loader.insert("events", columns=["seq", "at", "kind", "subject", "data"], rows=rows)
    del rows
    taken = 0
    tracemalloc.start()
    try:
        async with snapshots.taken(rig.url, busy_seconds=5) as snapshot:
            taken = len(
                await backups.of_snapshot(
                    snapshot, keyring=rig.here.keyring, pair=rig.pair, now=NOW
                )
            )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000 + taken
