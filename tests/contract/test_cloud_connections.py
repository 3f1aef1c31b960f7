"""Connections over either store, at a provider that checks tokens: proved, sealed, recorded."""

import contextlib
import functools
from typing import Any

import pytest

from platform_server.cloud import (
    connecting,
    connections,
    forgetting,
    pausing,
    using,
    wishes,
)
from platform_server.store import contract
from provisioning import outcomes
from tests.support import cloud_desk
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit

TOKEN = hetzner_bench.TOKEN
NEXT_TOKEN = "hz-the-next-token-9876543210"


def _desk(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, **more: Any
) -> cloud_desk.Desk:
    return cloud_desk.place(store, hetzner, address=hetzner.address, **more)


async def _connected(store: contract.Store, hetzner: hetzner_bench.HetznerBench) -> cloud_desk.Desk:
    desk = _desk(store, hetzner)
    await desk.connecting.save(desk.wish(token=TOKEN))
    return desk


async def _use(desk: cloud_desk.Desk, **more: Any) -> None:
    """One use that reads."""
    values: dict[str, Any] = {"purpose": "look", "actor": cloud_desk.ACTOR, "changes": False}
    async with desk.clouds.driver("main", **{**values, **more}) as driver:
        await driver.inventory(desk.installation)


async def test_a_connection_is_kept_only_once_its_credential_has_proved_itself(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner)
    with pytest.raises(connecting.CredentialRefused, match="token"):
        await desk.connecting.save(desk.wish(token="hz-not-a-token-of-this-project-00"))
    assert await desk.find() is None
    saved = await desk.connecting.save(desk.wish(token=TOKEN))
    found = await desk.get()
    assert (found.pause, found.credential_kind) == (None, "token")
    assert saved.checked.validation is not None
    assert found.account == saved.checked.validation.account
    assert hetzner.ledger.living() == []


async def test_a_provider_that_gives_no_clear_answer_proves_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner)
    hetzner.script.arm_always(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=503), on="GET /v1/servers"
    )
    with pytest.raises(outcomes.Fault) as caught:
        await desk.connecting.save(desk.wish(token=TOKEN))
    assert caught.value.outcome is outcomes.Outcome.UNKNOWN
    assert await desk.find() is None


async def test_a_token_that_may_only_read_is_refused_and_the_missing_right_is_named(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner)
    with pytest.raises(connecting.CredentialRefused, match="read & write") as caught:
        await desk.connecting.save(desk.wish(token=hetzner_bench.READING_TOKEN))
    assert "Hetzner Cloud" in caught.value.setup
    assert await desk.find() is None


async def test_the_credential_is_sealed_and_stands_nowhere_else(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    await _use(desk)
    stored = await desk.everything_stored()
    assert TOKEN.encode() not in stored
    assert b"es1" in stored  # it is there, sealed
    assert TOKEN not in repr(await desk.get())
    found = await desk.get()
    opened = await store.read(
        lambda tx: connections.open_secret(
            tx, keyring=desk.keyring, connection_id=found.connection_id
        )
    )
    assert opened is not None
    assert TOKEN.encode() in opened


async def test_a_rehearsal_proves_the_credential_and_stores_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner)
    saved = await desk.connecting.save(desk.wish(token=TOKEN), rehearse=True)
    assert saved.checked.is_well
    assert await desk.find() is None


