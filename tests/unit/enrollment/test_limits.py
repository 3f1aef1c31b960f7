"""The limits on failures, without a store."""

import datetime

from platform_server.enrollment import limiter
from tests.support import domain

NOW = domain.START
LIMITS = limiter.Limits(per_minute=12, per_address=5, per_token=3)


class _NoTx:
    """The memory limiter needs no store."""


async def _fail(
    counting: limiter.MemoryLimiter, *, address: str, token_id: str, after: float = 0
) -> int | None:
    return await counting.count_failure(
        _NoTx(),  # type: ignore[arg-type]
        address=address,
        token_id=token_id,
        now=NOW + datetime.timedelta(seconds=after),
    )


async def test_one_address_is_stopped_at_its_limit_and_others_go_on() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    said = [await _fail(counting, address="192.0.2.1", token_id=f"{n}") for n in range(7)]
    assert said == [None] * 5 + [60, 60]
    assert await _fail(counting, address="192.0.2.2", token_id="x") is None


async def test_one_token_id_is_stopped_at_its_limit_whoever_tries_it() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    said = [await _fail(counting, address=f"192.0.2.{n}", token_id="t") for n in range(4)]
    assert said == [None] * 3 + [60]


async def test_all_together_are_stopped_at_the_ceiling() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    said = [await _fail(counting, address=f"192.0.2.{n}", token_id=f"{n}") for n in range(13)]
    assert said == [None] * 12 + [60]


async def test_what_was_stopped_is_not_counted_so_a_flood_keeps_memory_bounded() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    for n in range(5000):
        await _fail(counting, address=f"10.0.{n // 250}.{n % 250}", token_id=f"{n}")
    assert len(counting._counts) <= 1 + 2 * LIMITS.per_minute


async def test_a_new_minute_begins_afresh_and_the_wait_leads_there() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    for _ in range(3):
        await _fail(counting, address="192.0.2.1", token_id="t", after=10)
    assert await _fail(counting, address="192.0.2.1", token_id="t", after=10.5) == 50
    assert await _fail(counting, address="192.0.2.1", token_id="t", after=60.5) is None


async def test_an_ipv6_customer_is_one_address_by_its_64_bits() -> None:
    counting = limiter.MemoryLimiter(LIMITS)
    said = [await _fail(counting, address=f"2001:db8::{n}", token_id=f"{n}") for n in range(6)]
    assert said == [None] * 5 + [60]
    assert await _fail(counting, address="2001:db8:0:1::1", token_id="x") is None


def test_an_allowance_is_counted_per_address_and_in_all() -> None:
    allowance = limiter.Allowance(per_minute=4, per_address=2)
    taken = [allowance.take(address="192.0.2.1", now=NOW) for _ in range(3)]
    assert taken == [None, None, 60]
    assert allowance.take(address="192.0.2.2", now=NOW) is None
    assert allowance.take(address="192.0.2.3", now=NOW) is None
    assert allowance.take(address="192.0.2.4", now=NOW) == 60
    assert allowance.take(address="192.0.2.4", now=NOW + datetime.timedelta(minutes=1)) is None
