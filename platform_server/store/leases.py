"""Leases: which engine does what only one may do (probing, rotation, purging).

A lease has a holder, an end and a fencing number. The number rises whenever the lease changes
hands, also back to a former holder, so a write that checks it (`check`) cannot come from a
holder that slept through its time. The caller renews well before the end, for instance at a
third of it, and stops its work when `renew` says that the lease is gone.

Known limit: the ends are judged by the callers' clocks. Where those of two engines differ by
more than a lease lasts, both may believe they hold it; `check` in the writing transaction
still lets only the later one write.
"""

import dataclasses

from platform_server.store import contract


class LeaseLost(Exception):
    """Another engine has taken over this work: stop it, nothing was changed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Held until `expires_at_micros`, as the fence-th holding of this name."""

    name: str
    holder: str
    fence: int
    expires_at_micros: int


async def acquire(
    store: contract.Store, *, name: str, holder: str, now_micros: int, ttl_micros: int
) -> Lease | None:
    """Take a lease that is free or has ended; None while somebody holds it.

    `holder` is unique to one run of one engine. Whoever holds the lease itself renews it.
    """
    expires_at_micros = now_micros + ttl_micros

    async def work(tx: contract.Tx) -> contract.Row | None:
        return await tx.fetch_one(
            "INSERT INTO leases (name, holder, fence, expires_at) VALUES (?, ?, 1, ?)"
            " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder,"
            " fence = leases.fence + 1, expires_at = excluded.expires_at"
            " WHERE leases.expires_at <= ? RETURNING fence",
            *(name, holder, expires_at_micros, now_micros),
        )

    row = await store.transact(work)
    if row is None:
        return None
    return Lease(
        name=name, holder=holder, fence=int(row["fence"]), expires_at_micros=expires_at_micros
    )


async def renew(
    store: contract.Store, *, lease: Lease, now_micros: int, ttl_micros: int
) -> Lease | None:
    """Prolong a lease; None when it has passed to somebody else.

    A lease that has ended but that nobody took is still ours.
    """
    expires_at_micros = now_micros + ttl_micros

    async def work(tx: contract.Tx) -> int:
        return await tx.execute(
            "UPDATE leases SET expires_at = ? WHERE name = ? AND holder = ? AND fence = ?",
            *(expires_at_micros, lease.name, lease.holder, lease.fence),
        )

    if await store.transact(work) != 1:
        return None
    return dataclasses.replace(lease, expires_at_micros=expires_at_micros)


async def release(store: contract.Store, *, lease: Lease) -> None:
    """End a lease early, so that another engine need not wait for its end; may be repeated."""

    async def work(tx: contract.Tx) -> int:
        return await tx.execute(
            "UPDATE leases SET expires_at = 0 WHERE name = ? AND holder = ? AND fence = ?",
            *(lease.name, lease.holder, lease.fence),
        )

    await store.transact(work)


async def check(tx: contract.Tx, *, lease: Lease) -> None:
    """In the transaction of a fenced write: make sure that nobody has taken over.

    Raises LeaseLost otherwise. The row stays locked until the commit, so nobody takes over
    between this check and the write.
    """
    held = await tx.execute(
        "UPDATE leases SET fence = fence WHERE name = ? AND holder = ? AND fence = ?",
        *(lease.name, lease.holder, lease.fence),
    )
    if held != 1:
        raise LeaseLost(f"Another engine has taken over {lease.name}.")
