"""The issuer's two public documents: what it is, and its keys. Static files, for any https host.

They hold nothing secret and nothing that changes with a request; whoever can change them where they
are hosted can speak for every federated connection, so that host is part of the trust.
"""

import json
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final

from platform_server.cloud.issuer import keys
from runtime_kit import private_files

DISCOVERY: Final = ".well-known/openid-configuration"
JWKS: Final = "jwks.json"
PUBLIC_FILE: Final = 0o644
CONTENT_TYPE: Final = "application/json"
_LONGEST_URL: Final = 255  # AWS's limit for the address of an identity provider


class Refused(Exception):
    """The address cannot be an issuer's. The message is a sentence."""


def check_url(url: str) -> None:
    """Whether clouds would take this as an issuer's address.

    Raises:
        Refused: it is not https, has a query, ends with a slash, or is too long.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise Refused(f"{url!r} is no https address: clouds fetch the issuer's keys over https.")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise Refused(f"{url!r} holds more than host and path.")
    if url.endswith("/"):
        raise Refused(f"{url!r} ends with a slash; clouds compare it letter by letter: leave it.")
    if len(url) > _LONGEST_URL:
        raise Refused(f"An issuer's address has at most {_LONGEST_URL} characters.")


def of(url: str, *, shown: Sequence[keys.IssuerKey]) -> Mapping[str, bytes]:
    """Path below the issuer's address to content; the keys first, so that they are written first.

    Raises `Refused`.
    """
    check_url(url)
    return {JWKS: _written({"keys": [dict(key.jwk) for key in shown]}), DISCOVERY: _discovery(url)}


def export(documents: Mapping[str, bytes], *, folder: pathlib.Path) -> Sequence[pathlib.Path]:
    """Writes them into a folder, each whole or not at all; says which files those are.

    Raises `OSError`.
    """
    written = []
    for name, content in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        private_files.write_private(path, content, mode=PUBLIC_FILE)
        written.append(path)
    return written


def _discovery(url: str) -> bytes:
    return _written(
        {
            "issuer": url,
            "jwks_uri": f"{url}/{JWKS}",
            # required by the standard; nobody logs in here
            "authorization_endpoint": "urn:enlist:programmatic-authorization",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [keys.ALGORITHM],
            "claims_supported": ["aud", "exp", "iat", "iss", "jti", "nbf", "sub"],
        }
    )


def _written(content: Mapping[str, object]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
