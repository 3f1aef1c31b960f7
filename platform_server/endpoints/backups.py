"""`POST /backup`: the whole Platform as one encrypted file, made while everything runs.

The answer is the file itself, encrypted to the recipients that the caller names; nothing of it
stands on this machine's disk. What it holds is said in the header `Enlist-Backup`. A backup that
cannot be finished ends with a broken connection, never with a short file. One at a time is made by
an engine. Not for: restoring, which is done beside a Platform that does not run.
"""

import asyncio
import contextlib
import json
import logging
import pathlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Final

import pydantic

from platform_server.audit import events
from platform_server.backup import create, encryption, failures, manifest
from platform_server.endpoints import calls, refusals, routes
from platform_server.sealing import envelope
from platform_server.store import contract, snapshots
from runtime_kit import private_files
from wire_protocol import admin, times

_LOG = logging.getLogger(__name__)

HEADER: Final = "Enlist-Backup"
MEDIA_TYPE: Final = "application/octet-stream"
_MOST_SECONDS: Final = 3600.0  # the store keeps old state for the snapshot's sake so long at most
_RETRY_SECONDS: Final = 10
_MADE: Final = "last_backup"


class BackupRequest(admin.Request):
    """`POST /backup`."""

    recipients: Annotated[
        list[Annotated[str, pydantic.Field(min_length=1, max_length=256)]],
        pydantic.Field(
            min_length=1,
            max_length=encryption.MOST_RECIPIENTS,
            description="To whom it is encrypted: age recipients, `age1…`. Any one opens it.",
        ),
    ]


