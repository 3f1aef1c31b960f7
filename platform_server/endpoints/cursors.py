"""Cursors: where the next page of a list begins.

The sort key of the last entry, its parts joined by a full stop. Nothing for a caller to read or
make: it is not secret and not signed only because it chooses among what the caller may list
anyway. Each list says of which kinds its key is, which gives the pattern in the OpenAPI document.
"""

import re
from collections.abc import Sequence
from typing import Final

from platform_server.endpoints import refusals

_PATTERNS: Final[dict[type, str]] = {
    int: "(0|[1-9][0-9]{0,17})",  # below 2^63
    str: "[a-z0-9-]{1,64}",
}


def encode(*key: str | int) -> str:
    """The cursor that stands for the entry with this sort key."""
    return ".".join(str(part) for part in key)


def pattern_of(kinds: Sequence[type]) -> str:
    """What a cursor of this list looks like."""
    return f"^{'[.]'.join(_PATTERNS[kind] for kind in kinds)}$"


def decode(text: str, *, kinds: Sequence[type]) -> tuple[str | int, ...]:
    """The sort key in the cursor; raises `Refusal` when it is not one of this list's."""
    if not re.fullmatch(pattern_of(kinds), text):
        raise refusals.invalid("cursor", "The cursor is not one of this list: begin without it.")
    parts = zip(text.split("."), kinds, strict=True)
    return tuple(int(part) if kind is int else part for part, kind in parts)


def decode_int(text: str | None) -> int | None:
    """A cursor over numbers, or None for the first page."""
    if text is None:
        return None
    (value,) = decode(text, kinds=[int])
    return int(value)


def decode_text(text: str | None) -> str | None:
    """A cursor over texts, or None for the first page."""
    if text is None:
        return None
    (value,) = decode(text, kinds=[str])
    return str(value)
