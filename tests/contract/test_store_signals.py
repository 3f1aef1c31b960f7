"""Signals between the engines of one store, on both stores."""

import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from platform_server.store import contract, opening, signals
from tests.support import postgres, waits

_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'enlist-signals'"
)


class Heard(list[str]):
    """What a listener was told; the word that something may have been missed is counted apart."""

    def __init__(self) -> None:
        super().__init__()
        self.missed = 0

    def __call__(self, payload: str) -> None:
        if payload == signals.MISSED:
            self.missed += 1
        else:
            self.append(payload)


@pytest.fixture
async def engines(store_url: str, store_kind: str) -> AsyncIterator[list[contract.Store]]:
    """Two engines on PostgreSQL; on SQLite there is one."""
    number = 1 if store_kind == "sqlite" else 2
    opened = [await opening.open_store(store_url) for _ in range(number)]
    try:
        yield opened
    finally:
        for one in opened:
            await one.close()


async def listening(store: contract.Store, channel: str) -> Heard:
    """A listener that hears by now."""
    heard = Heard()
    store.listen(channel, heard)
    await waits.until(lambda: heard.missed > 0)
    return heard


async def test_a_signal_reaches_every_engine_in_order_and_no_other_channel(
    engines: list[contract.Store],
) -> None:
    here = await listening(engines[0], "orders")
    there = await listening(engines[-1], "orders")
    other = await listening(engines[-1], "sessions")
    sent = [f"node-{number}" for number in range(300)]
    for one in sent:
        engines[0].signal("orders", one)
    await waits.until(lambda: len(here) == len(there) == len(sent))
    assert here == there == sent
    assert other == []


async def test_a_fault_of_one_listener_harms_no_other(
    engines: list[contract.Store],
) -> None:
    def fails(payload: str) -> None:
        raise LookupError(payload)

    engines[0].listen("orders", fails)
    heard = await listening(engines[0], "orders")
    engines[-1].signal("orders", "a")
    engines[-1].signal("orders", "b")
    await waits.until(lambda: heard == ["a", "b"])


async def test_one_who_stopped_listening_hears_nothing_more(
    engines: list[contract.Store],
) -> None:
    stopped = Heard()
    cancel = engines[0].listen("orders", stopped)
    goes_on = await listening(engines[0], "orders")
    cancel()
    cancel()
    engines[0].signal("orders", "a")
    await waits.until(lambda: goes_on == ["a"])
    assert stopped == []


async def test_what_is_no_channel_or_too_long_is_our_fault(store: contract.Store) -> None:
    with pytest.raises(ValueError, match="channel"):
        store.signal("Orders!", "a")
    with pytest.raises(ValueError, match="bytes"):
        store.signal("orders", "")
    with pytest.raises(ValueError, match="bytes"):
        store.signal("orders", "x" * (signals.MAX_BYTES + 1))


async def test_the_longest_payload_arrives_whole(
    engines: list[contract.Store],
) -> None:
    heard = await listening(engines[-1], "orders")
    longest = "ü" * (signals.MAX_BYTES // 2)
    engines[0].signal("orders", longest)
    await waits.until(lambda: heard == [longest])


async def test_a_signal_to_nobody_and_one_after_the_end_harm_nobody(store_url: str) -> None:
    store = await opening.open_store(store_url)
    store.signal("orders", "a")
    await store.close()
    store.signal("orders", "b")
    await store.close()


async def test_a_lost_connection_is_made_anew_and_listeners_are_told_to_look(
    postgres_server: postgres.Server, new_database: Callable[[], str]
) -> None:
    url = new_database()
    store = await opening.open_store(url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        heard = await listening(store, "orders")
        for round_ in range(1, 4):
            postgres_server.run_sql(f"{_END} AND datname = '{url.rpartition('/')[2]}'")
            await waits.until(lambda told=round_ + 1: heard.missed >= told)  # type: ignore[misc]
            store.signal("orders", f"after-{round_}")
            await waits.until(lambda now=round_: heard[-1:] == [f"after-{now}"])  # type: ignore[misc]
