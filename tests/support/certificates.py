"""Keys and certificates of every shape a test needs, made on the spot."""

import dataclasses
import datetime
import hashlib
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

_DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate with its private key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    @property
    def pin(self) -> str:
        spki = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return f"sha256:{hashlib.sha256(spki).hexdigest()}"

    @property
    def fingerprint(self) -> str:
        return f"sha256:{hashlib.sha256(self.der).hexdigest()}"

    def write(self, path: Path, *, chain: str = "") -> Path:
        """One file with key, certificate and what else is to be presented."""
        path.touch(mode=0o600)
        path.write_text(self.key_pem + self.pem + chain)
        return path


def issue(
    *,
    names: tuple[str, ...] = ("127.0.0.1", "::1", "localhost"),
    issuer: Issued | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
    authority: bool = False,
    not_before: datetime.datetime | None = None,
    not_after: datetime.datetime | None = None,
    usages: tuple[x509.ObjectIdentifier, ...] = (),
    uris: tuple[str, ...] = (),
    common_name: str = "test",
) -> Issued:
    """A P-256 certificate, self-signed unless an issuer is given."""
    now = datetime.datetime.now(datetime.UTC)
    own = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common_name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before or now - _DAY)
        .not_valid_after(not_after or now + 30 * _DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    general = [_general_name(name) for name in names]
    general += [x509.UniformResourceIdentifier(uri) for uri in uris]
    if general:
        builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if authority:
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    signer = own if issuer is None else issuer.key
    return Issued(key=own, certificate=builder.sign(signer, hashes.SHA256()))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
