"""Signature Version 4 for one S3 request: a pure function of the request, the keys and the time.

The standard library is enough for it, so that releasing needs no cloud SDK. Whole payloads only,
hashed before they are sent; no streaming signatures, no presigned addresses.
"""

import datetime
import hashlib
import hmac
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from runtime_kit.secret import Secret

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "s3"
_END: Final = "aws4_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Who signs, and for which region."""

    access_key: str
    secret_key: Secret
    region: str
    session_token: Secret | None = None


def path_of(*pieces: str) -> str:
    """A path as it is signed and sent: every byte but the unreserved ones escaped, once."""
    return "/" + "/".join(urllib.parse.quote(piece, safe="-_.~") for piece in pieces)


def headers(
    method: str,
    *,
    host: str,
    path: str,
    payload_sha256: str,
    keys: Keys,
    now: datetime.datetime,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All headers to send, `Authorization` among them. `path` comes from `path_of`; no query."""
    stamp = now.astimezone(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    signed = {name.lower(): " ".join(value.split()) for name, value in (extra or {}).items()}
    signed |= {"host": host, "x-amz-content-sha256": payload_sha256, "x-amz-date": stamp}
    if keys.session_token is not None:
        signed["x-amz-security-token"] = keys.session_token.reveal()
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(signed.items()))
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{payload_sha256}"
    scope = f"{stamp[:8]}/{keys.region}/{_SERVICE}/{_END}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signature = hmac.new(
        _signing_key(keys, day=stamp[:8]),
        f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(),
        hashlib.sha256,
    ).hexdigest()
    return signed | {
        "authorization": f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    }


def _signing_key(keys: Keys, *, day: str) -> bytes:
    key = f"AWS4{keys.secret_key.reveal()}".encode()
    for text in (day, keys.region, _SERVICE, _END):
        key = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return key
