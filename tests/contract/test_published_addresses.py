"""Which addresses statements name when several engines publish, on both stores."""

import datetime
import functools

import pytest

from platform_server.store import contract
from platform_server.trust import addresses, statements
from wire_protocol import pins

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
A, B, C = "https://a.example:8445", "https://b.example:8445", "https://c.example:8445"


def facts(*gateways: str, enrollment: str | None = None) -> statements.Facts:
    return statements.Facts(gateway_urls=gateways, enrollment_url=enrollment)


class Engines:
    """Engines that publish one after the other; `present` is what the last statement says."""

    def __init__(self, store: contract.Store) -> None:
        self._store = store
        self.present: statements.Facts | None = None
        self.published = 0

    async def publish(
        self, place: str, own: statements.Facts, *, after: datetime.timedelta = HOUR * 0
    ) -> statements.Facts:
        joined = await self._store.transact(
            functools.partial(
                addresses.join, place=place, own=own, now=NOW + after, present=self.present
            )
        )
        self.published += joined != self.present
        self.present = joined
        return joined

    async def stand(self, place: str, *, after: datetime.timedelta) -> int:
        return await self._store.transact(
            functools.partial(addresses.stand, place=place, now=NOW + after)
        )

    async def look(self, *, after: datetime.timedelta) -> tuple[str, ...]:
        assert self.present is not None
        found = await self._store.transact(
            functools.partial(addresses.without_old, facts=self.present, now=NOW + after)
        )
        return found.gateway_urls


@pytest.fixture
def engines(store: contract.Store) -> Engines:
    return Engines(store)


async def test_an_engine_alone_names_its_own_addresses_the_best_first(engines: Engines) -> None:
    assert (await engines.publish("one", facts(C, A, B))).gateway_urls == (C, A, B)


async def test_one_that_moved_replaces_its_addresses_at_once(engines: Engines) -> None:
    await engines.publish("one", facts(A, enrollment="https://a.example:8444"))
    moved = await engines.publish("one", facts(B, enrollment="https://b.example:8444"))
    assert (moved.gateway_urls, moved.enrollment_url) == ((B,), "https://b.example:8444")


async def test_without_a_gateway_none_is_named(engines: Engines) -> None:
    await engines.publish("one", facts(A))
    assert (await engines.publish("one", facts())).gateway_urls == ()


async def test_on_sqlite_whoever_publishes_is_the_only_engine(
    engines: Engines, store_kind: str
) -> None:
    if store_kind != "sqlite":
        pytest.skip("several engines run on PostgreSQL")
    await engines.publish("one", facts(A))
    assert (await engines.publish("restored elsewhere", facts(B))).gateway_urls == (B,)


async def test_all_engines_are_named_and_a_restart_of_one_changes_nothing(
    engines: Engines, store_kind: str
) -> None:
    _several(store_kind)
    await engines.publish("one", facts(B, enrollment="https://b.example:8444"))
    both = await engines.publish("two", facts(A, enrollment="https://a.example:8444"))
    assert both.gateway_urls == (A, B)
    assert both.enrollment_url == "https://b.example:8444"
    before = engines.published
    for _ in range(3):
        await engines.publish("one", facts(B, enrollment="https://b.example:8444"), after=HOUR)
        await engines.publish("two", facts(A, enrollment="https://a.example:8444"), after=HOUR)
    assert engines.published == before


async def test_the_enrollment_address_changes_when_its_engine_has_another(
    engines: Engines, store_kind: str
) -> None:
    _several(store_kind)
    await engines.publish("one", facts(enrollment="https://b.example:8444"))
    await engines.publish("two", facts(enrollment="https://a.example:8444"))
    moved = await engines.publish("one", facts(enrollment="https://c.example:8444"))
    assert moved.enrollment_url == "https://c.example:8444"


async def test_an_engine_that_is_gone_is_forgotten_after_a_day_and_one_that_stands_is_not(
    engines: Engines, store_kind: str
) -> None:
    _several(store_kind)
    await engines.publish("one", facts(A))
    await engines.publish("two", facts(B))
    assert await engines.stand("two", after=20 * HOUR) == 1
    assert await engines.look(after=23 * HOUR) == (A, B)
    assert await engines.look(after=25 * HOUR) == (B,)
    assert await engines.stand("one", after=26 * HOUR) == 0


async def test_an_engine_without_a_gateway_leaves_those_of_others_and_their_pins(
    engines: Engines, store_kind: str
) -> None:
    _several(store_kind)
    pin = pins.Pin("sha256:" + "ab" * 32)
    await engines.publish("one", statements.Facts(gateway_urls=(A,), gateway_pins=(pin,)))
    left = await engines.publish("two", facts())
    assert (left.gateway_urls, left.gateway_pins) == ((A,), (pin,))


def _several(store_kind: str) -> None:
    if store_kind == "sqlite":
        pytest.skip("one engine runs on SQLite")
