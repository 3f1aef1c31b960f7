"""Changes the master key while everything runs, with `kill -9` allowed at any point.

The new key is first kept in the store, sealed with the old one, where every engine can fetch it;
then each engine keeps both in its master.key; then all sealed values are rewrapped; and only when
every live engine seals with the new key do the hand-over and the old key go. Each step can be
repeated: `advance` finds where it stands and goes on, at start and on every tick, one at a time in
an engine. A key is dropped only after a look under the lock at what is still wrapped by it.

Known limit: an engine that was down all the time does not get the new key; it refuses to start
and asks for a copy of another engine's master.key.
"""

import asyncio
import dataclasses
import datetime
import json
import pathlib
from typing import Final

from platform_server.sealing import envelope, key_file, sealed_columns, sealed_rows
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points

_MARKER: Final = "master_key_rotation"
_BATCH: Final = 64
_PRESENCE: Final = "engine:"
PRESENCE_SECONDS: Final = 15

BEGUN = crash_points.declare(
    "master-key.begun", story="the new key stands in the store, sealed with the old one"
)
BOTH_KEPT = crash_points.declare(
    "master-key.both-kept", story="this engine's master.key holds the new and the old key"
)
REWRAPPED_SOME = crash_points.declare(
    "master-key.rewrapped-some", story="some values are wrapped by the new key, some by the old"
)
REWRAPPED = crash_points.declare(
    "master-key.rewrapped", story="nothing needs the old key any more, master.key still holds it"
)


class RotationUnderWay(Exception):
    """The master key is being changed already: wait until that is done."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """A change of the master key that has begun."""

    from_id: str
    to_id: str
    started_at: datetime.datetime


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine on whose behalf this module acts."""

    engine_id: str
    key_path: pathlib.Path
    keyring: envelope.Keyring
    turn: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock, repr=False)


async def find_under_way(tx: contract.Tx) -> UnderWay | None:
    """The change that has begun and not ended."""
    row = await tx.fetch_one("SELECT value FROM platform_values WHERE name = ?", _MARKER)
    if row is None:
        return None
    content = json.loads(row["value"])
    return UnderWay(
        from_id=content["from"],
        to_id=content["to"],
        started_at=clock_kit.from_micros(content["started_at"]),
    )


async def begin(tx: contract.Tx, *, keyring: envelope.Keyring, now: datetime.datetime) -> UnderWay:
    """Makes the new key and hands it over, in the caller's transaction.

    Nothing seals with it until `advance` has kept it. Raises `RotationUnderWay`.
    """
    await tx.lock(sealed_rows.LOCK)
    if await find_under_way(tx) is not None:
        raise RotationUnderWay("The master key is being changed already; that change goes on.")
    new = envelope.new_key()
    under_way = UnderWay(from_id=keyring.current, to_id=new.kek_id, started_at=now)
    await sealed_rows.put(tx, keyring=keyring, name=sealed_rows.HANDOVER, value=new.raw, now=now)
    await tx.execute(
        "INSERT INTO platform_values(name, value) VALUES (?, ?)",
        _MARKER,
        json.dumps(
            {
                "from": under_way.from_id,
                "to": under_way.to_id,
                "started_at": clock_kit.to_micros(now),
            }
        ),
    )
    return under_way


async def advance(store: contract.Store, *, engine: Engine, now: datetime.datetime) -> bool:
    """Takes a change as far as it goes; says whether none is under way (any more).

    Also says to the others that this engine lives and which key it seals with; called before the
    engine seals anything. Raises `UnknownKey` when the key was changed without this engine, which
    must then stop, and `key_file.Unusable`.
    """
    async with engine.turn:
        return await _advance(store, engine=engine, now=now)


async def _advance(store: contract.Store, *, engine: Engine, now: datetime.datetime) -> bool:
    under_way = await store.read(find_under_way)
    if under_way is None:
        await _announce(store, engine=engine, now=now)
        await store.read(lambda tx: _require_same_key(tx, keyring=engine.keyring))
        await _settle(store, engine=engine)
        return True
    crash_points.reach(BEGUN)
    if engine.keyring.current != under_way.to_id and not await store.read(
        lambda tx: sealed_rows.adopt_handover(tx, keyring=engine.keyring)
    ):
        raise envelope.UnknownKey(under_way.to_id)
    if key_file.read(engine.key_path) != engine.keyring.keys():
        key_file.replace(engine.key_path, engine.keyring.keys())
    crash_points.reach(BOTH_KEPT)
    await _announce(store, engine=engine, now=now)
    while await store.transact(lambda tx: _rewrap_batch(tx, keyring=engine.keyring)):
        crash_points.reach(REWRAPPED_SOME)
    if not await store.transact(lambda tx: _finish(tx, engine=engine, to=under_way, now=now)):
        return False
    crash_points.reach(REWRAPPED)
    await _settle(store, engine=engine)
    return True


