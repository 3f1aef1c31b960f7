"""Small durable transactions a second: the store's group commit against raw single commits.

`python bench/store_rate.py [--database-url URL]`: each transaction has eight statements, as an
enrollment has. The raw figure is one `sqlite3` connection that commits each transaction by
itself with `synchronous = FULL`: the limit that a disk sets to whoever does not share commits.
"""

import argparse
import asyncio
import itertools
import json
import pathlib
import sqlite3
import tempfile
import time

from platform_server.store import contract, opening

STATEMENTS = (
    "SELECT name FROM platform_values WHERE name = ?",
    "INSERT INTO platform_values (name, value) VALUES (?, 'pending')",
    "UPDATE platform_values SET value = 'consumed' WHERE name = ? AND value = 'pending'",
    "INSERT INTO failure_counters (bucket, window_start, count) VALUES (?, 1, 1)",
    "SELECT value FROM platform_values WHERE name = ? AND value = 'consumed'",
    "INSERT INTO certificates (name, certificate_pem, not_after, updated_at) VALUES (?, 'c', 1, 1)",
    "SELECT name FROM certificates WHERE name = ?",
    "UPDATE certificates SET updated_at = 2 WHERE name = ?",
)
RAW_TRANSACTIONS = 300


async def _eight(tx: contract.Tx, *, name: str) -> None:
    for statement in STATEMENTS:
        await tx.execute(statement, name)


async def _grouped(url: str, *, in_flight: int, transactions: int) -> float:
    store = await opening.open_store(url)
    numbers = itertools.count()

    async def one() -> None:
        for number in numbers:
            if number >= transactions:
                return
            name = f"{in_flight}.{number}"
            await store.transact(lambda tx, name=name: _eight(tx, name=name))  # type: ignore[misc]

    started = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(in_flight)])
    seconds = time.perf_counter() - started
    await store.close()
    return transactions / seconds


def _raw(path: pathlib.Path) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    started = time.perf_counter()
    for number in range(RAW_TRANSACTIONS):
        connection.execute("BEGIN IMMEDIATE")
        for statement in STATEMENTS:
            connection.execute(statement, (f"raw.{number}",))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return RAW_TRANSACTIONS / seconds


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url")
    parser.add_argument("--transactions", type=int, default=5000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as folder:
        path = pathlib.Path(folder, "enlist.db")
        url = given.database_url or f"sqlite://{path}"
        single = asyncio.run(_grouped(url, in_flight=1, transactions=500))
        grouped = asyncio.run(_grouped(url, in_flight=64, transactions=given.transactions))
        figures = {"one_in_flight": round(single), "64_in_flight": round(grouped)}
        if given.database_url is None:
            raw = _raw(path)
            figures["raw_single_commits"] = round(raw)
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
