"""Makes the machine's key and its self-signed certificate, in memory.

The certificate is an envelope for the key: the Platform registers the key's pin and judges neither
names nor dates, so that a machine that was away past the end comes back by itself. The end says
when the machine renews (`is_due`), in time for whoever else looks at dates. Backdated an hour, so
that a clock that is a little ahead does no harm. P-256 and never RSA: a handshake costs a tenth.
"""

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from runtime_kit import foreign_certificates
from wire_protocol import ids, pins

BACKDATED = datetime.timedelta(hours=1)
FIRST_DAYS = 90  # at a join; from then on the Platform says (`agents.certificate_days`)
_SPREAD = 24  # machines that joined together renew within a 24th of the life, and not in one minute
PrivateKey = ec.EllipticCurvePrivateKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PKCS 8 PEM, unencrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def parse_key(content: bytes) -> ec.EllipticCurvePrivateKey:
    """Reads a P-256 key; raises `ValueError` for anything else."""
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
        raise ValueError("it is no PEM private key, or it was cut short") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("it holds a key of another kind than P-256")  # noqa: TRY004 - bad content
    return key


def pin_of_key(key: PrivateKey) -> pins.Pin:
    """The pin that every certificate of this key has."""
    return pins.pin_of_spki(
        key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def self_signed(
    key: ec.EllipticCurvePrivateKey,
    *,
    node_id: ids.NodeId,
    addresses: Sequence[str],
    now: datetime.datetime,
    days: int = FIRST_DAYS,
) -> x509.Certificate:
    """A certificate that names the node id and every address the Platform will dial."""
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, node_id)])
    start = now - BACKDATED
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(names_of(node_id, addresses=addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [oid.ExtendedKeyUsageOID.SERVER_AUTH, oid.ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def is_due(certificate: x509.Certificate, *, now: datetime.datetime) -> bool:
    """Whether it is time for the next one: two thirds of its life are over, and a little more.

    How much more is drawn from the serial number, so that it is the same after a restart. A
    certificate that has not begun was made under a clock that was wrong, and is due as well.
    """
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    life = until - since
    spread = life / _SPREAD * (certificate.serial_number % 1000 / 1000)
    return now < since or now >= since + life * 2 / 3 + spread


def names_of(node_id: ids.NodeId, *, addresses: Sequence[str]) -> x509.SubjectAlternativeName:
    """The names of the certificate: the node id and the addresses, each once, in that order."""
    names: list[x509.GeneralName] = [x509.DNSName(node_id)]
    for address in addresses:
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
        except ValueError:
            name = x509.DNSName(address)
        if name not in names:
            names.append(name)
    return x509.SubjectAlternativeName(names)


def parse_certificate(content: bytes) -> x509.Certificate:
    """Reads one PEM certificate; raises `ValueError` for anything else."""
    try:
        with foreign_certificates.translated():
            certificate = x509.load_pem_x509_certificate(content)
            certificate.public_key()
            _ = certificate.extensions
            return certificate
    except ValueError as error:
        raise ValueError("it is no PEM certificate, or it was cut short") from error
