"""Which tables keep sealed values in columns of their own, for a change of the master key.

Each has the id of the wrapping key beside the value, so that what is still to be rewrapped is found
without opening anything. To seal in another table, add its row here.
"""

import dataclasses
from typing import Final

from platform_server.sealing import envelope
from platform_server.store import contract


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of sealed bytes, NULL where there is no value; `kek_id` stands in the same row."""

    table: str
    name: str
    key: tuple[str, ...]


ALL: Final = (
    Column(table="cloud_connections", name="sealed", key=("connection_id",)),
    Column(table="cloud_attempts", name="first_boot", key=("operation_id", "attempt")),
    Column(table="issuer_keys", name="sealed", key=("key_id",)),
)


async def find_needed(tx: contract.Tx) -> set[str]:
    """The ids of the keys that wrap a value in one of these columns."""
    found: set[str] = set()
    for column in ALL:
        rows = await tx.fetch_all(
            f"SELECT DISTINCT kek_id FROM {column.table} "  # noqa: S608 - constants
            f"WHERE {column.name} IS NOT NULL LIMIT 1000"
        )
        found |= {str(row["kek_id"]) for row in rows}
    return found


async def rewrap(tx: contract.Tx, *, keyring: envelope.Keyring, limit: int) -> int:
    """Rewraps at most so many values with the key that seals now; how many that were.

    Raises `envelope.CannotOpen`.
    """
    rewrapped = 0
    for column in ALL:
        rows = await tx.fetch_all(
            f"SELECT {', '.join(column.key)}, {column.name} AS sealed "  # noqa: S608 - constants
            f"FROM {column.table} WHERE {column.name} IS NOT NULL AND kek_id <> ? LIMIT ?",
            keyring.current,
            limit - rewrapped,
        )
        for row in rows:
            before = bytes(row["sealed"])
            where = " AND ".join(f"{name} = ?" for name in column.key)
            rewrapped += await tx.execute(
                f"UPDATE {column.table} SET {column.name} = ?, kek_id = ? "  # noqa: S608 - constants
                f"WHERE {where} AND {column.name} = ?",
                keyring.rewrap(before),
                keyring.current,
                *(row[name] for name in column.key),
                before,
            )
        if rewrapped >= limit:
            break
    return rewrapped
