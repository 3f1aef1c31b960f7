"""The action log on either store: chained, in order, and honest about what was touched."""

import asyncio
import datetime

import pytest

from platform_server.audit import actions, chain, events, retention
from platform_server.store import contract

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def _append(store: contract.Store, name: str, *, days: int = 0) -> int:
    return await store.transact(
        lambda tx: actions.append(
            tx,
            action=actions.Action(
                at=NOW + datetime.timedelta(days=days),
                actor="local:0",
                action=name,
                target="node:ü",
                environment="test",
                details={"b": 1, "a": "é"},
            ),
        )
    )


async def _tamper(store: contract.Store, sql: str, *values: object) -> None:
    await store.transact(lambda tx: tx.execute(sql, *values))


async def test_entries_are_numbered_without_gaps_whoever_writes_at_once(
    store: contract.Store,
) -> None:
    numbers = await asyncio.gather(*(_append(store, f"a{one}") for one in range(20)))
    assert sorted(numbers) == list(range(1, 21))
    verdict = await chain.verify(store)
    assert (verdict.broken_at, verdict.entries, verdict.last_seq) == (None, 20, 20)


async def test_a_rolled_back_action_leaves_no_entry_and_no_gap(store: contract.Store) -> None:
    async def fail(tx: contract.Tx) -> None:
        await actions.append(
            tx,
            action=actions.Action(at=NOW, actor="a", action="b", target="c", environment="test"),
        )
        raise RuntimeError("undone")

    await _append(store, "one")
    with pytest.raises(RuntimeError):
        await store.transact(fail)
    assert await _append(store, "two") == 2


@pytest.mark.parametrize(
    ("sql", "words"),
    {
        "a changed actor": (
            "UPDATE action_log SET actor = 'x' WHERE seq = 3",
            "entry 3 was changed",
        ),
        "a changed time": (
            "UPDATE action_log SET at = at + 1 WHERE seq = 3",
            "entry 3 was changed",
        ),
        "a changed detail": (
            "UPDATE action_log SET details = '{}' WHERE seq = 3",
            "entry 3 was changed",
        ),
        "a changed MFA flag": (
            "UPDATE action_log SET mfa_verified = 1 WHERE seq = 3",
            "entry 3 was changed",
        ),
        "a missing entry": ("DELETE FROM action_log WHERE seq = 3", "entry 3 is missing"),
        "a missing first entry": ("DELETE FROM action_log WHERE seq = 1", "entry 1 is missing"),
    }.values(),
)
async def test_names_the_first_entry_that_does_not_fit(
    sql: str, words: str, store: contract.Store
) -> None:
    for one in range(5):
        await _append(store, f"a{one}")
    await _tamper(store, sql)
    verdict = await chain.verify(store)
    assert words in verdict.fault
    assert verdict.broken_at is not None


async def test_an_entry_rewritten_with_its_own_hash_breaks_the_one_behind_it(
    store: contract.Store,
) -> None:
    for one in range(3):
        await _append(store, f"a{one}")
    row = (
        await store.read(lambda tx: chain.list_page(tx, limit=1, chosen=chain.Filter(before_seq=3)))
    )[0]
    forged = actions.hash_of(
        (
            row.seq,
            int(row.at.timestamp() * 1_000_000),
            "somebody else",
            row.action,
            row.target,
            None,
            row.infra,
            row.environment,
            0,
            '{"a":"\\u00e9","b":1}',
        ),
        previous=row.previous_hash,
    )
    await _tamper(
        store, "UPDATE action_log SET actor = 'somebody else', hash = ? WHERE seq = 2", forged
    )
    verdict = await chain.verify(store)
    assert verdict.broken_at == 3


async def test_what_retention_leaves_can_still_be_verified(store: contract.Store) -> None:
    for one in range(10):
        await _append(store, f"a{one}", days=one)
    await store.transact(
        lambda tx: retention.purge(
            tx, now=NOW + datetime.timedelta(days=9), action_days=4, event_days=4
        )
    )
    verdict = await chain.verify(store)
    assert (verdict.broken_at, verdict.first_seq, verdict.last_seq) == (None, 6, 10)
    await _tamper(store, "DELETE FROM action_log WHERE seq = 6")
    assert (await chain.verify(store)).broken_at == 7


async def test_retention_always_leaves_the_newest_so_that_numbers_go_on(
    store: contract.Store,
) -> None:
    for one in range(3):
        await _append(store, f"a{one}")
        await store.transact(lambda tx: events.append(tx, at=NOW, kind="k", subject="s"))
    later = NOW + datetime.timedelta(days=9999)
    for _ in range(2):
        await store.transact(lambda tx: retention.purge(tx, now=later, action_days=1, event_days=1))
    assert await _append(store, "next") == 4
    assert await store.transact(lambda tx: events.append(tx, at=NOW, kind="k", subject="s")) == 4
    assert (await chain.verify(store)).entries == 2


async def test_a_clock_that_leaps_a_year_does_not_cost_the_log(store: contract.Store) -> None:
    for one in range(4):
        await _append(store, f"a{one}", days=one)

    async def purge(days: int) -> None:
        now = NOW + datetime.timedelta(days=days)
        await store.transact(lambda tx: retention.purge(tx, now=now, action_days=30, event_days=30))

    await purge(4)
    await purge(400)
    await purge(4)
    assert (await chain.verify(store)).first_seq == 1
    for _ in range(28):
        await purge(400)
    assert (await chain.verify(store)).first_seq == 4


async def test_pages_are_newest_first_and_filtered(store: contract.Store) -> None:
    for one in range(6):
        await _append(store, f"a{one % 2}", days=one)
    page = await store.read(
        lambda tx: chain.list_page(tx, limit=2, chosen=chain.Filter(action="a1"))
    )
    assert [entry.seq for entry in page] == [6, 4]
    since = NOW + datetime.timedelta(days=4)
    page = await store.read(
        lambda tx: chain.list_page(tx, limit=9, chosen=chain.Filter(since=since))
    )
    assert [entry.seq for entry in page] == [6, 5]


async def test_details_beyond_their_bound_are_refused(store: contract.Store) -> None:
    with pytest.raises(actions.DetailsTooLarge):
        await store.transact(
            lambda tx: actions.append(
                tx,
                action=actions.Action(
                    at=NOW,
                    actor="a",
                    action="b",
                    target="c",
                    environment="test",
                    details={"x": "y" * 20_000},
                ),
            )
        )
