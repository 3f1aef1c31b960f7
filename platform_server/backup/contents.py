"""Reads a backup file piece by piece: decrypted, unpacked, and each piece known for what it is.

Everything is checked that can be checked without a store: that the file is whole and unchanged,
that its parts are those of its manifest, that each row can be read and their numbers are right.
The last piece is the manifest; whoever acts on earlier ones takes it back if that does not come.
"""

import collections
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from platform_server.backup import archive, encryption, failures, manifest, rows, tables
from platform_server.sealing import envelope, key_file
from platform_server.store import migrations

_PART: Final = re.compile(r"tables/([a-z_]+)/[0-9]+\.jsonl")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MasterKey:
    """The keys that the sealed values of this backup need."""

    keys: tuple[envelope.KeyEncryptionKey, ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A settings file."""

    name: str
    content: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of one table."""

    table: str
    rows: Sequence[dict[str, object]] = dataclasses.field(repr=False)


Piece = manifest.Head | MasterKey | Config | Rows | manifest.Manifest


@contextlib.contextmanager
def opened(
    path: pathlib.Path, *, key: encryption.Key, told: encryption.Told = encryption.tell_nobody
) -> Iterator[Iterator[Piece]]:
    """The pieces of the file: the head first, the manifest last.

    `told` hears of each number of bytes read. Raises the kinds of `failures`, here or while the
    pieces are taken.
    """
    with _file(path) as file, encryption.opened(file, key=key, told=told) as read:
        yield _pieces(archive.members(read))


def verify(
    path: pathlib.Path, *, key: encryption.Key, told: encryption.Told = encryption.tell_nobody
) -> manifest.Manifest:
    """Reads the whole file; gives what it holds. Raises the kinds of `failures`."""
    with opened(path, key=key, told=told) as pieces:
        for piece in pieces:
            if isinstance(piece, manifest.Manifest):
                return piece
    raise failures.Damaged("The backup ends without its list of parts.")


@contextlib.contextmanager
def _file(path: pathlib.Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise failures.NotFound(f"There is no file {path}.") from None
    except OSError as fault:
        raise failures.NoBackup(f"{path} cannot be read: {fault.strerror}.") from None
    with file:
        yield file


def _pieces(members: Iterator[archive.Member]) -> Iterator[Piece]:
    head: manifest.Head | None = None
    has_key = False
    counted: collections.Counter[str] = collections.Counter()
    for member in members:
        if head is None:
            head = _head(member)
            yield head
        elif member.name == manifest.MANIFEST:
            listed = manifest.parse_manifest(member.content)
            _require_whole(listed, head=head, counted=counted, has_key=has_key)
            yield listed
        elif member.name == manifest.MASTER_KEY:
            has_key = True
            yield _master_key(member.content)
        elif member.name.startswith(manifest.CONFIG):
            yield Config(name=member.name.removeprefix(manifest.CONFIG), content=member.content)
        else:
            found = _rows(member)
            counted[found.table] += len(found.rows)
            yield found


def _head(member: archive.Member) -> manifest.Head:
    if member.name != manifest.HEAD:
        raise failures.Damaged("The backup does not begin with its description.")
    head = manifest.parse_head(member.content)
    known = len(migrations.all_migrations())
    if head.schema > known:
        raise failures.Newer(
            f"The backup holds a store of schema {head.schema}; this Enlist knows {known}: install "
            f"Enlist {head.enlist_version[:40]} or newer."
        )
    return head


def _master_key(content: bytes) -> MasterKey:
    try:
        return MasterKey(keys=key_file.parse(content))
    except ValueError:
        raise failures.Damaged("The backup's master key is none.") from None


def _rows(member: archive.Member) -> Rows:
    named = _PART.fullmatch(member.name)
    if named is None or named[1] not in tables.KEPT:
        raise failures.Damaged("The backup holds something that no backup does.")
    return Rows(table=named[1], rows=rows.parse(member.content))


def _require_whole(
    listed: manifest.Manifest,
    *,
    head: manifest.Head,
    counted: collections.Counter[str],
    has_key: bool,
) -> None:
    there = {table: count for table, count in head.rows.items() if count}
    if listed.head != head or dict(counted) != there or not has_key:
        raise failures.Damaged("The backup does not hold what its description promises.")
