"""Reads and writes the worker's small JSON files without a model library.

A file that is empty, cut short or of another shape is `Damaged` and never read as "not there":
what to do then differs. Known limit: a newer file version is refused, so going back to an older
Enlist on a machine means joining again.
"""

import json
import pathlib
from collections.abc import Mapping

from runtime_kit import private_files
from wire_protocol import strict_json

MAX_BYTES = 1_048_576  # the largest, trust.json with 16 chained statements, has about 200 KB
FILE_VERSION = 1


class Damaged(Exception):
    """A file of the worker cannot be used as it is; the message names the file and the fault."""


def read(
    path: pathlib.Path, *, reader: private_files.Reader = private_files.read_private
) -> strict_json.Fields | None:
    """The fields of the document in the file, or None where there is no file.

    Raises `Damaged` for a file that is there and not usable, lax modes included, unless the
    reader lets them pass.
    """
    try:
        content = reader(path, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        return None
    except (private_files.LaxMode, private_files.FileTooLarge) as error:
        raise Damaged(str(error)) from error
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}.") from error
    if not content.strip():
        raise Damaged(f"{path} is empty: it was not written to its end.")
    try:
        fields = strict_json.read(content, what=str(path), most=MAX_BYTES)
        version = fields.integer("file_version")
    except strict_json.Malformed as error:
        raise Damaged(f"{error} It was changed or cut short.") from error
    if version != FILE_VERSION:
        raise Damaged(
            f"{path} has file version {version}; this Enlist reads version {FILE_VERSION}."
        )
    return fields


def write(path: pathlib.Path, document: Mapping[str, object]) -> None:
    """Replaces the file in one step; raises `OSError` and leaves the old one where it cannot."""
    body = {"file_version": FILE_VERSION, **document}
    private_files.write_private(path, (json.dumps(body, indent=2) + "\n").encode())
