"""Reads an archive of a release and checks all of it, in one pass, before anything of it is used.

The outer tar has one spelling: every header is made here from its name and size, and compared byte
for byte, so that no other program can read something else in it. Nothing is unpacked. The payload
is hashed as it streams by and never held.
Not for: the signature itself; the caller hands in who verifies it.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

from installer import release as release_format

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
_CHUNK: Final = 1024 * 1024
# One for all, so that a header follows from name and size alone: 2000-01-01, in octal.
_MTIME: Final = 946_684_800

# Given the manifest and its signature, says whether a key that is trusted made it.
Verify = Callable[[bytes, bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What a checked archive says, and where its payload lies in the file."""

    release: release_format.Release
    install_sh: bytes
    payload_offset: int
    payload_size: int
    size: int
    sha256: str  # of the whole file


def header(name: str, size: int) -> bytes:
    """The ustar header of a member: a plain file of root's, mode 0644."""
    fields = (
        name.encode("ascii").ljust(100, b"\0"),
        b"0000644\0",
        b"0000000\0",
        b"0000000\0",
        b"%011o\0" % size,
        b"%011o\0" % _MTIME,
        b" " * 8,
        b"0",
        bytes(100),
        b"ustar\x0000",
        bytes(32),
        bytes(32),
        bytes(8),
        bytes(8),
        bytes(155),
        bytes(12),
    )
    block = bytearray(b"".join(fields))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padding(size: int) -> bytes:
    """What fills a member's last block."""
    return bytes(-size % BLOCK)


class _Reader:
    """Reads members in order, hashing all that goes by."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.offset = 0

    def exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise release_format.BadRelease("The archive ends too early: fetch it again.")
        self._hash.update(data)
        self.offset += size
        return data

    def size_of(self, name: str) -> int:
        """The size of the next member, which must be the one of that name."""
        block = self.exactly(BLOCK)
        try:
            size = int(block[124:135], 8)
        except ValueError:
            size = -1
        if size < 0 or block != header(name, size):
            raise release_format.BadRelease(
                f"This is no archive of Enlist's: where {name} belongs is something else."
            )
        if size > release_format.MOST_BYTES[name]:
            raise release_format.BadRelease(
                f"{name} in the archive is larger than Enlist makes it."
            )
        return size

    def member(self, name: str) -> bytes:
        size = self.size_of(name)
        data = self.exactly(size)
        self._pad(size)
        return data

    def pass_by(self, size: int) -> str:
        """The SHA-256 of a member that is not kept."""
        digest = hashlib.sha256()
        left = size
        while left:
            data = self.exactly(min(left, _CHUNK))
            digest.update(data)
            left -= len(data)
        self._pad(size)
        return digest.hexdigest()

    def _pad(self, size: int) -> None:
        if any(self.exactly(-size % BLOCK)):
            raise release_format.BadRelease(
                "This is no archive of Enlist's: there is something between its members."
            )

    def end(self) -> str:
        if self.exactly(len(END)) != END or self._file.read(1):
            raise release_format.BadRelease(
                "This is no archive of Enlist's: something follows its last member."
            )
        return self._hash.hexdigest()


def read(file: BinaryIO, *, verify: Verify) -> Archive:
    """Read an archive from where the file stands to its end, and check everything in it.

    Raises:
        BadRelease: it is no archive, has been changed, or is signed by nobody who is trusted.
    """
    reader = _Reader(file)
    manifest = reader.member(release_format.MANIFEST)
    signature = reader.member(release_format.SIGNATURE)
    if len(signature) != release_format.SIGNATURE_BYTES or not verify(manifest, signature):
        raise release_format.BadRelease(
            "The archive is not signed by a release key that is trusted here."
        )
    hashes = release_format.parse_manifest(manifest)
    release_json = reader.member(release_format.RELEASE)
    _expect(hashes, release_format.RELEASE, hashlib.sha256(release_json).hexdigest())
    release = release_format.parse_release(release_json)
    install_sh = reader.member(release_format.INSTALL_SH)
    _expect(hashes, release_format.INSTALL_SH, hashlib.sha256(install_sh).hexdigest())
    payload_size = reader.size_of(release_format.PAYLOAD)
    payload_offset = reader.offset
    payload_sha256 = reader.pass_by(payload_size)
    _expect(hashes, release_format.PAYLOAD, payload_sha256)
    if release.payload_sha256 != payload_sha256:
        raise release_format.BadRelease("The archive's release.json belongs to another payload.")
    sha256 = reader.end()
    return Archive(
        release=release,
        install_sh=install_sh,
        payload_offset=payload_offset,
        payload_size=payload_size,
        size=reader.offset,
        sha256=sha256,
    )


def _expect(hashes: dict[str, str], name: str, sha256: str) -> None:
    if hashes[name] != sha256:
        raise release_format.BadRelease(
            f"{name} in the archive is not what its manifest says: fetch it again."
        )
