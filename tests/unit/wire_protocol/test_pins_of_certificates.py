"""A pin is of the key: how a certificate's file is written does not matter (lesson E12)."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wire_protocol import pins

NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "p")])
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(key: ec.EllipticCurvePrivateKey, *, serial: int = 1) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(START)
        .not_valid_after(START + datetime.timedelta(days=serial))
        .sign(key, hashes.SHA256())
    )


KEY = ec.generate_private_key(ec.SECP256R1())
PEM = certificate(KEY).public_bytes(serialization.Encoding.PEM).decode()
OTHER = certificate(ec.generate_private_key(ec.SECP256R1())).public_bytes(
    serialization.Encoding.PEM
)
WRITTEN = {
    "as it was made": PEM,
    "with CRLF": PEM.replace("\n", "\r\n"),
    "with a blank line more": PEM + "\n\n",
    "with a comment before it": "# the Platform's\n" + PEM,
    "with a chain behind it": PEM + OTHER.decode(),
}


@pytest.mark.parametrize("sentence", WRITTEN)
def test_the_pin_does_not_depend_on_how_the_file_is_written(sentence: str) -> None:
    read = x509.load_pem_x509_certificate(WRITTEN[sentence].encode())
    assert pins.pin_of_certificate(read) == pins.pin_of_certificate(certificate(KEY))


def test_a_certificate_renewed_with_the_same_key_keeps_its_pin() -> None:
    """Lesson E10, the half with the same key."""
    first, second = certificate(KEY), certificate(KEY, serial=2)
    assert pins.fingerprint_of_certificate(first) != pins.fingerprint_of_certificate(second)
    assert pins.pin_of_certificate(first) == pins.pin_of_certificate(second)
