"""`trust.json`: the last accepted trust set, as the exact bytes that were signed.

Everything else (keys, pins, addresses) is read out of those bytes, so the file cannot disagree
with itself. It is replaced in one step; after a crash it holds the old set or the new one.
"""

import base64
import pathlib

from runtime_kit import private_files
from wire_protocol import statements, strict_json, trust
from worker_agent.settings import documents


def read(
    path: pathlib.Path, *, reader: private_files.Reader = private_files.read_private
) -> trust.Held | None:
    """The held set, or None where there is none yet; raises `Damaged`."""
    fields = documents.read(path, reader=reader)
    if fields is None:
        return None
    try:
        signed = statements.parse_signed(fields)
        return trust.Held(signed=signed, statement=statements.parse_statement(signed.content))
    except strict_json.Malformed as error:
        raise documents.Damaged(f"{path} is damaged: {error}") from error


def write(path: pathlib.Path, held: trust.Held) -> None:
    """Replaces the file in one step; raises `OSError` and leaves the old one where it cannot."""
    documents.write(
        path,
        {
            "statement": base64.b64encode(held.signed.content).decode(),
            "signatures": held.signed.to_wire()["signatures"],
        },
    )
