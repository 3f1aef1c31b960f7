"""What an engine does for enrollments by itself: writes down what has expired, forgets the old.

One engine does it (see `leading`), in small batches; that a token has expired never depends on it.
"""

import functools
import logging
from typing import Final

from platform_server.enrollment import attempts, limiter
from platform_server.nodes import leading
from platform_server.store import contract
from platform_server.tokens import ending
from runtime_kit import clock as clock_kit

_LOG = logging.getLogger(__name__)
LEASE: Final = "enrollment-chores"
EVERY_SECONDS: Final = 60.0


async def keep(store: contract.Store, *, clock: clock_kit.Clock, cap: attempts.Cap) -> None:
    """Runs for ever. For a supervised task."""
    lease = leading.Leading(store, name=LEASE, clock=clock)
    while True:
        try:
            if await lease.holds():
                await clean(store, clock=clock, cap=cap)
        except contract.StoreError as fault:
            _LOG.warning("Old enrollments were not cleaned up", extra={"reason": str(fault)})
        await clock.sleep(EVERY_SECONDS)


async def clean(store: contract.Store, *, clock: clock_kit.Clock, cap: attempts.Cap) -> None:
    """Does it once; raises `StoreError`."""
    now = clock.now()
    await store.transact(functools.partial(ending.expire_due, now=now))
    old = await store.read(functools.partial(ending.find_forgettable, now=now))
    if old:
        await store.transact(functools.partial(ending.forget, enrollment_ids=old))
    await store.transact(functools.partial(attempts.purge, now=now, cap=cap))
    if store.dialect is contract.Dialect.POSTGRESQL:
        await store.transact(functools.partial(limiter.purge, now=now))
