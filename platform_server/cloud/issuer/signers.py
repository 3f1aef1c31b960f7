"""Signs assertions: "the bearer is connection X of this Platform", for one audience, ten minutes.

A signer holds the one private key that signs now, in the engine's memory, for as long as a driver
is open; it is loaded anew for the next.
"""

import dataclasses
import datetime
import secrets
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from platform_server.cloud.issuer import documents, keys
from platform_server.sealing import envelope
from platform_server.store import contract

LIFETIME: Final = datetime.timedelta(minutes=10)
BACKDATED: Final = datetime.timedelta(minutes=1)  # for clouds whose clock is behind ours


class NoKey(Exception):
    """The issuer has no key that signs now: the engine makes one at its start, try again then."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """The issuer as it signs now."""

    url: str
    key_id: str
    private: rsa.RSAPrivateKey = dataclasses.field(repr=False, compare=False)

    def assertion(self, *, subject: str, audience: str, now: datetime.datetime) -> str:
        """A signed JWT, each one with an id of its own; whoever holds it is the connection."""
        return jwt.encode(
            {
                "iss": self.url,
                "sub": subject,
                "aud": audience,
                "iat": now,
                "nbf": now - BACKDATED,
                "exp": now + LIFETIME,
                "jti": secrets.token_hex(16),
            },
            self.private,
            algorithm=keys.ALGORITHM,
            headers={"kid": self.key_id},
        )


def subject_of(connection_id: str) -> str:
    """The subject of a connection's assertions, to which the cloud's own rule is bound."""
    return f"connection:{connection_id}"


async def load(
    tx: contract.Tx, *, keyring: envelope.Keyring, url: str, now: datetime.datetime
) -> Signer:
    """The signer of this moment.

    Raises:
        NoKey: there is none yet.
        documents.Refused: the address cannot be an issuer's.
        envelope.CannotOpen: the private half does not open.
    """
    documents.check_url(url)
    for key in reversed(await keys.list_shown(tx, now=now)):
        if key.signs_at(now):
            private = await keys.open_private(tx, key_id=key.key_id, keyring=keyring)
            if private is not None:
                return Signer(url=url, key_id=key.key_id, private=private)
    raise NoKey("The issuer has no key that signs now. The engine makes one: try again shortly.")
