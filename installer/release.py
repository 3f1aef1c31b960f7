"""The release format: what an archive is called, what stands in it, and the two lists of hashes.

An archive `enlist-<role>-<version>-<arch>.tar` has exactly the members of `MEMBERS`, in that
order. The signature covers the bytes of `manifest`, the manifest the hashes of the rest, and
`release.json` says what the payload is for. Everything is parsed strictly: one meaning, one
spelling. Bytes in, values out; `archive.py` reads files.
Not for: verifying signatures, which is done by whoever has `cryptography`, or by install.sh before
there is any.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Role = Literal["worker", "platform"]
Arch = Literal["x86_64", "aarch64"]

FORMAT: Final = 1
ROLES: Final[tuple[Role, ...]] = get_args(Role)
ARCHES: Final[tuple[Arch, ...]] = get_args(Arch)
PYTHONS: Final = ("3.11", "3.12", "3.13")
SIGNATURE_BYTES: Final = 64

MANIFEST: Final = "manifest"
SIGNATURE: Final = "manifest.sig"
RELEASE: Final = "release.json"
INSTALL_SH: Final = "install.sh"
PAYLOAD: Final = "payload.tar.xz"
# What the manifest lists, and all members, each in the order in which they stand in the archive.
LISTED: Final = (RELEASE, INSTALL_SH, PAYLOAD)
MEMBERS: Final = (MANIFEST, SIGNATURE, *LISTED)

# Beside the archives in a released folder.
SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"

# The most that is read of each member; the payload with all Pythons has a third of this.
MOST_BYTES: Final[Mapping[str, int]] = {
    MANIFEST: 4096,
    SIGNATURE: SIGNATURE_BYTES,
    RELEASE: 16 * 1024,
    INSTALL_SH: 1024 * 1024,
    PAYLOAD: 256 * 1024 * 1024,
}
MOST_SUMS_BYTES: Final = 256 * 1024

_VERSION = re.compile(r"(?:0|[1-9]\d{0,5})(?:\.(?:0|[1-9]\d{0,5})){2}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:\+changes)?")
_MADE_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_SUM_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_ARCHIVE_NAME = re.compile(
    rf"enlist-({'|'.join(ROLES)})-({_VERSION.pattern})-({'|'.join(ARCHES)})\.tar", re.ASCII
)


class BadRelease(ValueError):
    """These bytes are no release of Enlist, or one that has been changed on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What release.json says of an archive."""

    role: Role
    version: str
    arch: Arch
    pythons: tuple[str, ...]
    commit: str
    made_at: str  # the time of the commit, so that the same source gives the same bytes
    payload_sha256: str

    def __post_init__(self) -> None:
        """Refuse what the format has no room for, whoever makes it."""
        if self.role not in ROLES:
            raise BadRelease(f"A release is for {' or '.join(ROLES)}, not for {self.role!r}.")
        if self.arch not in ARCHES:
            raise BadRelease(f"A release is for {' or '.join(ARCHES)}, not for {self.arch!r}.")
        if not _VERSION.fullmatch(self.version):
            raise BadRelease("A release's version has the form 1.2.3.")
        if not self.pythons or not set(self.pythons) <= set(PYTHONS):
            raise BadRelease(f"A release is for Pythons among {', '.join(PYTHONS)}.")
        if list(self.pythons) != sorted(set(self.pythons)):
            raise BadRelease("A release names each Python once, the oldest first.")
        if not _COMMIT.fullmatch(self.commit):
            raise BadRelease("A release names its commit by 40 hex digits.")
        if not _MADE_AT.fullmatch(self.made_at):
            raise BadRelease("A release's time has the form 2026-01-31T12:00:00Z.")
        if not _SHA256.fullmatch(self.payload_sha256):
            raise BadRelease("A payload's hash is 64 hex digits.")

    def to_bytes(self) -> bytes:
        """The one spelling of release.json."""
        document = {
            "format": FORMAT,
            "role": self.role,
            "version": self.version,
            "arch": self.arch,
            "pythons": list(self.pythons),
            "commit": self.commit,
            "made_at": self.made_at,
            "payload_sha256": self.payload_sha256,
        }
        return (json.dumps(document, indent=2) + "\n").encode()

    @property
    def id(self) -> str:
        """The name of its folder on a machine: the version, and 12 digits of its hash."""
        return f"{self.version}-{hashlib.sha256(self.to_bytes()).hexdigest()[:12]}"

    @property
    def archive_name(self) -> str:
        """The name of its file."""
        return f"enlist-{self.role}-{self.version}-{self.arch}.tar"


def parse_release(data: bytes) -> Release:
    """Read release.json.

    Raises:
        BadRelease: it is none, or of a format that this Enlist does not know.
    """
    if len(data) > MOST_BYTES[RELEASE]:
        raise BadRelease(f"{RELEASE} is longer than {MOST_BYTES[RELEASE]} bytes.")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadRelease(f"{RELEASE} is no JSON.") from None
    if not isinstance(document, dict):
        raise BadRelease(f"{RELEASE} is no JSON object.")
    if document.get("format") != FORMAT:
        raise BadRelease(
            f"This archive has format {document.get('format')!r}, and this Enlist knows {FORMAT}: "
            "use the install.sh that belongs to the archive."
        )
    texts = {name: document.get(name) for name in Release.__dataclass_fields__ if name != "pythons"}
    pythons = document.get("pythons")
    if not isinstance(pythons, list) or not all(isinstance(text, str) for text in pythons):
        raise BadRelease(f"{RELEASE} names no Pythons.")
    if not all(isinstance(text, str) for text in texts.values()):
        raise BadRelease(f"{RELEASE} lacks a field.")
    release = Release(pythons=tuple(pythons), **texts)  # type: ignore[arg-type]
    if release.to_bytes() != data:
        raise BadRelease(f"{RELEASE} is not spelled as Enlist spells it.")
    return release


def name_of(archive: str) -> tuple[Role, str, Arch] | None:
    """Role, version and architecture of an archive's file name, or None if it is no such name."""
    match = _ARCHIVE_NAME.fullmatch(archive)
    if match is None:
        return None
    role, version, arch = match.groups()
    return (
        next(known for known in ROLES if known == role),
        version,
        next(known for known in ARCHES if known == arch),
    )


