"""Changes of operations a second: claim, move with its step and event, release, each durable.

One engine's worth of workers, 16 at once, over SQLite and, where it can be had, PostgreSQL, both on
this machine's disk. Held against raw single commits of the same disk in the same run: what shares
commits goes past them. A change is what a kind writes at each step of an order of a machine.
"""

import asyncio
import datetime
import itertools
import pathlib
import secrets
import sqlite3
import sys
import tempfile
import time

from bench import report
from platform_server.operations import holding, records, states
from platform_server.store import contract, opening
from tests.support import postgres

IN_FLIGHT = 16
SECONDS = 4.0
RAW_COMMITS = 200
WALK = (
    states.Event.VALIDATE,
    states.Event.CREATE,
    states.Event.ACCEPT,
    states.Event.REPORT,
    states.Event.JOIN,
    states.Event.ADMIT,
    states.Event.SUCCEED,
)
NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


async def _one(store: contract.Store, *, number: int, until: float) -> int:
    """Walks one order after the other to its end; gives how many changes it made."""
    made = 0
    for order in itertools.count():
        operation = records.Operation(
            operation_id=secrets.token_hex(8),
            kind="create-machine",
            infra="default",
            subject=f"n{number}-{order}",
            parent_id=None,
            state=states.State.REQUESTED,
            request={},
            created_at=NOW,
            created_by="bench",
            updated_at=NOW,
            next_at=NOW,
        )

        async def insert(tx: contract.Tx, operation: records.Operation = operation) -> None:
            await records.insert(tx, operation=operation)

        await store.transact(insert)
        for event in WALK:
            await _change(store, operation_id=operation.operation_id, event=event)
            made += 1
            if time.perf_counter() >= until:
                return made
    raise AssertionError


async def _change(store: contract.Store, *, operation_id: str, event: states.Event) -> None:
    async def claim(tx: contract.Tx) -> holding.Held | None:
        return await holding.claim(tx, operation_id=operation_id, holder="bench", now=NOW)

    held = await store.transact(claim)
    if held is None:
        raise AssertionError("Nobody else is here to hold it.")

    async def move(tx: contract.Tx) -> None:
        await holding.move(
            tx, held=held, move=holding.Move(event=event), environment="test", now=NOW
        )

    await store.transact(move)
    ended = states.after(held.operation.state, event) in states.ENDED
    if not ended:
        await store.transact(lambda tx: holding.release(tx, held=held))


async def _rate(url: str) -> float:
    store = await opening.open_store(url)
    try:
        begun = time.perf_counter()
        made = await asyncio.gather(
            *(_one(store, number=number, until=begun + SECONDS) for number in range(IN_FLIGHT))
        )
        return sum(made) / (time.perf_counter() - begun)
    finally:
        await store.close()


def _raw(path: pathlib.Path) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE t (n INTEGER)")
        begun = time.perf_counter()
        for number in range(RAW_COMMITS):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
        return RAW_COMMITS / (time.perf_counter() - begun)
    finally:
        connection.close()


def main() -> int:
    """Runs the bench."""
    as_json = report.wants_json()
    with tempfile.TemporaryDirectory(prefix="enlist-bench-") as room:
        folder = pathlib.Path(room)
        raw = _raw(folder / "raw.db")
        sqlite = asyncio.run(_rate(f"sqlite:///{folder}/enlist.db"))
    figures = [
        report.Figure(
            name="sqlite", value=sqlite, unit="/s", meaning="changes of operations, SQLite"
        ),
        report.Figure(
            name="raw_commits", value=raw, unit="/s", meaning="single durable commits of the disk"
        ),
        report.Figure(
            name="sqlite_ratio",
            value=sqlite / raw,
            unit="",
            meaning="changes (three transactions each) over raw single commits",
        ),
    ]
    try:
        with postgres.running_server() as server:
            rate = asyncio.run(_rate(server.new_database()))
    except postgres.Unavailable as reason:
        print(f"PostgreSQL is left out: {reason}", file=sys.stderr)
    else:
        figures.append(
            report.Figure(
                name="postgresql",
                value=rate,
                unit="/s",
                meaning="changes of operations, PostgreSQL",
            )
        )
        figures.append(
            report.Figure(
                name="postgresql_ratio",
                value=rate / raw,
                unit="",
                meaning="the same over raw single commits",
            )
        )
    report.show("transitions", figures, as_json=as_json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
