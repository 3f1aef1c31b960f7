"""Fetches the archive of a release into the data directory: the hash decides, not who served it.

Each address is asked in turn, authenticated as this machine authenticates its Platform, or by the
system's roots; nothing secret is said to any. What was cut off is gone on with where it stood, or
begun again where the server cannot; after a fault that may pass the addresses are tried again, with
waits drawn at random. The file is 0600, and no longer than the order says. Only one archive is kept
at a time: whatever else stands in the folder is an earlier order's, and goes.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import random
import shutil
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Final

from runtime_kit import clock as clock_kit
from runtime_kit import failures as network
from runtime_kit import pinned_handshake, private_files, retry, server_trust
from runtime_kit.http1 import client, download
from wire_protocol import updates
from worker_agent.settings import failures, paths
from worker_agent.trust import refresh

LOGGER = logging.getLogger(__name__)
TRIES: Final = retry.Schedule(first_seconds=1.0, cap_seconds=60.0, tries=8)
_SPARE_BYTES: Final = 16 * 1024 * 1024  # the trust set, the journal and the log are written, too
_HASH_BYTES: Final = 1_048_576


class _Differs(Exception):
    """What came is not what the order names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What fetching needs from outside."""

    clock: clock_kit.Clock
    chance: random.Random
    environment: Mapping[str, str]
    tries: retry.Schedule = TRIES
    idle_seconds: float = 30.0


async def fetch(where: paths.Paths, wanted: updates.Update, *, around: Around) -> pathlib.Path:
    """The archive, whole and of the right hash, in `staged/`.

    Raises `Temporary` where another try may help, and `Refused` where every address gave something
    else; nothing is left of that.
    """
    path = _prepared(where, wanted)
    waits = around.tries.waits(chance=around.chance)
    while True:
        fault = await _from_each(where, wanted, path=path, around=around)
        if fault is None:
            return path
        wait = next(waits, None)
        if wait is None or not isinstance(fault, failures.Temporary):
            raise fault
        LOGGER.warning(
            "The archive of a release waits",
            extra={"reason": str(fault), "next_try_seconds": round(wait)},
        )
        await around.clock.sleep(wait)


def clear(where: paths.Paths) -> None:
    """Removes whatever is staged; may be repeated. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(where.staged)


def _prepared(where: paths.Paths, wanted: updates.Update) -> pathlib.Path:
    path = where.staged / f"{wanted.archive_sha256}.tar"
    try:
        private_files.ensure_private_folder(where.staged)
        for one in where.staged.iterdir():
            if one != path:
                one.unlink()
        have = path.stat().st_size if path.exists() else 0
        free = os.statvfs(where.staged)
    except OSError as error:
        raise failures.Temporary(
            f"{where.staged} cannot be used ({error.strerror or error})."
        ) from error
    free_bytes, needed = free.f_bavail * free.f_frsize, wanted.size - have + _SPARE_BYTES
    if free_bytes < needed:
        raise failures.Temporary(
            f"The archive needs {needed} bytes on the disk of {where.folder}, and {free_bytes} are "
            "free. Free some, and give the order again."
        )
    return path


async def _from_each(
    where: paths.Paths, wanted: updates.Update, *, path: pathlib.Path, around: Around
) -> failures.Failure | None:
    """Tries each address once; None once the archive is there, else the fault to go by."""
    told: list[str] = []
    may_pass = False
    for url in wanted.urls:
        try:
            await _from_one(where, wanted, url=url, path=path, around=around)
        except network.NetworkFailure as error:
            may_pass |= error.kind is network.Kind.TRANSIENT
            told.append(str(error))
        except _Differs as error:
            _remove(path)
            told.append(str(error))
        except OSError as error:
            raise failures.Temporary(
                f"{path.parent} cannot be written ({error.strerror or error})."
            ) from error
        else:
            return None
    sentence = f"The archive of {wanted.release} could not be fetched: {'; '.join(told)}."
    return failures.Temporary(sentence) if may_pass else failures.Refused(sentence)


async def _from_one(
    where: paths.Paths, wanted: updates.Update, *, url: str, path: pathlib.Path, around: Around
) -> None:
    """Raises `NetworkFailure`, `_Differs` and `OSError`."""
    with _opened(path) as file:
        have = os.fstat(file).st_size
        if have > wanted.size:
            raise _Differs("what was here is longer than the archive")
        if have < wanted.size:
            await _download(where, wanted, url=url, file=file, have=have, around=around)
        await asyncio.to_thread(os.fsync, file)
        size = os.fstat(file).st_size
        if size != wanted.size:
            raise _Differs(f"{url} serves {size} bytes, and the order says {wanted.size}")
        if await asyncio.to_thread(_hash_of, file) != wanted.archive_sha256:
            raise _Differs(f"{url} serves another file than the order names")


async def _download(
    where: paths.Paths,
    wanted: updates.Update,
    *,
    url: str,
    file: int,
    have: int,
    around: Around,
) -> None:
    origin, target = split(url)
    async with await _authenticated(where, origin, around=around) as connection:
        sink = download.Sink(
            start=lambda from_byte: _begin(file, from_byte),
            write=lambda piece: _write_all(file, piece),
        )
        try:
            await download.fetch(
                connection.reader,
                connection.writer,
                target=target,
                host=connection.origin.authority,
                sink=sink,
                most_bytes=wanted.size,
                from_byte=have,
                idle_s=around.idle_seconds,
            )
        except (client.AnswerTooLong, download.BeyondIts) as error:
            raise _Differs(str(error)) from error


async def _authenticated(
    where: paths.Paths, origin: str, *, around: Around
) -> server_trust.Connection:
    """By what this machine knows its Platform by; a foreign server's certificate by the roots."""
    join, held = refresh.load(where)
    own = server_trust.ServerTrust(pins=refresh.known_pins(join, held), ca_pem=join.ca_pem)
    try:
        return await server_trust.open_authenticated(
            origin, trust=own, environment=around.environment
        )
    except (pinned_handshake.PinMismatch, server_trust.ServerNotTrusted) as error:
        try:
            return await server_trust.open_authenticated(
                origin, trust=server_trust.ServerTrust(), environment=around.environment
            )
        except server_trust.ServerNotTrusted:
            raise error from None


def split(url: str) -> tuple[str, str]:
    """The origin of an https URL, and what to ask it for."""
    parts = urllib.parse.urlsplit(url)
    target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return f"https://{parts.netloc}", target


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    descriptor = os.open(path, flags, private_files.PRIVATE_FILE)
    try:
        os.fchmod(descriptor, private_files.PRIVATE_FILE)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)


def _begin(file: int, from_byte: int) -> None:
    if os.fstat(file).st_size != from_byte:
        os.ftruncate(file, from_byte)


def _write_all(file: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(file, view) :]


def _hash_of(file: int) -> str:
    made = hashlib.sha256()
    at = 0
    while piece := os.pread(file, _HASH_BYTES, at):
        made.update(piece)
        at += len(piece)
    return made.hexdigest()
