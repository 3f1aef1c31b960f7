"""Leases with fencing numbers, on both stores."""

import asyncio

import pytest

from platform_server.store import contract, leases

SECOND = 1_000_000
TTL = 30 * SECOND


async def take(store: contract.Store, holder: str, *, at: int) -> leases.Lease | None:
    return await leases.acquire(
        store, name="probe", holder=holder, now_micros=at * SECOND, ttl_micros=TTL
    )


async def test_a_lease_has_one_holder_until_it_ends(store: contract.Store) -> None:
    first = await take(store, "a", at=0)
    assert first is not None
    assert first.fence == 1
    assert await take(store, "b", at=29) is None
    assert await take(store, "a", at=29) is None
    second = await take(store, "b", at=30)
    assert second is not None
    assert (second.holder, second.fence) == ("b", 2)


async def test_a_renewed_lease_goes_on_and_a_lost_one_says_so(store: contract.Store) -> None:
    lease = await take(store, "a", at=0)
    assert lease is not None
    renewed = await leases.renew(store, lease=lease, now_micros=20 * SECOND, ttl_micros=TTL)
    assert renewed is not None
    assert renewed.fence == lease.fence
    assert await take(store, "b", at=40) is None
    assert await take(store, "b", at=50) is not None
    late = await leases.renew(store, lease=renewed, now_micros=51 * SECOND, ttl_micros=TTL)
    assert late is None


async def test_a_released_lease_is_free_at_once_and_its_number_still_rises(
    store: contract.Store,
) -> None:
    lease = await take(store, "a", at=0)
    assert lease is not None
    await leases.release(store, lease=lease)
    await leases.release(store, lease=lease)
    taken = await take(store, "b", at=1)
    assert taken is not None
    assert taken.fence == 2
    await leases.release(store, lease=lease)
    assert await take(store, "c", at=2) is None


async def test_a_holder_that_slept_cannot_write(store: contract.Store) -> None:
    asleep = await take(store, "a", at=0)
    assert asleep is not None
    assert await take(store, "b", at=60) is not None

    async def write(tx: contract.Tx) -> None:
        await leases.check(tx, lease=asleep)
        await tx.execute("INSERT INTO platform_values (name, value) VALUES ('x', 'late')")

    with pytest.raises(leases.LeaseLost):
        await store.transact(write)


async def test_one_of_many_engines_gets_the_lease(store: contract.Store) -> None:
    got = await asyncio.gather(*[take(store, f"engine-{n}", at=0) for n in range(20)])
    assert len([lease for lease in got if lease is not None]) == 1
