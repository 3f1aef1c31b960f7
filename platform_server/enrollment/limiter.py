"""The limits on failed enrollments: per address, per token id, and for the whole Platform.

They protect resources, not secrecy: a secret of 256 bits needs no limiter. Only failures of
callers who proved nothing are counted, so nobody can lock a machine with a good token out by
making noise beside it. Windows are whole minutes of the Platform's clock.

On SQLite, with one engine, the counters live in memory; on PostgreSQL they are rows that all
engines share. Both stop counting once a limit is reached, which bounds what is kept: at most
`per_minute` addresses and token ids a minute. Known limit: at the turn of a minute a caller may
use up two windows in a row.
"""

import dataclasses
import datetime
import ipaddress
from typing import Final, Protocol

from platform_server.store import contract
from runtime_kit import clock

WINDOW_SECONDS: Final = 60
_WINDOW_MICROS: Final = WINDOW_SECONDS * 1_000_000
_EVERYBODY: Final = "all"
_FRESH: Final = "(CAST(? AS TEXT), CAST(? AS BIGINT), 1)"  # PostgreSQL asks for the types here


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many failures a minute are looked into."""

    per_minute: int
    per_address: int
    per_token: int

    def buckets(self, *, address: str | None, token_id: str) -> tuple[tuple[str, int], ...]:
        """The counters that one failure concerns, with their limits."""
        return (
            (_EVERYBODY, self.per_minute),
            (f"address:{_network_of(address)}", self.per_address),
            (f"token:{token_id}", self.per_token),
        )


class Limiter(Protocol):
    """Counts failures."""

    async def count_failure(
        self, tx: contract.Tx, *, address: str | None, token_id: str, now: datetime.datetime
    ) -> int | None:
        """Counts one failure; gives the seconds to wait if a limit was already reached."""
        ...


class MemoryLimiter:
    """For a single engine. Used only inside the store's one writer, so it needs no lock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._window = 0
        self._counts: dict[str, int] = {}

    async def count_failure(
        self, _tx: contract.Tx, *, address: str | None, token_id: str, now: datetime.datetime
    ) -> int | None:
        """Counts one failure; gives the seconds to wait if a limit was already reached."""
        moment = clock.to_micros(now)
        window = moment // _WINDOW_MICROS
        if window != self._window:
            self._window = window
            self._counts.clear()
        buckets = self._limits.buckets(address=address, token_id=token_id)
        if any(self._counts.get(name, 0) >= limit for name, limit in buckets):
            return _seconds_left(moment)
        for name, _ in buckets:
            self._counts[name] = self._counts.get(name, 0) + 1
        return None


class SharedLimiter:
    """For several engines on one store: the counters are its rows."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def count_failure(
        self, tx: contract.Tx, *, address: str | None, token_id: str, now: datetime.datetime
    ) -> int | None:
        """Counts one failure; gives the seconds to wait if a limit was already reached.

        One statement, which looks before it writes: a flood past the limit writes nothing. The
        rows are named in one order everywhere, so that engines never wait in a circle.
        """
        moment = clock.to_micros(now)
        start = moment - moment % _WINDOW_MICROS
        buckets = sorted(self._limits.buckets(address=address, token_id=token_id))
        reached = " OR ".join(["(bucket = ? AND count >= ?)"] * len(buckets))
        counted = await tx.fetch_all(
            "INSERT INTO failure_counters(bucket, window_start, count) "  # noqa: S608 - constants
            f"SELECT * FROM (VALUES {', '.join([_FRESH] * len(buckets))}) AS fresh "
            f"WHERE NOT EXISTS (SELECT 1 FROM failure_counters WHERE window_start = ? "
            f"AND ({reached})) ON CONFLICT (bucket, window_start) "
            "DO UPDATE SET count = failure_counters.count + 1 RETURNING count",
            *(value for name, _ in buckets for value in (name, start)),
            start,
            *(value for bucket in buckets for value in bucket),
        )
        return None if counted else _seconds_left(moment)


async def purge(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """Forgets the shared counters of minutes that have passed; gives how many."""
    moment = clock.to_micros(now)
    return await tx.execute(
        "DELETE FROM failure_counters WHERE window_start < ?", moment - 2 * _WINDOW_MICROS
    )


class Allowance:
    """A count a minute, in all and per address, for what needs no more than this engine's memory.

    For `POST /trust`, and for writing invalid requests into the audit.
    """

    def __init__(self, *, per_minute: int, per_address: int) -> None:
        self._per_minute = per_minute
        self._per_address = per_address
        self._window = 0
        self._used = 0
        self._by_address: dict[str, int] = {}

    def take(self, *, address: str | None, now: datetime.datetime) -> int | None:
        """Takes one; gives the seconds to wait if none is left in this minute."""
        moment = clock.to_micros(now)
        window = moment // _WINDOW_MICROS
        if window != self._window:
            self._window = window
            self._used = 0
            self._by_address.clear()
        name = _network_of(address)
        taken = self._by_address.get(name, 0)
        if self._used >= self._per_minute or taken >= self._per_address:
            return _seconds_left(moment)
        self._used += 1
        self._by_address[name] = taken + 1
        return None


def _seconds_left(moment: int) -> int:
    return max(1, -(-(_WINDOW_MICROS - moment % _WINDOW_MICROS) // 1_000_000))


def _network_of(address: str | None) -> str:
    """IPv4 by the address, IPv6 by its /64, since a single customer usually holds all of that."""
    if address is None:
        return "local"
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
