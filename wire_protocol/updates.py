"""What an order says that changes which release runs on a machine: `update` and `roll-back`.

Strict, unlike other forms: what root acts on has exactly the fields named here, each within its
bounds, so that nothing is carried out by half. What the archive is, its hash and its size decide;
where it comes from decides nothing. Imports nothing but the standard library.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from wire_protocol import strict_json, versions

MOST_ARCHIVE_BYTES: Final = 512 * 1024 * 1024
MOST_URLS: Final = 8
LONGEST_URL: Final = 1024

_FIELDS: Final = frozenset({"version", "release", "archive_sha256", "size", "urls"})
_RELEASE: Final = re.compile(r"([0-9][-+.a-z0-9]{4,52})-([0-9a-f]{12})", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The release that a machine is to run, and the archive that holds it.

    `release` is the release id: the version, a dash, and the first 12 hex digits of the hash of
    the archive's release.json. `urls` are https, in the order in which they are to be tried.
    """

    version: str
    release: str
    archive_sha256: str
    size: int
    urls: tuple[str, ...]

    def to_content(self) -> dict[str, Any]:
        """The `content` of the order."""
        return {
            "version": self.version,
            "release": self.release,
            "archive_sha256": self.archive_sha256,
            "size": self.size,
            "urls": list(self.urls),
        }


def parse_update(content: Mapping[str, Any]) -> Update:
    """Reads the content of an `update`; raises `strict_json.Malformed`."""
    _require_fields(content, known=_FIELDS)
    fields = strict_json.Fields(dict(content), what="update")
    version = fields.text("version", most=64)
    release = fields.text("release", most=80)
    sha256 = fields.text("archive_sha256", most=64)
    urls = fields.texts("urls", most=MOST_URLS, longest=LONGEST_URL)
    with strict_json.judged():
        versions.parse(version)
        if version_of_release(release) != version:
            raise strict_json.Malformed(f"update.release must be of the version {version}.")
    if not _SHA256.fullmatch(sha256):
        raise strict_json.Malformed("update.archive_sha256 must be 64 hex digits.")
    if not urls or not all(is_https(url) for url in urls):
        raise strict_json.Malformed("update.urls must be https addresses, one at least.")
    return Update(
        version=version,
        release=release,
        archive_sha256=sha256,
        size=fields.integer("size", least=1, most=MOST_ARCHIVE_BYTES),
        urls=urls,
    )


def require_roll_back(content: Mapping[str, Any]) -> None:
    """A `roll-back` says nothing beside its kind; raises `strict_json.Malformed`."""
    _require_fields(content, known=frozenset())


def version_of_release(release: str) -> str:
    """The version in a release id; raises `ValueError` where it is none."""
    found = _RELEASE.fullmatch(release)
    if found is None:
        raise ValueError("A release id is a version, a dash and 12 hex digits.")
    versions.parse(found.group(1))
    return found.group(1)


def is_https(url: str) -> bool:
    """Whether this is an https address with a host, without user name or fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and "#" not in url
    return (
        plain
        and parts.scheme == "https"
        and bool(parts.hostname)
        and parts.username is None
        and port != 0
    )


def _require_fields(content: Mapping[str, Any], *, known: frozenset[str]) -> None:
    for name in sorted(content.keys() ^ known):
        wrong = "is missing" if name in known else "is not known here"
        raise strict_json.Malformed(f"The content's field {name[:40]!r} {wrong}.")