class Backups:
    """Makes backups for one engine."""

    def __init__(
        self,
        *,
        url: str,
        data_dir: pathlib.Path,
        config_file: pathlib.Path | None,
        keyring: envelope.Keyring,
    ) -> None:
        self._url = url
        self._data_dir = data_dir
        self._config_file = config_file
        self._keyring = keyring
        self._at_work = False

    async def __call__(self, call: calls.Call[BackupRequest, routes.NoQuery]) -> calls.Answer:
        """Records who takes a backup for whom, then streams it."""
        try:
            recipients = encryption.parse_recipients(call.body.recipients)
        except failures.Invalid as fault:
            raise refusals.invalid("recipients", str(fault)) from None
        if self._at_work:
            raise _later("A backup is being made already; try again when it is done.")
        backup_id = secrets.token_hex(8)

        async def record(tx: contract.Tx) -> calls.Changed:
            return await self._record(tx, call=call, backup_id=backup_id)

        if call.check:  # makes none, so it neither takes the one place nor gives it back
            return await call.mutate(record)
        self._at_work = True
        try:
            await call.mutate(record)
            parts = self._parts(call, backup_id=backup_id, recipients=recipients)
            # The first piece is the description: from here on closing `parts` cleans up.
            head = await anext(parts)
        except BaseException:
            self._at_work = False
            raise
        return calls.Stream(
            parts=parts, media_type=MEDIA_TYPE, whole=True, headers={HEADER: head.decode("ascii")}
        )

    async def _record(
        self,
        tx: contract.Tx,
        *,
        call: calls.Call[BackupRequest, routes.NoQuery],
        backup_id: str,
    ) -> calls.Changed:
        await call.record(
            tx,
            action="backup.create",
            target=backup_id,
            infra=call.settings.platform.infra,
            details={"recipients": call.body.recipients},
        )
        counted = await create.count_rows(tx)
        change = admin.Change(
            action="encrypt",
            target="backup",
            detail=f"{counted['nodes']} nodes, {sum(counted.values())} rows in all, "
            f"to {len(call.body.recipients)} recipient(s)",
        )
        return calls.Changed(changes=[change])

    async def _parts(
        self,
        call: calls.Call[BackupRequest, routes.NoQuery],
        *,
        backup_id: str,
        recipients: list[encryption.Recipient],
    ) -> AsyncGenerator[bytes, None]:
        """First the description as JSON, then the file."""
        sent = 0
        started = call.clock.monotonic()

        async def on_made(made: manifest.Manifest) -> None:
            await self._tell(call, made=made, sent=sent)

        try:
            keys_before = self._keyring.keys()
            async with snapshots.taken(
                self._url, busy_seconds=call.settings.store.busy_seconds
            ) as snapshot:
                plan = await self._plan(
                    call, snapshot=snapshot, backup_id=backup_id, keys_before=keys_before
                )
                yield json.dumps(described(plan.head), separators=(",", ":")).encode()
                async with contextlib.aclosing(
                    create.encrypted(snapshot, plan=plan, recipients=recipients, on_made=on_made)
                ) as pieces:
                    async for piece in pieces:
                        if call.clock.monotonic() - started > _MOST_SECONDS:
                            raise contract.StoreBusy("The backup was taken too slowly.")
                        sent += len(piece)
                        yield piece
        finally:
            self._at_work = False

    async def _plan(
        self,
        call: calls.Call[BackupRequest, routes.NoQuery],
        *,
        snapshot: snapshots.Snapshot,
        backup_id: str,
        keys_before: tuple[envelope.KeyEncryptionKey, ...],
    ) -> create.Plan:
        try:
            config = await asyncio.to_thread(
                create.read_config, self._data_dir, config_file=self._config_file
            )
            return await create.prepare(
                snapshot,
                backup_id=backup_id,
                keys_before=keys_before,
                keyring=self._keyring,
                config=config,
                environment=call.settings.platform.environment,
                now=call.now(),
            )
        except create.MasterKeyChanges as fault:
            raise _later(str(fault)) from None
        except (OSError, private_files.FileTooLarge) as fault:
            raise _later(f"A settings file cannot be read: {fault}") from None

    async def _tell(
        self,
        call: calls.Call[BackupRequest, routes.NoQuery],
        *,
        made: manifest.Manifest,
        sent: int,
    ) -> None:
        """An event, and the moment for whoever watches that backups are made."""
        now, head = call.now(), made.head
        data = {"bytes": sent, "rows": sum(head.rows.values()), "nodes": head.rows["nodes"]}
        value = {"backup_id": head.backup_id, "made_at": times.to_rfc3339(head.made_at), **data}

        async def work(tx: contract.Tx) -> None:
            await tx.execute(
                "INSERT INTO platform_values(name, value) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                _MADE,
                json.dumps(value),
            )
            await events.append(
                tx,
                at=now,
                kind="platform.backup-made",
                subject=head.backup_id,
                infra=call.settings.platform.infra,
                data=data,
            )

        try:
            await call.store.transact(work)
        except contract.StoreError as fault:
            # the backup is whole and with its reader; that it is not told of makes it no worse
            _LOG.warning("A backup could not be told of", extra={"reason": str(fault)})


def described(head: manifest.Head) -> Mapping[str, Any]:
    """What the header says: the head of the backup."""
    return admin.Backup(
        backup_id=head.backup_id,
        platform_id=head.platform_id,
        epoch=head.epoch,
        made_at=head.made_at,
        enlist_version=head.enlist_version,
        schema_version=head.schema,
        rows=dict(head.rows),
    ).model_dump(mode="json")


def served(backups: Backups) -> tuple[routes.Route, ...]:
    """The route of this module."""
    return (
        routes.Route(
            method="POST",
            path="/api/v1/backup",
            summary="The whole Platform as one file, encrypted to age recipients.",
            handler=backups,
            request=BackupRequest,
            answer=None,
            media_type=MEDIA_TYPE,
            stream=True,
            changes=True,
            problems=("unavailable",),
        ),
    )


def _later(sentence: str) -> refusals.Refusal:
    return refusals.Refusal("unavailable", sentence, retry_after_seconds=_RETRY_SECONDS)