async def withdraw(store: contract.Store, *, engine: Engine) -> None:
    """Says to the others that this engine has gone."""
    await store.transact(
        lambda tx: tx.execute("DELETE FROM leases WHERE name = ?", _PRESENCE + engine.engine_id)
    )


async def _require_same_key(tx: contract.Tx, *, keyring: envelope.Keyring) -> None:
    """Raises `UnknownKey` when the master key was changed while this engine was away."""
    check = await tx.fetch_one(
        "SELECT kek_id FROM sealed_secrets WHERE name = ?", sealed_rows.CHECK
    )
    if check is not None and check["kek_id"] not in keyring.key_ids:
        raise envelope.UnknownKey(str(check["kek_id"]))


async def _announce(store: contract.Store, *, engine: Engine, now: datetime.datetime) -> None:
    until = clock_kit.to_micros(now) + PRESENCE_SECONDS * 1_000_000
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO leases(name, holder, fence, expires_at) VALUES (?, ?, 1, ?) "
            "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, "
            "expires_at = excluded.expires_at",
            _PRESENCE + engine.engine_id,
            engine.keyring.current,
            until,
        )
    )


async def _settle(store: contract.Store, *, engine: Engine) -> None:
    """Drops the old key where the change is over and nothing is wrapped by it any more."""
    keyring = engine.keyring
    if len(keyring.key_ids) > 1 and await store.transact(_find_needed) == {keyring.current}:
        keyring.forget_others()
    if key_file.read(engine.key_path) != keyring.keys():
        key_file.replace(engine.key_path, keyring.keys())


async def _find_needed(tx: contract.Tx) -> set[str] | None:
    """The ids of the keys that wrap anything now; None while a change is under way."""
    await tx.lock(sealed_rows.LOCK)
    if await find_under_way(tx) is not None:
        return None
    secrets = await tx.fetch_all("SELECT DISTINCT kek_id FROM sealed_secrets LIMIT 1000")
    trust_keys = await tx.fetch_all("SELECT sealed_private FROM trust_keys LIMIT 1000")
    return (
        {str(row["kek_id"]) for row in secrets}
        | {envelope.kek_id_of(bytes(row["sealed_private"])) for row in trust_keys}
        | await sealed_columns.find_needed(tx)
    )


async def _rewrap_batch(tx: contract.Tx, *, keyring: envelope.Keyring) -> int:
    rewrapped = 0
    secrets = await tx.fetch_all(
        "SELECT name, sealed FROM sealed_secrets WHERE kek_id <> ? AND name <> ? LIMIT ?",
        keyring.current,
        sealed_rows.HANDOVER,
        _BATCH,
    )
    for row in secrets:
        before = bytes(row["sealed"])
        rewrapped += await tx.execute(
            "UPDATE sealed_secrets SET sealed = ?, kek_id = ? WHERE name = ? AND sealed = ?",
            keyring.rewrap(before),
            keyring.current,
            row["name"],
            before,
        )
    # the trust keys are few (one a year) and carry the id inside the sealed bytes
    for row in await tx.fetch_all("SELECT key_id, sealed_private FROM trust_keys LIMIT 1000"):
        before = bytes(row["sealed_private"])
        if rewrapped < _BATCH and envelope.kek_id_of(before) != keyring.current:
            rewrapped += await tx.execute(
                "UPDATE trust_keys SET sealed_private = ? WHERE key_id = ? AND sealed_private = ?",
                keyring.rewrap(before),
                row["key_id"],
                before,
            )
    if rewrapped < _BATCH:
        rewrapped += await sealed_columns.rewrap(tx, keyring=keyring, limit=_BATCH - rewrapped)
    return rewrapped


async def _finish(tx: contract.Tx, *, engine: Engine, to: UnderWay, now: datetime.datetime) -> bool:
    """Ends the change if every live engine seals with the new key; says whether it did.

    On SQLite one engine runs, so what another announced is of one that has died.
    """
    await tx.lock(sealed_rows.LOCK)
    behind = tx.dialect is not contract.Dialect.SQLITE and await tx.fetch_one(
        "SELECT name FROM leases WHERE name LIKE ? AND holder <> ? AND expires_at > ? LIMIT 1",
        f"{_PRESENCE}%",
        to.to_id,
        clock_kit.to_micros(now),
    )
    if behind:
        return False
    while await _rewrap_batch(tx, keyring=engine.keyring):
        pass
    await tx.execute("DELETE FROM sealed_secrets WHERE name = ?", sealed_rows.HANDOVER)
    await tx.execute("DELETE FROM platform_values WHERE name = ?", _MARKER)
    await tx.execute(
        "DELETE FROM leases WHERE name LIKE ? AND expires_at <= ?",
        f"{_PRESENCE}%",
        clock_kit.to_micros(now),
    )
    return True
