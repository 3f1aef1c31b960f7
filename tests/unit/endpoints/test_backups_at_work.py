"""One backup at a time: whoever began it gives the place back, nobody else."""

import asyncio
import pathlib
import types
from typing import Any

import pytest

from platform_server.endpoints import backups, refusals
from platform_server.sealing import envelope
from tests.support import backups as support


def made() -> backups.Backups:
    key = envelope.KeyEncryptionKey(raw=bytes(32))
    return backups.Backups(
        url="sqlite:////nowhere/enlist.db",
        data_dir=pathlib.Path("/nowhere"),
        config_file=None,
        keyring=envelope.Keyring((key,), current=key.kek_id),
    )


def call(*, check: bool, fault: Exception, at: asyncio.Event) -> Any:
    """A call whose record waits, then fails."""

    async def mutate(_work: object) -> object:
        await at.wait()
        raise fault

    body = backups.BackupRequest(recipients=[support.new_pair().recipient])
    return types.SimpleNamespace(body=body, check=check, mutate=mutate)


async def test_a_rehearsal_that_fails_does_not_give_back_the_place_of_a_backup_at_work() -> None:
    one, checked, worked = made(), asyncio.Event(), asyncio.Event()
    fault = ValueError("the store is away")
    checking = asyncio.create_task(one(call(check=True, fault=fault, at=checked)))
    await asyncio.sleep(0)
    working = asyncio.create_task(one(call(check=False, fault=fault, at=worked)))
    await asyncio.sleep(0)
    checked.set()
    with pytest.raises(ValueError, match="away"):
        await checking
    with pytest.raises(refusals.Refusal, match="being made already"):
        await one(call(check=False, fault=fault, at=worked))
    worked.set()
    with pytest.raises(ValueError, match="away"):
        await working
    with pytest.raises(ValueError, match="away"):  # its place is free again
        await one(call(check=False, fault=fault, at=worked))
