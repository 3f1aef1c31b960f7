"""What a machine's certificate must be, before and after its token's secret is known."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from platform_server.enrollment import certificate
from tests.support import domain


def _damaged() -> str:
    lines = domain.new_certificate().splitlines()
    lines[3] = "A" * len(lines[3])
    return "\n".join(lines)


REFUSED = {
    "nothing": "",
    "text": "hello",
    "two certificates": domain.new_certificate() + domain.new_certificate(),
    "a certificate with text before it": "x\n" + domain.new_certificate(),
    "a certificate with an empty body": (
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    ),
    "a certificate that is damaged": _damaged(),
    "more than 4 KiB": domain.new_certificate() + "\n" * 4096,
    "an RSA key": domain.certificate_of(rsa.generate_private_key(65537, 1024 + 1024)),
    "a P-384 key": domain.certificate_of(ec.generate_private_key(ec.SECP384R1())),
    "a private key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    "letters that are not ASCII": domain.new_certificate().replace("A", "А", 1),  # noqa: RUF001
}


@pytest.mark.parametrize("pem", REFUSED.values(), ids=REFUSED.keys())
def test_shape_refuses(pem: str) -> None:
    with pytest.raises(certificate.Malformed):
        certificate.read(pem)


def test_p256_and_ed25519_are_taken_with_blanks_and_carriage_returns_around_them() -> None:
    for key in (domain.new_key(), ed25519.Ed25519PrivateKey.generate()):
        pem = domain.certificate_of(key)
        read = certificate.read("\n " + pem.replace("\n", "\r\n") + " \n")
        assert read.pem == pem
        assert certificate.is_signed_by_itself(read)


def test_a_certificate_that_another_key_signed_is_found_out() -> None:
    pem = domain.certificate_of(domain.new_key(), signed_by=domain.new_key())
    assert not certificate.is_signed_by_itself(certificate.read(pem))


def test_a_certificate_signed_with_another_kind_of_key_is_found_out() -> None:
    pem = domain.certificate_of(domain.new_key(), signed_by=ed25519.Ed25519PrivateKey.generate())
    assert not certificate.is_signed_by_itself(certificate.read(pem))
    pem = domain.certificate_of(ed25519.Ed25519PrivateKey.generate(), signed_by=domain.new_key())
    assert not certificate.is_signed_by_itself(certificate.read(pem))
