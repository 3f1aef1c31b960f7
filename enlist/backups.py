"""Taking a backup of the Platform: one encrypted file, read piece by piece.

Restoring is no question to a Platform: it is done beside one that does not run
(`enlist backup restore`).
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from enlist import calls, errors

if TYPE_CHECKING:
    import contextlib

    from enlist import client as clients
    from enlist import driving
    from wire_protocol import admin

HEADER = "enlist-backup"


class Downloader(Protocol):
    """What can read a large answer: each of the waiting clients."""

    def download(
        self, call: calls.Call[None]
    ) -> "contextlib.AbstractContextManager[driving.Download]":
        """The answer, piece by piece."""
        ...

    def check(self, call: calls.Call[Any]) -> "admin.Checked":
        """What the call would do."""
        ...


def create(*, recipients: Sequence[str]) -> calls.Call[None]:
    """A backup encrypted to these age recipients (`age1…`); any one of them opens it."""
    return calls.Call(
        method="POST", path="/backup", answer="", body={"recipients": list(recipients)}
    )


def facts_of(headers: Any) -> dict[str, Any]:
    """What the backup holds, as its header says; raises `Fault`."""
    try:
        document = json.loads(headers[HEADER])
    except (KeyError, ValueError, RecursionError) as error:
        raise errors.Fault("The Platform's answer does not say what the backup holds.") from error
    if not isinstance(document, dict):
        raise errors.Fault("The Platform's answer does not say what the backup holds.")
    return document


class Backup:
    """`client.backup`."""

    def __init__(self, client: Downloader) -> None:
        self._client = client

    def create(self, *, recipients: Sequence[str], to: BinaryIO) -> "admin.Backup":
        """Writes a backup, encrypted to these age recipients, into a file; says what it holds.

        What stands in the file counts only once this has returned.
        """
        with self._client.download(create(recipients=recipients)) as download:
            to.writelines(download.pieces)
        return _parsed(download.headers)

    def check(self, *, recipients: Sequence[str]) -> "admin.Checked":
        """What would be backed up; nothing is done."""
        return self._client.check(create(recipients=recipients))


class AsyncBackup:
    """`client.backup`, to be awaited."""

    def __init__(self, client: "clients.AsyncClient") -> None:
        self._client = client

    async def create(self, *, recipients: Sequence[str], to: BinaryIO) -> "admin.Backup":
        """Writes a backup, encrypted to these age recipients, into a file; says what it holds.

        What stands in the file counts only once this has returned.
        """
        async with self._client.download(create(recipients=recipients)) as download:
            async for piece in download.pieces:
                to.write(piece)
        return _parsed(download.headers)

    async def check(self, *, recipients: Sequence[str]) -> "admin.Checked":
        """What would be backed up; nothing is done."""
        return await self._client.check(create(recipients=recipients))


def _parsed(headers: Any) -> "admin.Backup":
    # Here, since models cost more than the file of a backup needs.
    from wire_protocol import admin  # noqa: PLC0415

    return admin.Backup.model_validate(facts_of(headers))
