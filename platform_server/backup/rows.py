"""A row of the store as one line of JSON, the same for both databases.

Texts, whole numbers and null are JSON's own; bytes become `{"base64": "…"}`.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from platform_server.backup import failures
from platform_server.store import contract

_BYTES: Final = "base64"
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def columns_of(row: contract.Row) -> list[str]:
    """The names of a row's columns; both databases' rows have `keys()`."""
    keys: Any = row.keys()  # type: ignore[attr-defined]
    return [str(key) for key in keys]


def line(row: contract.Row, *, columns: Sequence[str]) -> bytes:
    """One line, with its end."""
    document = {name: _to_json(row[name]) for name in columns}
    return _TO_JSON.encode(document).encode() + b"\n"


def parse(content: bytes) -> list[dict[str, object]]:
    """The rows of one part; raises `Damaged`."""
    try:
        return [
            {str(name): _from_json(value) for name, value in json.loads(one).items()}
            for one in content.splitlines()
        ]
    except (AttributeError, ValueError, RecursionError, binascii.Error) as fault:
        raise failures.Damaged("A row of the backup cannot be read.") from fault


def _to_json(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: base64.b64encode(bytes(value)).decode("ascii")}
    raise TypeError(f"A column holds a {type(value).__name__}, which no backup can hold.")


def _from_json(value: object) -> object:
    if isinstance(value, dict):
        (encoded,) = value.values()
        if set(value) != {_BYTES} or not isinstance(encoded, str):
            raise ValueError("an object that stands for no bytes")
        return base64.b64decode(encoded, validate=True)
    if isinstance(value, bool | float | list):
        raise ValueError("a value that no column holds")  # noqa: TRY004 - damaged either way
    return value
