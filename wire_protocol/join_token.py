"""The join token: one string with all that a machine needs to join.

`enj_` and unpadded base64url of JSON. It carries the Platform's address, the pins by which the
machine authenticates it, and the enrollment token. Its expiry only lets the machine add a hint to
a refusal; the Platform's clock alone decides.
"""

import base64
import binascii
import dataclasses
import datetime
import json
import re
from typing import Any

from wire_protocol import enrollment_token, ids, pins, times

VERSION = 1
MAX_BYTES = 4096
_PREFIX = "enj_"
_BLANKS = " \t\r\n\ufeff'\"`"
_BODY = re.compile(r"[A-Za-z0-9_-]+")
_KEYS = {"v", "url", "node_id", "token", "pins", "trust_key_ids", "expires_at"}


class NewerJoinToken(ValueError):
    """The join token was made by a newer Platform: update Enlist on this machine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """What the string carries."""

    url: str
    node_id: ids.NodeId
    token: enrollment_token.EnrollmentToken
    pins: tuple[pins.Pin, ...]
    trust_key_ids: tuple[ids.KeyId, ...]
    expires_at: datetime.datetime


def encode(join: JoinToken) -> str:
    """The string to paste; raises `ValueError` past 4 KiB (too many pins or keys)."""
    content = {
        "v": VERSION,
        "url": join.url,
        "node_id": join.node_id,
        "token": join.token.text(),
        "pins": list(join.pins),
        "trust_key_ids": list(join.trust_key_ids),
        "expires_at": times.to_rfc3339(join.expires_at),
    }
    raw = json.dumps(content, separators=(",", ":")).encode()
    text = _PREFIX + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    if len(text) > MAX_BYTES:
        raise ValueError(f"A join token is at most {MAX_BYTES} bytes; this one has {len(text)}.")
    return text


def decode(text: str) -> JoinToken:
    """Reads a pasted join token, with blanks, quotes, a newline or a byte-order mark around it.

    Raises `NewerJoinToken` for an unknown version and `ValueError` for anything out of shape; no
    message repeats the token.
    """
    bare = text.strip(_BLANKS)
    if len(bare) > MAX_BYTES:
        raise ValueError(f"A join token is at most {MAX_BYTES} bytes long.")
    if not bare.startswith(_PREFIX):
        raise ValueError("That is not a join token: it starts with enj_. Copy it again, whole.")
    content = _content(bare[len(_PREFIX) :])
    version = content.get("v")
    if isinstance(version, int) and not isinstance(version, bool) and version != VERSION:
        raise NewerJoinToken(
            f"The join token has form {version}, which this Enlist does not know: "
            "update Enlist on this machine."
        )
    if version != VERSION or not content.keys() >= _KEYS:
        raise _damaged()
    try:
        return JoinToken(
            url=_text(content["url"]),
            node_id=ids.parse_node_id(_text(content["node_id"])),
            token=enrollment_token.parse(_text(content["token"])),
            pins=tuple(pins.parse_pin(pin) for pin in _texts(content["pins"])),
            trust_key_ids=tuple(ids.parse_key_id(key) for key in _texts(content["trust_key_ids"])),
            expires_at=times.from_rfc3339(_text(content["expires_at"])),
        )
    except TypeError:
        raise _damaged() from None


def _content(body: str) -> dict[str, Any]:
    if not _BODY.fullmatch(body):
        raise _damaged()
    try:
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        content = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise _damaged() from None
    if not isinstance(content, dict):
        raise _damaged()
    return content


def _damaged() -> ValueError:
    return ValueError("The join token is damaged: copy it again, whole, from enj_ to its end.")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise TypeError
    return [_text(item) for item in value]
