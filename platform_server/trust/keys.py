"""Trust keys: Ed25519, valid a year, the private half sealed in the store.

Each key carries a certificate of its own (a CA of path length 0), under which the Platform's
client certificates stand, so that an Agent can check them with plain TLS. The key's window is the
certificate's: it begins an hour before the key was made, for machines whose clock is behind.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from platform_server.sealing import envelope, sealed_rows
from platform_server.store import contract
from platform_server.trust import key_usage
from runtime_kit import clock
from wire_protocol import ids, signing, statements

LIFETIME: Final = datetime.timedelta(days=365)
BACKDATED: Final = datetime.timedelta(hours=1)
_MOST: Final = 64  # rows read at once; a year's rotation adds one


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnTrustKey:
    """A trust key with its private half, in the memory of the engine alone."""

    public: statements.TrustKey
    private: ed25519.Ed25519PrivateKey = dataclasses.field(repr=False, compare=False)
    created_at: datetime.datetime

    def signature_of(
        self, content: bytes, *, context: str = signing.TRUST_CONTEXT
    ) -> statements.Signature:
        """This key's signature under the exact bytes of a statement, or of what `context` names."""
        return statements.Signature(
            key_id=self.public.key_id,
            signature=signing.sign(self.private, content, context=context),
        )


def make(*, now: datetime.datetime) -> OwnTrustKey:
    """A new key, whose window begins with its publication."""
    private = ed25519.Ed25519PrivateKey.generate()
    raw = signing.public_bytes(private.public_key())
    key_id = signing.key_id_of(raw)
    made = now.replace(microsecond=0)  # a certificate counts whole seconds
    not_before, not_after = made - BACKDATED, made + LIFETIME
    return OwnTrustKey(
        public=statements.TrustKey(
            key_id=key_id,
            public_key=raw,
            not_before=not_before,
            not_after=not_after,
            certificate_pem=_certificate(
                private, key_id=key_id, not_before=not_before, not_after=not_after
            ),
        ),
        private=private,
        created_at=now,
    )


async def save(tx: contract.Tx, *, key: OwnTrustKey, keyring: envelope.Keyring) -> None:
    """Keeps the key, its private half sealed under a name of its own."""
    raw = key.private.private_bytes(
        serialization.Encoding.Raw,
        serialization.PrivateFormat.Raw,
        serialization.NoEncryption(),
    )
    await tx.execute(
        "INSERT INTO trust_keys(key_id, public_key, sealed_private, not_before, not_after, "
        "certificate_pem, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        key.public.key_id,
        key.public.public_key,
        await sealed_rows.seal_value(
            tx, keyring=keyring, name=_sealed_name(key.public.key_id), value=raw
        ),
        clock.to_micros(key.public.not_before),
        clock.to_micros(key.public.not_after),
        key.public.certificate_pem,
        clock.to_micros(key.created_at),
    )


async def load(
    tx: contract.Tx, *, keyring: envelope.Keyring, now: datetime.datetime
) -> Sequence[OwnTrustKey]:
    """The keys that have not ended, those that end first before the others: the newest is the last.

    Windows count whole seconds; of keys made in one second the later made is the later.

    Raises `envelope.CannotOpen` when a private half does not open: the engine must not go on.
    """
    rows = await tx.fetch_all(
        "SELECT key_id, public_key, sealed_private, not_before, not_after, certificate_pem, "
        "created_at FROM trust_keys WHERE not_after >= ? "
        "ORDER BY not_after, created_at, key_id LIMIT ?",
        clock.to_micros(now),
        _MOST,
    )
    return [
        OwnTrustKey(
            public=statements.TrustKey(
                key_id=ids.KeyId(row["key_id"]),
                public_key=bytes(row["public_key"]),
                not_before=clock.from_micros(row["not_before"]),
                not_after=clock.from_micros(row["not_after"]),
                certificate_pem=row["certificate_pem"],
            ),
            private=ed25519.Ed25519PrivateKey.from_private_bytes(
                await sealed_rows.open_value(
                    tx,
                    keyring=keyring,
                    name=_sealed_name(row["key_id"]),
                    sealed=bytes(row["sealed_private"]),
                )
            ),
            created_at=clock.from_micros(row["created_at"]),
        )
        for row in rows
    ]


async def forget_ended(tx: contract.Tx, *, now: datetime.datetime) -> int:
    """Deletes keys whose window has passed: nothing may be signed with them any more."""
    return await tx.execute("DELETE FROM trust_keys WHERE not_after < ?", clock.to_micros(now))


def _sealed_name(key_id: str) -> str:
    return f"trust-key:{key_id}"


def _certificate(
    private: ed25519.Ed25519PrivateKey,
    *,
    key_id: ids.KeyId,
    not_before: datetime.datetime,
    not_after: datetime.datetime,
) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Enlist trust key {key_id}")])
    public = private.public_key()
    usage = key_usage.key_usage(signs=False, signs_certificates=True)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(private, None)
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
