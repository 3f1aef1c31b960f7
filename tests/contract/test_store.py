"""What both stores promise, run on SQLite and on a real PostgreSQL."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from platform_server.store import contract, opening

Insert = Callable[[contract.Tx], Awaitable[int]]


def inserting(name: str, value: str = "v") -> Insert:
    async def work(tx: contract.Tx) -> int:
        return await tx.execute(
            "INSERT INTO platform_values (name, value) VALUES (?, ?)", name, value
        )

    return work


async def names(store: contract.Store) -> list[str]:
    async def work(tx: contract.Tx) -> list[str]:
        rows = await tx.fetch_all("SELECT name FROM platform_values ORDER BY name LIMIT 1000")
        return [row["name"] for row in rows]

    return await store.read(work)


async def test_what_a_transaction_wrote_is_read_afterwards(store: contract.Store) -> None:
    assert await store.transact(inserting("a")) == 1
    assert await names(store) == ["a"]


async def test_a_work_function_that_raises_leaves_nothing(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> None:
        await inserting("a")(tx)
        raise LookupError("changed my mind")

    with pytest.raises(LookupError, match="changed my mind"):
        await store.transact(work)
    assert await names(store) == []


async def test_a_rehearsal_sees_its_own_changes_and_leaves_nothing(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> int:
        await inserting("a")(tx)
        row = await tx.fetch_one("SELECT COUNT(*) AS n FROM platform_values")
        assert row is not None
        return int(row["n"])

    assert await store.rehearse(work) == 1
    assert await names(store) == []


async def test_a_reader_cannot_write(store: contract.Store) -> None:
    with pytest.raises(contract.StoreError):
        await store.read(inserting("a"))
    assert await names(store) == []


async def test_failures_among_many_take_back_only_themselves(store: contract.Store) -> None:
    async def failing(tx: contract.Tx, *, number: int) -> None:
        await inserting(f"bad-{number:03}")(tx)
        raise LookupError

    async def one(number: int) -> None:
        if number % 3 == 0:
            with pytest.raises(LookupError):
                await store.transact(lambda tx: failing(tx, number=number))
        else:
            await store.transact(inserting(f"good-{number:03}"))

    await asyncio.gather(*[one(number) for number in range(60)])
    assert await names(store) == [f"good-{n:03}" for n in range(60) if n % 3]


async def test_a_broken_rule_among_many_fails_only_its_own_caller(store: contract.Store) -> None:
    await store.transact(inserting("taken"))
    results = await asyncio.gather(
        store.transact(inserting("x")),
        store.transact(inserting("taken")),
        store.transact(inserting("y")),
        return_exceptions=True,
    )
    assert results[0] == results[2] == 1
    assert isinstance(results[1], contract.StoreConflict)
    assert await names(store) == ["taken", "x", "y"]


async def test_a_swallowed_error_of_a_statement_is_raised_all_the_same(
    store: contract.Store,
) -> None:
    await store.transact(inserting("taken"))

    async def work(tx: contract.Tx) -> str:
        await inserting("before")(tx)
        try:
            await inserting("taken")(tx)
        except contract.StoreConflict:
            return "swallowed"
        return "no conflict"

    with pytest.raises(contract.StoreConflict):
        await store.transact(work)
    assert await names(store) == ["taken"]


async def test_a_wrong_statement_is_our_fault_and_not_the_disks(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> None:
        await tx.execute("INSERT INTO no_such_table (x) VALUES (?)", 1)

    with pytest.raises(contract.StoreError) as caught:
        await store.transact(work)
    assert type(caught.value) is contract.StoreError
    assert (await store.health()).ok


async def test_the_conditional_write_says_whether_it_won(store: contract.Store) -> None:
    await store.transact(inserting("token", "pending"))

    async def redeem(tx: contract.Tx) -> bool:
        return (
            await tx.execute(
                "UPDATE platform_values SET value = ? WHERE name = ? AND value = ?",
                *("consumed", "token", "pending"),
            )
            == 1
        )

    won = await asyncio.gather(*[store.transact(redeem) for _ in range(50)])
    assert sum(won) == 1


async def test_of_two_engines_on_one_store_one_wins_each_round(store_url: str) -> None:
    engines = [await opening.open_store(store_url) for _ in range(2)]

    async def redeem(tx: contract.Tx, *, name: str) -> bool:
        won = await tx.execute(
            "UPDATE platform_values SET value = 'consumed' WHERE name = ? AND value = 'pending'",
            name,
        )
        await tx.lock_append()
        row = await tx.fetch_one("SELECT MAX(seq) AS seq FROM events")
        assert row is not None
        await tx.execute(
            "INSERT INTO events (seq, at, kind, subject) VALUES (?, 1, ?, ?)",
            *((row["seq"] or 0) + 1, "won" if won else "lost", name),
        )
        return won == 1

    for number in range(10):
        name = f"token-{number}"
        await engines[0].transact(inserting(name, "pending"))
        results = await asyncio.gather(
            *[engine.transact(functools.partial(redeem, name=name)) for engine in engines * 10]
        )
        assert sum(results) == 1
    await asyncio.gather(*[engine.close() for engine in engines])


async def test_a_nul_character_is_refused_by_postgresql_as_a_value(postgres_url: str) -> None:
    store = await opening.open_store(postgres_url)
    with pytest.raises(contract.StoreInvalid):
        await store.transact(inserting("a\0b"))
    await store.close()


async def test_a_work_function_that_awaits_something_else_is_told_so(tmp_path: Path) -> None:
    store = await opening.open_store(f"sqlite://{tmp_path}/enlist.db")

    async def work(tx: contract.Tx) -> None:
        await inserting("a")(tx)
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="other than its transaction"):
        await store.transact(work)
    assert await names(store) == []
    await store.close()


async def test_returning_gives_the_row_and_writes_it(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> object:
        row = await tx.fetch_one(
            "INSERT INTO platform_values (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value RETURNING value",
            *("a", "one"),
        )
        assert row is not None
        return row["value"]

    assert await store.transact(work) == "one"
    assert await names(store) == ["a"]


async def test_execute_counts_changed_rows(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> list[int]:
        return [
            await inserting("a")(tx),
            await inserting("b")(tx),
            await tx.execute("UPDATE platform_values SET value = ?", "w"),
            await tx.execute("DELETE FROM platform_values WHERE name = ?", "nobody"),
            await tx.execute("DELETE FROM platform_values"),
        ]

    assert await store.transact(work) == [1, 1, 2, 0, 2]


async def test_every_kind_of_value_comes_back_as_it_went_in(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> contract.Row | None:
        await tx.execute(
            "INSERT INTO sealed_secrets (name, sealed, kek_id, updated_at) VALUES (?, ?, ?, ?)",
            *("ключ 🗝", bytes(range(256)), "", 2**63 - 1),
        )
        return await tx.fetch_one("SELECT * FROM sealed_secrets")

    row = await store.transact(work)
    assert row is not None
    assert row["name"] == "ключ 🗝"
    assert row["sealed"] == bytes(range(256))
    assert type(row["sealed"]) is bytes
    assert row["kek_id"] == ""
    assert row["updated_at"] == 2**63 - 1


@pytest.mark.parametrize("value", ["\ud800", 2**63, -(2**63) - 1], ids=["surrogate", "big", "low"])
async def test_a_value_that_cannot_be_stored_is_refused_by_name(
    store: contract.Store, value: object
) -> None:
    async def work(tx: contract.Tx) -> None:
        column = "name" if isinstance(value, str) else "fence"
        await tx.fetch_one(f"SELECT * FROM leases WHERE {column} = ?", value)  # noqa: S608

    with pytest.raises(contract.StoreInvalid):
        await store.transact(work)


async def test_a_question_mark_in_quotes_is_no_placeholder(store: contract.Store) -> None:
    async def work(tx: contract.Tx) -> contract.Row | None:
        await inserting("what?")(tx)
        return await tx.fetch_one(
            "SELECT value FROM platform_values WHERE name = 'what?' AND value = ?", "v"
        )

    assert await store.transact(work) is not None


async def test_a_second_pending_enrollment_of_a_node_breaks_a_rule(store: contract.Store) -> None:
    async def issue(tx: contract.Tx, *, enrollment_id: str) -> None:
        await tx.execute(
            "INSERT INTO enrollments"
            " (enrollment_id, node_id, state, token_hash, created_at, created_by, expires_at)"
            " VALUES (?, 'n1', 'pending', ?, 1, 'tester', 2)",
            *(enrollment_id, b"h"),
        )

    await store.transact(lambda tx: issue(tx, enrollment_id="a"))
    with pytest.raises(contract.StoreConflict):
        await store.transact(lambda tx: issue(tx, enrollment_id="b"))


async def test_numbers_chosen_under_the_append_lock_have_no_gap(store: contract.Store) -> None:
    async def append(tx: contract.Tx) -> None:
        await tx.lock_append()
        row = await tx.fetch_one("SELECT MAX(seq) AS seq FROM events")
        assert row is not None
        await tx.execute(
            "INSERT INTO events (seq, at, kind, subject) VALUES (?, 1, 'k', 's')",
            (row["seq"] or 0) + 1,
        )

    await asyncio.gather(*[store.transact(append) for _ in range(40)])

    async def all_numbers(tx: contract.Tx) -> list[int]:
        return [row["seq"] for row in await tx.fetch_all("SELECT seq FROM events ORDER BY seq")]

    assert await store.read(all_numbers) == list(range(1, 41))


async def test_a_decision_under_a_named_lock_sees_the_decision_before(
    store: contract.Store,
) -> None:
    async def count_up(tx: contract.Tx) -> None:
        await tx.lock("node:n1")
        row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = 'n'")
        assert row is not None
        await tx.execute(
            "UPDATE platform_values SET value = ? WHERE name = 'n'", str(int(row["value"]) + 1)
        )

    await store.transact(inserting("n", "0"))
    await asyncio.gather(*[store.transact(count_up) for _ in range(30)])

    async def value(tx: contract.Tx) -> str:
        row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = 'n'")
        assert row is not None
        return str(row["value"])

    assert await store.read(value) == "30"


async def test_transactions_that_deadlock_are_run_again(store: contract.Store) -> None:
    await store.transact(inserting("a", "0"))
    await store.transact(inserting("b", "0"))

    async def crosswise(tx: contract.Tx, *, order: str) -> None:
        for name in order:
            await tx.execute("UPDATE platform_values SET value = ? WHERE name = ?", *(order, name))

    await asyncio.gather(
        *[store.transact(lambda tx, o=o: crosswise(tx, order=o)) for o in ["ab", "ba"] * 4]  # type: ignore[misc]
    )
    assert await names(store) == ["a", "b"]


async def test_a_cancelled_caller_disturbs_nobody(store: contract.Store) -> None:
    tasks = [asyncio.create_task(store.transact(inserting(f"n{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results[1::2] if result != 1] == []
    assert await store.transact(inserting("afterwards")) == 1
    assert {f"n{n}" for n in range(1, 20, 2)} <= set(await names(store))


async def test_logging_context_reaches_the_work_function(store: contract.Store) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")

    async def work(tx: contract.Tx) -> str:
        await tx.fetch_one("SELECT 1 AS one")
        return request.get()

    request.set("r-1")
    assert await store.transact(work) == "r-1"


async def test_health_names_the_schema_and_sizes_are_counted(store: contract.Store) -> None:
    health = await store.health()
    assert health.ok
    assert health.migration >= 1
    assert health.dialect == store.dialect
    assert (await store.sizes()).database_bytes > 0


async def test_a_closed_store_says_so(store: contract.Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(contract.StoreUnreachable, match="closed"):
        await store.transact(inserting("a"))
    with pytest.raises(contract.StoreUnreachable, match="closed"):
        await store.read(inserting("a"))
    assert not (await store.health()).ok


async def test_closing_lets_waiting_work_finish(store_url: str) -> None:
    store = await opening.open_store(store_url)
    tasks = [asyncio.create_task(store.transact(inserting(f"n{n:02}"))) for n in range(30)]
    await asyncio.sleep(0)
    await store.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    reopened = await opening.open_store(store_url)
    try:
        kept = await names(reopened)
    finally:
        await reopened.close()
    done = [f"n{n:02}" for n, result in enumerate(results) if result == 1]
    assert kept == done
    refused = [result for result in results if result != 1]
    assert [r for r in refused if not isinstance(r, contract.StoreUnreachable)] == []