def sums(hashes: Iterable[tuple[str, str]]) -> bytes:
    """Pairs of name and SHA-256 in the form that `sha256sum --check` reads, in the order given."""
    lines = []
    for name, sha256 in hashes:
        if not _FILE_NAME.fullmatch(name) or not _SHA256.fullmatch(sha256):
            raise BadRelease(f"{name!r} cannot stand in a list of hashes.")
        lines.append(f"{sha256}  {name}\n")
    return "".join(lines).encode()


def parse_sums(data: bytes, *, most_bytes: int = MOST_SUMS_BYTES) -> dict[str, str]:
    """Read such a list: SHA-256 by name, in the order of the file.

    Raises:
        BadRelease: it is no such list, or names a file twice or with a path.
    """
    if len(data) > most_bytes:
        raise BadRelease(f"The list of hashes is longer than {most_bytes} bytes.")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise BadRelease("The list of hashes is no text.") from None
    if not text.endswith("\n"):
        raise BadRelease("The list of hashes ends in the middle of a line.")
    found: dict[str, str] = {}
    for line in text[:-1].split("\n"):
        match = _SUM_LINE.fullmatch(line)
        if match is None or not _FILE_NAME.fullmatch(match[2]):
            raise BadRelease("A line of the list of hashes is not '<sha256>  <file name>'.")
        if match[2] in found:
            raise BadRelease(f"The list of hashes names {match[2]} twice.")
        found[match[2]] = match[1]
    return found


def parse_manifest(data: bytes) -> dict[str, str]:
    """Read the manifest of an archive, which lists exactly `LISTED`.

    Raises:
        BadRelease: it does not.
    """
    found = parse_sums(data, most_bytes=MOST_BYTES[MANIFEST])
    if tuple(found) != LISTED:
        raise BadRelease(f"The manifest does not list {', '.join(LISTED)}.")
    return found


def latest_name(role: Role, arch: Arch) -> str:
    """The file of a released folder that names its latest archive for a role and architecture."""
    return f"{role}-{arch}"


def parse_latest(data: bytes) -> tuple[str, str]:
    """Read such a file: the archive's SHA-256 and its name.

    Raises:
        BadRelease: it is not one line naming one archive.
    """
    found = parse_sums(data, most_bytes=512)
    ((name, sha256), *more) = found.items()
    if more or name_of(name) is None:
        raise BadRelease("The file that names the latest archive is not one line naming one.")
    return sha256, name
