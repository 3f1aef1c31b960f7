"""Which engine does the work that only one may do, as a question with a yes or no.

On SQLite there is one engine, so the answer is always yes. On PostgreSQL a lease says it: taken
when free, renewed at a third of its time, lost when the store was out of reach for longer. What
this engine then still writes is fenced: `fence` in the same transaction refuses it.
"""

import logging
import secrets
from typing import Final

from platform_server.store import contract, leases
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
TTL_SECONDS: Final = 12.0
RENEW_AFTER_SECONDS: Final = 4.0


class Leading:
    """One kind of work, seen from this engine. Used by one task."""

    def __init__(self, store: contract.Store, *, name: str, clock: clock_kit.Clock) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._holder = secrets.token_hex(8)  # of this run: a restarted engine is another holder
        self._lease: leases.Lease | None = None
        self._renewed_at = 0.0

    async def holds(self) -> bool:
        """Whether this engine does the work now; takes or renews the lease where needed.

        Raises `StoreError` when the store cannot be asked: then nobody here does the work.
        """
        if self._store.dialect is contract.Dialect.SQLITE:
            return True
        elapsed = self._clock.monotonic() - self._renewed_at
        if self._lease is not None and elapsed < RENEW_AFTER_SECONDS:
            return True
        held, self._lease = self._lease, None
        now_micros = clock_kit.to_micros(self._clock.now())
        ttl_micros = int(TTL_SECONDS * 1_000_000)
        if held is not None:
            self._lease = await leases.renew(
                self._store, lease=held, now_micros=now_micros, ttl_micros=ttl_micros
            )
        if self._lease is None:
            self._lease = await leases.acquire(
                self._store,
                name=self._name,
                holder=self._holder,
                now_micros=now_micros,
                ttl_micros=ttl_micros,
            )
            if self._lease is not None:
                _LOG.info("This engine leads", extra={"work": self._name})
        self._renewed_at = self._clock.monotonic()
        return self._lease is not None

    async def fence(self, tx: contract.Tx) -> None:
        """In a transaction of this work: raises `LeaseLost` once another engine has taken over."""
        if self._lease is not None:
            await leases.check(tx, lease=self._lease)

    async def release(self) -> None:
        """Lets another engine take over at once."""
        held, self._lease = self._lease, None
        if held is not None:
            await leases.release(self._store, lease=held)
