"""What a backup says of itself: a head before everything else, a manifest at its end.

The head lets a reader stop early (a newer form or schema); the manifest lists each part with its
SHA-256, so that nothing can be missing, doubled or swapped. Both are JSON.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from platform_server.backup import failures
from wire_protocol import times

FORMAT: Final = 1
HEAD: Final = "head.json"
MANIFEST: Final = "manifest.json"
MASTER_KEY: Final = "master.key"
CONFIG: Final = "config/"
TABLES: Final = "tables/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Whose backup it is, of when, made by what, and how many rows it holds."""

    backup_id: str
    enlist_version: str
    schema: int
    platform_id: str
    epoch: int
    environment: str
    made_at: datetime.datetime
    rows: Mapping[str, int]

    def to_document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "format": FORMAT,
            "backup_id": self.backup_id,
            "enlist_version": self.enlist_version,
            "schema": self.schema,
            "platform_id": self.platform_id,
            "epoch": self.epoch,
            "environment": self.environment,
            "made_at": times.to_rfc3339(self.made_at),
            "rows": dict(self.rows),
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file inside the archive."""

    name: str
    bytes: int
    sha256: str
    rows: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The head again, and every part before the manifest, in order."""

    head: Head
    parts: Sequence[Part]

    @property
    def plain_bytes(self) -> int:
        """How large all parts are together."""
        return sum(part.bytes for part in self.parts)

    def to_bytes(self) -> bytes:
        """As it stands in the archive."""
        document = self.head.to_document()
        document["parts"] = [dataclasses.asdict(part) for part in self.parts]
        return json.dumps(document, separators=(",", ":")).encode()


def parse_head(raw: bytes) -> Head:
    """Reads a head; raises `Newer` for a form that this version does not know, and `Damaged`."""
    return _head(_document(raw))


def parse_manifest(raw: bytes) -> Manifest:
    """Reads a manifest; raises as `parse_head` does."""
    document = _document(raw)
    try:
        parts = [
            Part(
                name=str(part["name"]),
                bytes=int(part["bytes"]),
                sha256=str(part["sha256"]),
                rows=int(part["rows"]),
            )
            for part in document["parts"]
        ]
    except (KeyError, TypeError, ValueError) as fault:
        raise failures.Damaged("The backup's list of parts cannot be read.") from fault
    return Manifest(head=_head(document), parts=parts)


def _document(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as fault:
        raise failures.Damaged("The backup's description of itself is no JSON.") from fault
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise failures.Damaged("The backup does not say in which form it is.")
    if document["format"] > FORMAT:
        version = str(document.get("enlist_version", "?"))[:40]
        raise failures.Newer(
            f"The backup is in the form of a newer Enlist: install Enlist {version} or newer."
        )
    return document


def _head(document: Mapping[str, Any]) -> Head:
    try:
        rows = {str(table): int(count) for table, count in document["rows"].items()}
        return Head(
            backup_id=str(document["backup_id"]),
            enlist_version=str(document["enlist_version"]),
            schema=int(document["schema"]),
            platform_id=str(document["platform_id"]),
            epoch=int(document["epoch"]),
            environment=str(document["environment"]),
            made_at=times.from_rfc3339(str(document["made_at"])),
            rows=rows,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise failures.Damaged("The backup's description of itself lacks something.") from fault
