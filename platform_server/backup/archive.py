"""The plain form of a backup: a gzipped tar of small files, written and read as a stream.

Any tar program opens it once it is decrypted, so a backup can be looked into, or saved by hand,
without Enlist. Written here piece by piece, since nothing knows beforehand how much will come;
read by a strict reader of our own: regular files with names we know, each bounded, and the
manifest as the last. Memory does not grow with the number of rows: what grows is the list of
parts, some hundred bytes a megabyte.
"""

import dataclasses
import hashlib
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from platform_server.backup import failures, manifest

PART_BYTES: Final = 1_048_576  # a part is closed when it has grown to this
MOST_PART_BYTES: Final = 64 * 1_048_576  # of a reader: also the manifest of a terabyte
_BLOCK: Final = tarfile.BLOCKSIZE
_GZIP: Final = 31  # zlib's window bits for a gzip wrapper
_LEVEL: Final = 3  # certificates and JSON halve at once; more costs time and gains little
_READ_BYTES: Final = 65_536
_NAME: Final = re.compile(
    r"head\.json|manifest\.json|master\.key|config/config(\.[A-Za-z0-9_-]{1,64})?\.toml"
    r"|tables/[a-z_]{1,64}/[0-9]{6,9}\.jsonl"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of the archive, whole."""

    name: str
    content: bytes = dataclasses.field(repr=False)


class Writer:
    """Turns files into the bytes of the archive and keeps the list of them."""

    def __init__(self, head: manifest.Head) -> None:
        self._head = head
        self._squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._parts: list[manifest.Part] = []

    def add(self, name: str, content: bytes, *, rows: int = 0) -> bytes:
        """The bytes that this file adds; may be none yet."""
        self._parts.append(
            manifest.Part(
                name=name,
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                rows=rows,
            )
        )
        return self._member(name, content)

    def finish(self) -> tuple[bytes, manifest.Manifest]:
        """The manifest and the end."""
        done = manifest.Manifest(head=self._head, parts=tuple(self._parts))
        last = self._member(manifest.MANIFEST, done.to_bytes())
        end = self._squeeze.compress(bytes(2 * _BLOCK)) + self._squeeze.flush()
        return last + end, done

    def _member(self, name: str, content: bytes) -> bytes:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a part.")
        info = tarfile.TarInfo(name)
        info.size = len(content)
        info.mode = 0o600
        info.mtime = int(self._head.made_at.timestamp())
        padding = bytes(-len(content) % _BLOCK)
        return b"".join(
            self._squeeze.compress(piece)
            for piece in (info.tobuf(tarfile.USTAR_FORMAT), content, padding)
        )


def members(read: Callable[[int], bytes]) -> Iterator[Member]:
    """The files of an archive in order, checked against its manifest at the end.

    `read(n)` gives at most n bytes, none at the end. The last member is the manifest; only once it
    was given is everything before it proven whole. Raises `Damaged` and `Newer`.
    """
    source = _Unsqueezed(read)
    seen: list[manifest.Part] = []
    while (block := source.take(_BLOCK)) != bytes(_BLOCK):
        info = _info(block)
        content = source.take(info.size)
        source.take(-info.size % _BLOCK)
        if info.name == manifest.MANIFEST:
            _require_same(manifest.parse_manifest(content), seen=seen)
            source.require_end()
            yield Member(name=info.name, content=content)
            return
        seen.append(
            manifest.Part(
                name=info.name, bytes=info.size, sha256=hashlib.sha256(content).hexdigest()
            )
        )
        yield Member(name=info.name, content=content)
    raise failures.Damaged("The backup ends without its list of parts.")


def _info(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.TarError, ValueError) as fault:
        raise failures.Damaged("The backup's archive is out of shape.") from fault
    if (
        info.type != tarfile.REGTYPE
        or not _NAME.fullmatch(info.name)
        or not 0 <= info.size <= MOST_PART_BYTES
    ):
        raise failures.Damaged("The backup's archive holds something that no backup does.")
    return info


def _require_same(listed: manifest.Manifest, *, seen: list[manifest.Part]) -> None:
    there = [(part.name, part.bytes, part.sha256) for part in seen]
    if [(part.name, part.bytes, part.sha256) for part in listed.parts] != there:
        raise failures.Damaged("The backup's parts are not those that its manifest lists.")


class _Unsqueezed:
    """Exact amounts of what the gzip stream holds."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._open = zlib.decompressobj(_GZIP)
        self._buffer = bytearray()
        self._waiting = b""

    def take(self, count: int) -> bytes:
        """That many bytes; raises `Damaged` when there are fewer."""
        while len(self._buffer) < count:
            piece = self._more()
            if not piece:
                raise failures.Damaged("The backup ends too early: it was cut off.")
            self._buffer += piece
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def require_end(self) -> None:
        """Reads to the end, where nothing but the archive's own end may come."""
        rest = bytes(self._buffer)
        while piece := self._more():
            rest += piece
            if len(rest) > 20 * _BLOCK:
                break
        if rest.strip(b"\0") or not self._open.eof or self._waiting or self._read(1):
            raise failures.Damaged("The backup goes on after its end.")

    def _more(self) -> bytes:
        """The next bytes, none at the end."""
        while not self._open.eof:
            raw = self._waiting or self._read(_READ_BYTES)
            if not raw:
                return b""
            try:
                piece = self._open.decompress(raw, _READ_BYTES)
            except zlib.error as fault:
                raise failures.Damaged("The backup's archive is out of shape.") from fault
            self._waiting = self._open.unconsumed_tail or self._open.unused_data
            if piece:
                return piece
        return b""
