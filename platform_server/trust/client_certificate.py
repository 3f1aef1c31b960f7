"""The certificate by which an engine shows its nodes that it is the Platform.

A P-256 key of this engine alone, made at start and never stored in the database; seven days long;
issued by the oldest trust key still valid, so that a node which has missed the newest rotation
still knows the issuer. An Agent checks the issuer, the usage (clientAuth) and the one URI. It is
never accepted as a node's certificate.
"""

import dataclasses
import datetime
import pathlib
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from platform_server.trust import key_usage, keys
from runtime_kit import private_files
from wire_protocol import ids

LIFETIME: Final = datetime.timedelta(days=7)
BACKDATED: Final = datetime.timedelta(hours=1)
RENEWED_BEFORE_END: Final = datetime.timedelta(days=2)
_ISSUER_LEFT: Final = datetime.timedelta(hours=1)  # an issuer about to end would mean one an hour


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A certificate with the file that holds it and its key."""

    pem_file: pathlib.Path
    issuer: ids.KeyId
    not_after: datetime.datetime


class ClientIdentity:
    """This engine's key, and the certificate that stands for it now."""

    def __init__(self, pem_file: pathlib.Path) -> None:
        self._pem_file = pem_file
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._present: ClientCertificate | None = None

    @property
    def pem_file(self) -> pathlib.Path:
        """Where key and certificate chain stand, for the TLS library. 0600."""
        return self._pem_file

    @property
    def present(self) -> ClientCertificate | None:
        """The certificate in the file, or None before the first."""
        return self._present

    def ensure(
        self,
        own_keys: Sequence[keys.OwnTrustKey],
        *,
        platform_id: ids.PlatformId,
        now: datetime.datetime,
    ) -> ClientCertificate:
        """Issues a certificate if the present one nears its end or its issuer has gone.

        Raises `ValueError` when no trust key is valid, `OSError` when the file cannot be written.
        """
        issuer = choose_issuer(own_keys, now=now)
        present = self._present
        if present is not None and self._is_good(present, own_keys=own_keys, now=now):
            return present
        not_after = min(now + LIFETIME, issuer.public.not_after)
        certificate = issue(
            self._private.public_key(),
            issuer=issuer,
            platform_id=platform_id,
            not_before=max(now - BACKDATED, issuer.public.not_before),
            not_after=not_after,
        )
        key_pem = self._private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = certificate.public_bytes(serialization.Encoding.PEM)
        private_files.write_private(
            self._pem_file, key_pem + chain + issuer.public.certificate_pem.encode("ascii")
        )
        self._present = ClientCertificate(
            pem_file=self._pem_file, issuer=issuer.public.key_id, not_after=not_after
        )
        return self._present

    def _is_good(
        self,
        present: ClientCertificate,
        *,
        own_keys: Sequence[keys.OwnTrustKey],
        now: datetime.datetime,
    ) -> bool:
        """Whether nodes will take it for a while; one cut short by its issuer's end may be late."""
        trusted = any(
            key.public.key_id == present.issuer and key.public.is_valid_at(now) for key in own_keys
        )
        issuer_ends = any(
            key.public.key_id == present.issuer and key.public.not_after <= present.not_after
            for key in own_keys
        )
        margin = _ISSUER_LEFT if issuer_ends else RENEWED_BEFORE_END
        return trusted and present.not_after - now > margin


def choose_issuer(
    own_keys: Sequence[keys.OwnTrustKey], *, now: datetime.datetime
) -> keys.OwnTrustKey:
    """The oldest trust key still valid, unless it ends within the hour and another is there.

    Raises `ValueError` when there is none.
    """
    valid = sorted(
        (key for key in own_keys if key.public.is_valid_at(now)),
        key=lambda key: (key.public.not_after, key.public.key_id),
    )
    if not valid:
        raise ValueError("No trust key is valid now, so no client certificate can be issued.")
    lasting = [key for key in valid if key.public.not_after - now > _ISSUER_LEFT]
    return lasting[0] if lasting else valid[-1]


def issue(
    public: ec.EllipticCurvePublicKey,
    *,
    issuer: keys.OwnTrustKey,
    platform_id: ids.PlatformId,
    not_before: datetime.datetime,
    not_after: datetime.datetime,
) -> x509.Certificate:
    """A client certificate for this key under this trust key."""
    above = x509.load_pem_x509_certificate(issuer.public.certificate_pem.encode("ascii"))
    uri = f"enlist:platform:{platform_id}"
    usage = key_usage.key_usage(signs=True, signs_certificates=False)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, uri)]))
        .issuer_name(above.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.private.public_key()),
            critical=False,
        )
        .sign(issuer.private, None)
    )
