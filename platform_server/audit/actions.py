"""The append-only, hash-chained log of authenticated actions.

An entry is written in the transaction of its action: what is not recorded does not happen. Each
entry's hash covers its fields and the hash before it, so that a changed, inserted or missing entry
breaks the chain at its place. Known limit: who can write the store can rewrite the whole chain, or
cut off its newest end; `verify` therefore answers the head's hash, to be kept elsewhere.
"""

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from platform_server.store import contract
from runtime_kit import clock

_CONTEXT: Final = b"enlist-action-v1\n"
FIRST_HASH: Final = hashlib.sha256(_CONTEXT).digest()
MAX_DETAILS_BYTES: Final = 16_384
# made once: an entry is written in every enrollment
_DETAILS: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_CANONICAL: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))

COLUMNS: Final = (
    "seq, at, actor, action, target, operation, infra, environment, mfa_verified, details, "
    "previous_hash, hash"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What somebody did. `details` hold ids and settings, never a secret."""

    at: datetime.datetime
    actor: str
    action: str
    target: str
    environment: str
    infra: str = "default"
    operation: str | None = None
    mfa_verified: bool = False
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class DetailsTooLarge(ValueError):
    """The details of one action exceed 16 KiB: record ids, not contents."""


async def append(tx: contract.Tx, *, action: Action) -> int:
    """Adds the entry and gives its number.

    Takes the append lock, which orders all writers until the transaction ends; raises
    `DetailsTooLarge`.
    """
    details = _DETAILS.encode(dict(action.details))
    if len(details) > MAX_DETAILS_BYTES:
        raise DetailsTooLarge("The details of one action are larger than 16 KiB.")
    await tx.lock_append()
    last = await tx.fetch_one("SELECT seq, hash FROM action_log ORDER BY seq DESC LIMIT 1")
    seq = 1 if last is None else int(last["seq"]) + 1
    previous = FIRST_HASH if last is None else bytes(last["hash"])
    row = (
        seq,
        clock.to_micros(action.at),
        action.actor,
        action.action,
        action.target,
        action.operation,
        action.infra,
        action.environment,
        int(action.mfa_verified),
        details,
    )
    await tx.execute(
        f"INSERT INTO action_log({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        *row,
        previous,
        hash_of(row, previous=previous),
    )
    return seq


def hash_of(row: tuple[object, ...], *, previous: bytes) -> bytes:
    """The hash of an entry's ten fields, in the order of the columns, on top of the one before."""
    canonical = _CANONICAL.encode(list(row)).encode()
    return hashlib.sha256(_CONTEXT + previous + canonical).digest()
