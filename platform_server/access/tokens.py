"""API tokens: `enk_<id>_<secret>_<check>`, made, found and ended.

Built like an enrollment token: the id is public, of the secret (256 random bits) only the SHA-256
is kept, the check catches typos before the store is asked. Shown once, in the type that `create`
returns. Known limit: `last_used_at` is written at most once a minute, so that reading stays
reading.
"""

import dataclasses
import datetime
import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Iterable
from typing import Final

from platform_server.access import principals
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import secret

_LOG = logging.getLogger(__name__)
_FORM = re.compile(r"enk_([0-9a-f]{16})_([0-9a-f]{64})_([0-9a-f]{8})")
_TOUCH_SECONDS: Final = 60
COLUMNS: Final = (
    "token_id, name, token_hash, permissions, infra, created_at, created_by, expires_at, "
    "revoked_at, last_used_at"
)


class Unacceptable(Exception):
    """The token is none of ours, or no longer: the message says which only as far as is safe."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token as it is kept, without its hash."""

    token_id: str
    name: str
    permissions: frozenset[str]
    infra: str
    created_at: datetime.datetime
    created_by: str
    expires_at: datetime.datetime | None
    revoked_at: datetime.datetime | None
    last_used_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A new token: the one moment in which its text exists."""

    record: TokenRecord
    text: secret.Secret


async def create(
    tx: contract.Tx,
    *,
    name: str,
    permissions: Iterable[str],
    infra: str,
    created_by: str,
    now: datetime.datetime,
    expires_at: datetime.datetime | None,
) -> Created:
    """Makes a token and keeps its hash."""
    token_id, secret_hex = secrets.token_hex(8), secrets.token_hex(32)
    body = f"enk_{token_id}_{secret_hex}"
    record = TokenRecord(
        token_id=token_id,
        name=name,
        permissions=frozenset(permissions),
        infra=infra,
        created_at=now,
        created_by=created_by,
        expires_at=expires_at,
        revoked_at=None,
        last_used_at=None,
    )
    await tx.execute(
        "INSERT INTO api_tokens(token_id, name, token_hash, permissions, infra, created_at, "
        "created_by, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        token_id,
        name,
        hashlib.sha256(bytes.fromhex(secret_hex)).digest(),
        json.dumps(sorted(record.permissions)),
        infra,
        clock_kit.to_micros(now),
        created_by,
        None if expires_at is None else clock_kit.to_micros(expires_at),
    )
    return Created(record=record, text=secret.Secret(f"{body}_{_check(body)}"))


async def find(tx: contract.Tx, *, token_id: str) -> TokenRecord | None:
    """The token with this id, also an ended one."""
    row = await tx.fetch_one(
        f"SELECT {COLUMNS} FROM api_tokens WHERE token_id = ?",  # noqa: S608 - a constant
        token_id,
    )
    return None if row is None else record_of(row)


async def list_page(
    tx: contract.Tx, *, limit: int, after: str | None, infra: str | None
) -> list[TokenRecord]:
    """Tokens by id, those that ended too."""
    rows = await tx.fetch_all(
        f"SELECT {COLUMNS} FROM api_tokens WHERE token_id > ? "  # noqa: S608 - a constant
        "AND (CAST(? AS INTEGER) = 1 OR infra = ?) ORDER BY token_id LIMIT ?",
        after or "",
        1 if infra is None else 0,
        infra or "",
        limit,
    )
    return [record_of(row) for row in rows]


async def revoke(tx: contract.Tx, *, token_id: str, now: datetime.datetime) -> bool:
    """Ends the token at once; says whether it was still in force."""
    return bool(
        await tx.execute(
            "UPDATE api_tokens SET revoked_at = ? WHERE token_id = ? AND revoked_at IS NULL",
            clock_kit.to_micros(now),
            token_id,
        )
    )


async def is_in_force(tx: contract.Tx, *, token_id: str, now: datetime.datetime) -> bool:
    """Whether the token may still be used; for what goes on long after it was recognised."""
    row = await tx.fetch_one(
        "SELECT token_id FROM api_tokens WHERE token_id = ? AND revoked_at IS NULL "
        "AND (expires_at IS NULL OR expires_at > ?)",
        token_id,
        clock_kit.to_micros(now),
    )
    return row is not None


class Tokens:
    """Recognises tokens."""

    def __init__(self, store: contract.Store, *, clock: clock_kit.Clock) -> None:
        self._store = store
        self._clock = clock

    async def authenticate(self, text: str) -> principals.Principal:
        """The principal a token stands for; raises `Unacceptable`."""
        found = _FORM.fullmatch(text)
        if found is None or _check(text[:-9]) != found.group(3):
            raise Unacceptable("That is not a whole API token: copy it again.")
        token_id, secret_hex = found.group(1), found.group(2)
        row = await self._store.read(
            lambda tx: tx.fetch_one(
                f"SELECT {COLUMNS} FROM api_tokens WHERE token_id = ?",  # noqa: S608 - a constant
                token_id,
            )
        )
        given = hashlib.sha256(bytes.fromhex(secret_hex)).digest()
        if row is None or not hmac.compare_digest(bytes(row["token_hash"]), given):
            raise Unacceptable("The API token is not known here.")
        record = record_of(row)
        now = self._clock.now()
        if record.revoked_at is not None:
            raise Unacceptable("The API token was revoked.")
        if record.expires_at is not None and record.expires_at <= now:
            raise Unacceptable("The API token has expired: make a new one.")
        await self._touch(record, now=now)
        return principals.Principal(
            name=f"token:{token_id}", permissions=record.permissions, token_id=token_id
        )

    async def _touch(self, record: TokenRecord, *, now: datetime.datetime) -> None:
        due = now - datetime.timedelta(seconds=_TOUCH_SECONDS)
        if record.last_used_at is not None and record.last_used_at > due:
            return
        try:
            await self._store.transact(
                lambda tx: tx.execute(
                    "UPDATE api_tokens SET last_used_at = ? WHERE token_id = ?",
                    clock_kit.to_micros(now),
                    record.token_id,
                )
            )
        except contract.StoreError as fault:  # looking must be possible on a full disk
            _LOG.warning("The use of a token was not noted", extra={"reason": str(fault)})


def record_of(row: contract.Row) -> TokenRecord:
    """A stored row as a value."""
    return TokenRecord(
        token_id=str(row["token_id"]),
        name=str(row["name"]),
        permissions=frozenset(json.loads(row["permissions"])),
        infra=str(row["infra"]),
        created_at=clock_kit.from_micros(row["created_at"]),
        created_by=str(row["created_by"]),
        expires_at=_moment(row["expires_at"]),
        revoked_at=_moment(row["revoked_at"]),
        last_used_at=_moment(row["last_used_at"]),
    )


def _moment(micros: int | None) -> datetime.datetime | None:
    return None if micros is None else clock_kit.from_micros(micros)


def _check(body: str) -> str:
    return hashlib.sha256(body.encode("ascii")).hexdigest()[:8]
