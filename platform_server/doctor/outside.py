"""What can be seen of a Platform without asking it, its folder and its process; and asking it.

Works whether it runs or not.
"""

import asyncio
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Final

from runtime_kit import (
    failures,
    file_rules,
    mends,
    private_files,
    processes,
)
from runtime_kit.http1 import client
from wire_protocol import findings

_ASK_SECONDS: Final = 12.0
_LEAST_FREE_BYTES: Final = 64 * 1024 * 1024
_MAX_ANSWER: Final = 4 * 1024 * 1024
_OK: Final = 200

Found = tuple[findings.Finding, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a Platform keeps what; named by the program that makes them."""

    folder: pathlib.Path
    master_key: pathlib.Path
    run: pathlib.Path
    host_lock: pathlib.Path
    local_socket: pathlib.Path
    rules: tuple[file_rules.Rule, ...]
    start_command: str | None = None  # where it is a service, and not started by hand

    @property
    def uid(self) -> int:
        """Whose the folder is."""
        return self.folder.stat().st_uid


def files(places: Places) -> Found:
    """Owners and modes, and what killed programs left."""
    command = f"enlist doctor --fix --data-dir {places.folder}"
    faults = file_rules.examine(places.folder, places.rules, uid=places.uid)
    if faults:
        first, *more = faults
        rest = f" And {len(more)} more." if more else ""
        exposed = any(one.exposed and one.path == places.master_key for one in faults)
        advice = " If somebody may have read it: enlist platform rotate-master-key." * exposed
        return (
            findings.needs_operator(
                "files",
                f"{first.text}{rest}{advice}",
                command=command if first.mend else first.command,
                facts={"faults": [one.text for one in faults]},
            ),
        )
    left = stale(places)
    if left:
        return (
            findings.warning(
                "files",
                f"{len(left)} files were left by programs that were killed while they wrote.",
                command=command,
                facts={"left": left},
            ),
        )
    return (findings.ok("files", f"Owners and modes are right in {places.folder}."),)


def stale(places: Places) -> list[str]:
    """What writers that are no more left aside."""
    found: list[str] = []
    for folder in (places.folder, places.run, places.run / "listener"):
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
        except OSError:
            continue
        found += [
            str(folder / name)
            for name in names
            if private_files.aside_of(name) is not None and private_files.is_left(folder / name)
        ]
    return found


def mends_of(places: Places) -> list[mends.Mend]:
    """Owners and modes, and what killed programs left."""
    found = file_rules.examine(places.folder, places.rules, uid=places.uid)
    possible = [one.mend for one in found if one.mend is not None]
    left = stale(places)
    if left:
        possible.append(
            mends.Mend(
                action="remove",
                target=str(places.folder / ".tmp-*"),
                detail="files that killed programs left",
                apply=lambda: _sweep(left),
            )
        )
    return possible


def _sweep(left: Sequence[str]) -> None:
    for name in left:
        path = pathlib.Path(name)
        written_for = private_files.aside_of(path.name)
        if written_for is not None:
            private_files.sweep(path.with_name(written_for))


def disk(places: Places) -> Found:
    """Room in the data directory."""
    free = shutil.disk_usage(places.folder).free
    facts = {"free_bytes": free}
    if os.statvfs(places.folder).f_flag & os.ST_RDONLY:
        return (
            findings.needs_operator(
                "disk",
                f"{places.folder} lies on a file system that is mounted read-only.",
                command=f"findmnt -T {places.folder}",
                facts=facts,
            ),
        )
    if free < _LEAST_FREE_BYTES:
        return (
            findings.needs_operator(
                "disk",
                f"Only {free // 1024} KB are free under {places.folder}.",
                command=f"df -h {places.folder}",
                facts=facts,
            ),
        )
    return (findings.ok("disk", f"{free // 1_048_576} MB are free.", facts=facts),)


def is_running(places: Places) -> bool:
    """Whether a host holds this data directory."""
    return processes.holder_of_flock(places.host_lock) is not None


def process(places: Places) -> Found:
    """Whether it runs."""
    pid = processes.holder_of_flock(places.host_lock)
    if pid is None:
        return (
            findings.needs_operator(
                "process",
                "The Platform does not run; what follows is read from its files.",
                command=places.start_command or f"enlist serve --data-dir {places.folder}",
            ),
        )
    return (findings.ok("process", f"It runs (pid {pid}).", facts={"pid": pid}),)


class NotAnswered(Exception):
    """The engine gave no answer that can be used: the sentence says why."""

    def __init__(self, text: str, *, closed: bool = False) -> None:
        super().__init__(text)
        self.closed = closed


async def ask(places: Places, target: str) -> bytes:
    """Asks the running engine over its local socket; raises `NotAnswered`."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(places.local_socket))
            try:
                answer = await client.exchange(
                    reader,
                    writer,
                    method="GET",
                    target=target,
                    host="platform",
                    headers={"accept": "application/json"},
                    max_body_bytes=_MAX_ANSWER,
                    timeout_s=_ASK_SECONDS,
                )
            finally:
                writer.transport.abort()
    except PermissionError:
        raise NotAnswered(
            f"This account may not ask the Platform over {places.local_socket}", closed=True
        ) from None
    except (OSError, TimeoutError, failures.NetworkFailure) as fault:
        raise NotAnswered(
            f"The engine does not answer over {places.local_socket}: {fault}"
        ) from None
    if answer.status != _OK:
        raise NotAnswered(f"The engine answered {answer.status}")
    return answer.body
