"""Opens the master key at start, or refuses to start.

A key is made only for a store that holds nothing sealed yet. The store holds a sealed check value;
an engine whose key does not open it refuses, since going on would seal new values with a key that
the others lack.
"""

import datetime
import os
import pathlib
from typing import Final

from platform_server.sealing import envelope, key_file, rotation, sealed_rows
from platform_server.store import contract
from runtime_kit import crash_points

_CHECK_VALUE: Final = b"enlist master key check"

MADE = crash_points.declare(
    "master-key.made", story="a first master key stands on disk, the store knows nothing of it"
)


class WrongMasterKey(Exception):
    """The master key is missing or is not this store's: the message says what to do."""


async def open_keyring(
    store: contract.Store, *, path: pathlib.Path, now: datetime.datetime
) -> envelope.Keyring:
    """The keyring for this store, made if the store is new.

    Raises `WrongMasterKey` and `key_file.Unusable`; both are for the operator (exit code 6).
    """
    key_file.sweep(path)
    keys = key_file.read(path)
    stored = await store.read(_check_row)
    made = False
    if stored is None and not keys:
        made = key_file.create(path, envelope.new_key())
        crash_points.reach(MADE)
        keys = key_file.read(path)
    if not keys:
        raise WrongMasterKey(
            f"The store is sealed, and its master key {path} is missing. Restore that file from "
            "your backup, or copy it from another engine of this Platform. It is never made anew "
            "over an existing store."
        )
    if stored is None:
        keyring = envelope.Keyring(keys, current=keys[0].kek_id)
        await store.transact(
            lambda tx: sealed_rows.put_if_absent(
                tx, keyring=keyring, name=sealed_rows.CHECK, value=_CHECK_VALUE, now=now
            )
        )
        stored = await store.read(_check_row)
    if stored is None:
        raise WrongMasterKey("The store does not keep what is written to it.")
    try:
        return await _judge(store, keys=keys, sealed=bytes(stored["sealed"]), path=path)
    except WrongMasterKey:
        if made:
            os.unlink(path)  # noqa: PTH108 - another engine founded the store; ours sealed nothing
        raise


async def _judge(
    store: contract.Store,
    *,
    keys: tuple[envelope.KeyEncryptionKey, ...],
    sealed: bytes,
    path: pathlib.Path,
) -> envelope.Keyring:
    held = envelope.Keyring(keys, current=keys[0].kek_id)

    async def open_check(tx: contract.Tx) -> bytes:
        value = await sealed_rows.open_value(
            tx, keyring=held, name=sealed_rows.CHECK, sealed=sealed
        )
        under_way = await rotation.find_under_way(tx)
        if under_way is not None and held.current != under_way.to_id:
            await sealed_rows.adopt_handover(tx, keyring=held)
        return value

    try:
        value = await store.read(open_check)
    except envelope.UnknownKey as fault:
        raise WrongMasterKey(
            f"The store is sealed with the master key {fault.kek_id}; {path} holds "
            f"{', '.join(key.kek_id for key in keys)}. Put the right file there: from your "
            "backup, or from another engine of this Platform."
        ) from None
    except envelope.CannotOpen as fault:
        raise WrongMasterKey(
            f"The store's check value does not open with {path}: {fault}"
        ) from None
    if value != _CHECK_VALUE:
        raise WrongMasterKey(f"The store's check value is not what {path} should give.")
    if await store.read(rotation.find_under_way) is None and len(keys) > 1:
        held = envelope.Keyring(keys, current=envelope.kek_id_of(sealed))
        held.forget_others()
    if held.keys() != keys:
        key_file.replace(path, held.keys())
    return held


async def _check_row(tx: contract.Tx) -> contract.Row | None:
    return await tx.fetch_one("SELECT sealed FROM sealed_secrets WHERE name = ?", sealed_rows.CHECK)
