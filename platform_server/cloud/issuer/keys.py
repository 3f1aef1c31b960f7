"""The issuer's keys: RSA (the clouds take RS256 from everybody), the private half sealed.

A key has three moments: it is shown from the moment it is stored, signs from `signs_from` to
`signs_until`, and is shown until `shown_until`, when whatever it signed has long ended.

Known limit: RSA keys take a tenth of a second to make, so `make_private` belongs in a thread.
"""

import base64
import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from runtime_kit import clock as clock_kit

ALGORITHM: Final = "RS256"
LOCK: Final = "cloud-issuer"
_BITS: Final = 2048
_MOST: Final = 64  # rows read at once; rotation keeps two or three


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """The public half of a key, and when it is used."""

    key_id: str
    jwk: Mapping[str, str]
    created_at: datetime.datetime
    signs_from: datetime.datetime
    signs_until: datetime.datetime
    shown_until: datetime.datetime

    def signs_at(self, moment: datetime.datetime) -> bool:
        """Whether assertions of that moment are signed with it."""
        return self.signs_from <= moment < self.signs_until


def make_private() -> rsa.RSAPrivateKey:
    """A new private key; slow."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=_BITS)


def jwk_of(public: rsa.RSAPublicKey) -> Mapping[str, str]:
    """The key as JWKS shows it, named by its own thumbprint (RFC 7638)."""
    numbers = public.public_numbers()
    needed = {"e": _number(numbers.e), "kty": "RSA", "n": _number(numbers.n)}
    canonical = json.dumps(needed, sort_keys=True, separators=(",", ":")).encode()
    return {**needed, "alg": ALGORITHM, "kid": _encoded(hashlib.sha256(canonical)), "use": "sig"}


async def save(
    tx: contract.Tx,
    *,
    private: rsa.RSAPrivateKey,
    key: IssuerKey,
    keyring: envelope.Keyring,
) -> None:
    """Keeps the key, its private half sealed under a name of its own."""
    raw = private.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    sealed = await sealed_rows.seal_value(
        tx, keyring=keyring, name=_sealed_name(key.key_id), value=raw
    )
    await tx.execute(
        "INSERT INTO issuer_keys(key_id, algorithm, public_jwk, sealed, kek_id, created_at, "
        "signs_from, signs_until, shown_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        key.key_id,
        ALGORITHM,
        json.dumps(dict(key.jwk), sort_keys=True),
        sealed,
        envelope.kek_id_of(sealed),
        *(
            clock_kit.to_micros(moment)
            for moment in (key.created_at, key.signs_from, key.signs_until, key.shown_until)
        ),
    )


async def list_shown(tx: contract.Tx, *, now: datetime.datetime) -> Sequence[IssuerKey]:
    """The keys that JWKS shows now, those that sign first before the others."""
    rows = await tx.fetch_all(
        "SELECT key_id, public_jwk, created_at, signs_from, signs_until, shown_until "
        "FROM issuer_keys WHERE shown_until > ? ORDER BY signs_from, key_id LIMIT ?",
        clock_kit.to_micros(now),
        _MOST,
    )
    return [
        IssuerKey(
            key_id=row["key_id"],
            jwk=json.loads(row["public_jwk"]),
            created_at=clock_kit.from_micros(row["created_at"]),
            signs_from=clock_kit.from_micros(row["signs_from"]),
            signs_until=clock_kit.from_micros(row["signs_until"]),
            shown_until=clock_kit.from_micros(row["shown_until"]),
        )
        for row in rows
    ]


async def open_private(
    tx: contract.Tx, *, key_id: str, keyring: envelope.Keyring
) -> rsa.RSAPrivateKey | None:
    """The private half; None where the key has gone. Raises `envelope.CannotOpen`."""
    row = await tx.fetch_one("SELECT sealed FROM issuer_keys WHERE key_id = ?", key_id)
    if row is None:
        return None
    raw = await sealed_rows.open_value(
        tx, keyring=keyring, name=_sealed_name(key_id), sealed=bytes(row["sealed"])
    )
    private = serialization.load_der_private_key(raw, None)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise envelope.CannotOpen("What was sealed as a key of the issuer is none.")
    return private


async def end_signing(tx: contract.Tx, *, key: IssuerKey) -> None:
    """Stores the moments of a key whose successor came early."""
    await tx.execute(
        "UPDATE issuer_keys SET signs_until = ?, shown_until = ? WHERE key_id = ?",
        clock_kit.to_micros(key.signs_until),
        clock_kit.to_micros(key.shown_until),
        key.key_id,
    )


async def forget_ended(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """Deletes keys that are shown no more; says how many."""
    return await tx.execute(
        "DELETE FROM issuer_keys WHERE shown_until <= ?", clock_kit.to_micros(now)
    )


def _sealed_name(key_id: str) -> str:
    return f"issuer-key:{key_id}"


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encoded(digest: "hashlib._Hash") -> str:
    return _base64url(digest.digest())


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
