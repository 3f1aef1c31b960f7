"""Sealed values in the store, and reading them while the master key is being changed.

Whoever keeps sealed bytes in a table of its own (the trust keys) seals and opens them through
`seal_value` and `open_value`: an engine that meets a key it does not hold yet takes it from the
store, where it stands sealed with the key before it for as long as the change lasts.
"""

import datetime
from typing import Final

from platform_server.sealing import envelope
from platform_server.store import contract
from runtime_kit import clock as clock_kit

HANDOVER: Final = "master-key-handover"
CHECK: Final = "master-key-check"
LOCK: Final = "master-key"


async def put(
    tx: contract.Tx,
    *,
    keyring: envelope.Keyring,
    name: str,
    value: bytes,
    now: datetime.datetime,
) -> None:
    """Keeps the value under its name, replacing a former one; raises as `seal_value` does."""
    sealed = await seal_value(tx, keyring=keyring, name=name, value=value)
    await tx.execute(
        "INSERT INTO sealed_secrets(name, sealed, kek_id, updated_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, kek_id = excluded.kek_id, "
        "updated_at = excluded.updated_at",
        name,
        sealed,
        envelope.kek_id_of(sealed),
        clock_kit.to_micros(now),
    )


async def put_if_absent(
    tx: contract.Tx,
    *,
    keyring: envelope.Keyring,
    name: str,
    value: bytes,
    now: datetime.datetime,
) -> bool:
    """Keeps the value unless there is one; says whether it did (engines that start at once agree).

    Raises as `seal_value` does.
    """
    sealed = await seal_value(tx, keyring=keyring, name=name, value=value)
    return bool(
        await tx.execute(
            "INSERT INTO sealed_secrets(name, sealed, kek_id, updated_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO NOTHING",
            name,
            sealed,
            envelope.kek_id_of(sealed),
            clock_kit.to_micros(now),
        )
    )


async def find(tx: contract.Tx, *, keyring: envelope.Keyring, name: str) -> bytes | None:
    """The value of this name, opened; raises `CannotOpen`."""
    row = await tx.fetch_one("SELECT sealed FROM sealed_secrets WHERE name = ?", name)
    if row is None:
        return None
    return await open_value(tx, keyring=keyring, name=name, sealed=bytes(row["sealed"]))


async def seal_value(
    tx: contract.Tx, *, keyring: envelope.Keyring, name: str, value: bytes
) -> bytes:
    """The value sealed, with a key that is still the store's.

    The lock orders it before or after the end of a change of the master key. Raises `UnknownKey`
    when the key was changed without this engine: it must stop, or others could not read.
    """
    await tx.lock(LOCK)
    check = await tx.fetch_one("SELECT kek_id FROM sealed_secrets WHERE name = ?", CHECK)
    if (
        check is not None
        and check["kek_id"] not in keyring.key_ids
        and not await adopt_handover(tx, keyring=keyring)
    ):
        raise envelope.UnknownKey(str(check["kek_id"]))
    return keyring.seal(value, name=name)


async def open_value(
    tx: contract.Tx, *, keyring: envelope.Keyring, name: str, sealed: bytes
) -> bytes:
    """Opens a sealed value, fetching a new master key if another engine is changing it.

    Raises `CannotOpen`.
    """
    try:
        return keyring.open(sealed, name=name)
    except envelope.UnknownKey:
        if not await adopt_handover(tx, keyring=keyring):
            raise
        return keyring.open(sealed, name=name)


async def adopt_handover(tx: contract.Tx, *, keyring: envelope.Keyring) -> bool:
    """Takes the new master key from the store, if it is there for this engine to open."""
    row = await tx.fetch_one("SELECT sealed FROM sealed_secrets WHERE name = ?", HANDOVER)
    if row is None:
        return False
    try:
        raw = keyring.open(bytes(row["sealed"]), name=HANDOVER)
    except envelope.CannotOpen:
        return False
    keyring.adopt(envelope.KeyEncryptionKey(raw=raw))
    return True
