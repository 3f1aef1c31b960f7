"""The helper's own files, all in a folder that only root may enter, and how they are read.

`trust.json` is whom it believes, `orders.json` the last order and how far it has come, `last.json`
what became of it. `finisher` leads to the release that began a change, so that it is also the one
that ends it. `join-by-root` stands while a person joins this machine as root, and says what: only
then may a trust set take its place that no key of the one before has signed. `left` says that the
machine has left a Platform.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping

from installer import layout as layout_kit
from runtime_kit import private_files
from wire_protocol import strict_json

MAX_BYTES = 1_048_576
_FILE_VERSION = 1


class Damaged(Exception):
    """A file of the helper's cannot be used; the message names it and what mends it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the helper of one installation keeps what."""

    layout: layout_kit.Layout
    folder: pathlib.Path

    @property
    def trust(self) -> pathlib.Path:
        """The trust set, and whose orders count."""
        return self.folder / "trust.json"

    @property
    def orders(self) -> pathlib.Path:
        """The last order."""
        return self.folder / "orders.json"

    @property
    def outcome(self) -> pathlib.Path:
        """What became of the last change of release."""
        return self.folder / "last.json"

    @property
    def finisher(self) -> pathlib.Path:
        """A link to the release whose helper ends a change that is under way."""
        return self.folder / "finisher"

    @property
    def join_by_root(self) -> pathlib.Path:
        """What root joins this machine to now."""
        return self.folder / "join-by-root"

    @property
    def left(self) -> pathlib.Path:
        """Whether somebody was believed here before."""
        return self.folder / "left"


def read(path: pathlib.Path) -> strict_json.Fields | None:
    """The document, or None where there is none; raises `Damaged`."""
    try:
        content = private_files.read_private(path, max_bytes=MAX_BYTES)
        fields = strict_json.read(content, what=str(path), most=MAX_BYTES)
        if fields.integer("file_version") != _FILE_VERSION:
            raise Damaged(f"{path} was written by another version of Enlist. Join again, as root.")
    except FileNotFoundError:
        return None
    except (private_files.LaxMode, private_files.FileTooLarge, strict_json.Malformed) as error:
        raise Damaged(f"{error} Remove it, and join again as root.") from error
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}.") from error
    return fields


def write(path: pathlib.Path, document: Mapping[str, object]) -> None:
    """Replaces the file in one step; raises `OSError` and leaves the old one where it cannot."""
    body = {"file_version": _FILE_VERSION, **document}
    private_files.write_private(path, (json.dumps(body, indent=2) + "\n").encode())