async def test_reading_is_recorded_once_an_hour_for_each_person_and_purpose(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    for _ in range(5):
        await _use(desk)
    await _use(desk, actor="person:other")
    await _use(desk, purpose="sweep")
    desk.clock.advance(3600)
    await _use(desk)
    uses = [(entry["actor"], entry["purpose"]) for entry in await desk.actions("cloud.use")]
    assert uses == [
        (cloud_desk.ACTOR, "prove"),
        (cloud_desk.ACTOR, "look"),
        ("person:other", "look"),
        (cloud_desk.ACTOR, "sweep"),
        (cloud_desk.ACTOR, "look"),
    ]


async def test_each_call_that_changes_something_is_recorded_before_it_is_sent(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    request = hetzner.request(operation="op-9")
    hetzner.script.arm(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=500), on="POST /v1/servers"
    )
    with pytest.raises(outcomes.Fault):
        async with desk.clouds.driver(
            "main", purpose="create", actor=cloud_desk.ACTOR, operation_id="op-9", changes=True
        ) as driver:
            await driver.create(request)
    told = await desk.actions("cloud.call")
    (entry,) = [one for one in told if one["call"] == "POST /v1/servers"]
    assert {one["call"] for one in told} == {
        "POST /v1/servers",
        "POST /v1/ssh_keys",
        "POST /v1/firewalls",
    }
    assert (entry["call"], entry["operation"], entry["actor"]) == (
        "POST /v1/servers",
        "op-9",
        cloud_desk.ACTOR,
    )
    assert entry["principal"]


class _Full(Exception):
    """Stands for a log that cannot be written."""


async def test_what_cannot_be_recorded_is_not_done(
    store: contract.Store,
    hetzner: hetzner_bench.HetznerBench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = await _connected(store, hetzner)
    before = len(hetzner.ledger.seen)

    async def refuse(*_: object, **__: object) -> int:
        raise _Full

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platform_server.audit.actions.append", refuse)
        with pytest.raises(_Full):
            await _use(desk)
    assert len(hetzner.ledger.seen) == before
    with contextlib.suppress(_Full):
        async with desk.clouds.driver(
            "main", purpose="create", actor=cloud_desk.ACTOR, changes=True
        ) as driver:
            monkeypatch.setattr("platform_server.audit.actions.append", refuse)
            await driver.create(hetzner.request())
    assert hetzner.ledger.count("POST /v1/servers") == 0
    assert hetzner.ledger.living() == []


async def test_a_use_that_was_to_read_changes_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    with pytest.raises(using.ReadingOnly):
        async with desk.clouds.driver(
            "main", purpose="look", actor=cloud_desk.ACTOR, changes=False
        ) as driver:
            await driver.create(hetzner.request())
    assert hetzner.ledger.count("POST /v1/servers") == 0


async def test_b76_a_revoked_token_is_one_alarm_and_one_probe_in_five_minutes(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.script.is_token_revoked = True
    with pytest.raises(outcomes.Fault):
        await _use(desk)
    calls = len(hetzner.ledger.seen)
    for _ in range(60):  # an hour in which somebody tries every minute
        desk.clock.advance(60)
        with pytest.raises(using.Paused, match="Save a credential that works"):
            await _use(desk)
    assert len(hetzner.ledger.seen) - calls <= 12
    (alarm,) = await desk.events("cloud-connection.paused")
    assert (alarm["subject"], alarm["topic"]) == ("main", "auth")
    assert len(await desk.actions("cloud.connections.paused")) == 1
    hetzner.script.is_token_revoked = False  # somebody lifted the ban at the provider
    desk.clock.advance(pausing.PROBE_SECONDS)
    await _use(desk)
    assert (await desk.get()).pause is None


async def test_b76_everything_resumes_after_the_new_secret_is_saved_without_a_restart(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    first = await desk.get()
    del hetzner.fake.tokens[TOKEN]
    with pytest.raises(outcomes.Fault):
        await _use(desk)
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO operations(operation_id, kind, infra, state, request, created_at, "
            "created_by, updated_at, next_at) VALUES ('o1', 'create-machine', 'default', "
            "'creating', '{}', 0, 'x', 0, ?)",
            2**60,
        )
    )
    hetzner.fake.tokens[NEXT_TOKEN] = "rw"
    await desk.connecting.save(desk.wish(token=NEXT_TOKEN))
    found = await desk.get()
    assert (found.connection_id, found.pause) == (first.connection_id, None)
    await _use(desk)
    used = {one.headers["authorization"] for one in hetzner.ledger.seen[-3:]}
    assert used == {f"Bearer {NEXT_TOKEN}"}
    row = await store.read(
        lambda tx: tx.fetch_one("SELECT next_at FROM operations WHERE operation_id = 'o1'")
    )
    assert row is not None
    assert row["next_at"] < 2**60  # what waited is looked at now
    assert len(await desk.events("cloud-connection.resumed")) == 1


async def test_b76_what_the_old_secret_met_says_nothing_of_the_new(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.fake.tokens[NEXT_TOKEN] = "rw"

    async def slow() -> None:
        async with desk.clouds.driver(
            "main", purpose="slow", actor=cloud_desk.ACTOR, changes=False
        ) as driver:
            await desk.connecting.save(desk.wish(token=NEXT_TOKEN))
            del hetzner.fake.tokens[TOKEN]
            await driver.inventory(desk.installation)

    with pytest.raises(outcomes.Fault):
        await slow()
    assert (await desk.get()).pause is None
    assert await desk.events("cloud-connection.paused") == []


async def test_a_check_names_what_is_missing_and_creates_nothing(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.fake.tokens[TOKEN] = "ro"
    saved = await desk.connecting.check("main", actor=cloud_desk.ACTOR)
    assert saved.checked.validation is not None
    assert saved.checked.validation.missing == ("read & write",)
    assert not saved.checked.is_well
    assert (await desk.get()).checked["missing"] == ["read & write"]
    assert hetzner.ledger.living() == []
    assert hetzner.ledger.living_things() == []


async def test_a_connection_is_not_turned_into_one_to_another_provider(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    with pytest.raises(connecting.ConnectionDiffers, match="another name"):
        await desk.connecting.save(desk.wish(token=TOKEN, provider="digitalocean"))


async def test_a_token_of_another_project_is_not_taken_over_a_connection_with_machines(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    found = await desk.get()
    ref = hetzner.plant(name="web-1", tags={})

    async def machine(tx: contract.Tx) -> None:
        await _insert(tx, table="cloud_machines", connection_id=found.connection_id)
        await tx.execute("UPDATE cloud_machines SET provider_ref = ?, seen_at = 1", ref)

    await store.transact(machine)
    await desk.connecting.save(desk.wish(token=TOKEN))  # it sees the machine
    with hetzner_bench.HetznerBench() as other:
        wish = desk.wish(token=TOKEN, settings={"endpoint": other.address})
        with pytest.raises(connecting.ConnectionDiffers, match=r"does not see what .* \(web-1\)"):
            await desk.connecting.save(wish)
    assert (await desk.get()).settings == {"endpoint": hetzner.address}


async def test_an_address_of_its_own_is_refused_unless_the_settings_allow_it(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = _desk(store, hetzner, allow_endpoints=False)
    with pytest.raises(wishes.Invalid, match="allow_endpoints"):
        await desk.connecting.save(desk.wish(token=TOKEN))
    allowed = cloud_desk.place(store, hetzner, address=hetzner.address, keyring=desk.keyring)
    await allowed.connecting.save(allowed.wish(token=TOKEN))
    with pytest.raises(outcomes.Fault, match="allow_endpoints"):  # and not once it was saved
        await _use(desk)


HINDRANCES = {
    "the machine of web-1": "cloud_machines",
    "the volume data": "cloud_children",
    "the orphan stray": "cloud_orphans",
}
_MACHINE = (
    "machine_id, node_id, provider, operation_id, region, size, image, template, ordered_at, "
    "ordered_by, connection_id"
)
_COLUMNS = {
    "cloud_machines": (
        _MACHINE,
        "'m1', 'web-1', 'hetzner', 'o1', 'fsn1', 'cx23', 'debian-12', 't', 0, 'x', ?",
    ),
    "cloud_children": (
        (
            "child_id, kind, provider_ref, name, operation_id, keep, sent_at, written_at, "
            "connection_id"
        ),
        "'c1', 'volume', '7', 'data', 'o2', 1, 0, 0, ?",
    ),
    "cloud_orphans": (
        "kind, provider_ref, name, first_seen_at, last_seen_at, connection_id",
        "'machine', '8', 'stray', 0, 0, ?",
    ),
}


async def _insert(tx: contract.Tx, *, table: str, connection_id: str) -> None:
    names, values = _COLUMNS[table]
    await tx.execute(
        f"INSERT INTO {table}({names}) VALUES ({values})",  # noqa: S608 - of the test
        connection_id,
    )


async def _end(tx: contract.Tx, *, table: str) -> None:
    await tx.execute(f"UPDATE {table} SET gone_at = 1")  # noqa: S608 - of the test


async def test_forgetting_is_refused_while_something_made_through_it_is_not_confirmed_gone(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    found = await desk.get()

    async def forget() -> connections.Connection:
        return await store.transact(
            lambda tx: forgetting.forget(
                tx,
                name="main",
                actor=cloud_desk.ACTOR,
                environment=cloud_desk.ENVIRONMENT,
                now=desk.clock.now(),
            )
        )

    for sentence, table in HINDRANCES.items():
        await store.transact(
            functools.partial(_insert, table=table, connection_id=found.connection_id)
        )
        with pytest.raises(forgetting.ConnectionInUse, match=sentence):
            await forget()
        await store.transact(functools.partial(_end, table=table))
    assert (await forget()).name == "main"
    assert await desk.find() is None
    (entry,) = await desk.actions("cloud.connections.forget")
    assert entry["actor"] == cloud_desk.ACTOR


async def test_what_came_with_a_machine_is_named_once_the_machine_is_gone_and_it_is_not(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    found = await desk.get()

    async def work(tx: contract.Tx) -> list[list[str]]:
        await _insert(tx, table="cloud_machines", connection_id=found.connection_id)
        for child in ("4", "6"):
            await tx.execute(
                "INSERT INTO cloud_children(child_id, kind, provider_ref, name, machine_id, "
                "operation_id, keep, written_at, connection_id) "
                "VALUES (?, 'address', ?, '', 'm1', 'o1', 0, 0, ?)",
                child,
                child,
                found.connection_id,
            )
        there = await forgetting.list_left(tx, connection_id=found.connection_id)
        await _end(tx, table="cloud_machines")
        return [there, await forgetting.list_left(tx, connection_id=found.connection_id)]

    assert await store.transact(work) == [["the machine of web-1"], ["the address of web-1"]]


async def test_a_probe_does_not_open_what_lacks_rights(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    hetzner.script.is_token_revoked = True
    with pytest.raises(outcomes.Fault):
        await _use(desk)
    hetzner.script.is_token_revoked = False  # it works again, but somebody took rights away
    hetzner.fake.tokens[TOKEN] = "ro"
    desk.clock.advance(pausing.PROBE_SECONDS)
    with pytest.raises(using.Paused, match="lacks rights: read & write"):
        await _use(desk)
    assert (await desk.get()).pause is not None
    hetzner.fake.tokens[TOKEN] = "rw"
    desk.clock.advance(pausing.PROBE_SECONDS)
    await _use(desk)
    assert (await desk.get()).pause is None


async def test_a_probe_of_one_credential_does_not_open_another(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _connected(store, hetzner)
    probed = await desk.get()
    hetzner.fake.tokens[NEXT_TOKEN] = "rw"
    desk.clock.advance(1)
    await desk.connecting.save(desk.wish(token=NEXT_TOKEN))
    await store.transact(
        lambda tx: tx.execute("UPDATE cloud_connections SET paused_at = 1, paused_reason = 'x'")
    )

    async def resume(connection: connections.Connection) -> bool:
        return await store.transact(
            lambda tx: pausing.resume(
                tx,
                connection=connection,
                actor=cloud_desk.ACTOR,
                environment=cloud_desk.ENVIRONMENT,
                now=desk.clock.now(),
            )
        )

    assert not await resume(probed)
    assert await resume(await desk.get())
