"""Cursors: where the next page of a list begins.

Opaque to the caller: the sort key of the last entry as base64url of JSON. Not secret and not
signed, since it only chooses among what the caller may list anyway.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final

from platform_server.endpoints import refusals

_INT_BOUND: Final = 2**63


def encode(*key: str | int) -> str:
    """The cursor that stands for the entry with this sort key."""
    raw = json.dumps(list(key), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str, *, kinds: Sequence[type]) -> tuple[str | int, ...]:
    """The sort key in the cursor; raises `Refusal` when it is not one that this list made."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != len(kinds):
        raise _foreign()
    for value, kind in zip(key, kinds, strict=True):
        if type(value) is not kind:
            raise _foreign()
        if isinstance(value, int) and abs(value) >= _INT_BOUND:
            raise _foreign()
        if isinstance(value, str) and not value.isprintable():
            raise _foreign()
    return tuple(key)


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


def _foreign() -> refusals.Refusal:
    return refusals.invalid("cursor", "The cursor is not one of this list: begin without it.")
