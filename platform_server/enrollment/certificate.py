"""The machine's certificate: one, small, P-256 or Ed25519, signed by its own key.

Shape comes first and is free to tell (`read`); the signature costs a multiplication on a curve and
is checked only after the token's secret (`is_signed_by_itself`). Subject, names and dates are not
judged: the key is the identity, the rest is the machine's word about itself.
"""

import base64
import binascii
import dataclasses
import hashlib
import re
from typing import Final

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from wire_protocol import enrollment, pins

_ONE_PEM: Final = re.compile(
    r"\s*-----BEGIN CERTIFICATE-----\s([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----\s*", re.ASCII
)
_HASHES: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


MachineKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class Malformed(ValueError):
    """The certificate is not one that a node may have; the text says what it must be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineCertificate:
    """A certificate of the right shape; nobody has proved anything with it yet."""

    pem: str
    sha256: str
    pin: pins.Pin
    parsed: x509.Certificate = dataclasses.field(repr=False, compare=False)
    key: MachineKey = dataclasses.field(repr=False, compare=False)


def read(pem: str) -> MachineCertificate:
    """Reads exactly one PEM certificate; raises `Malformed` before any signature is looked at."""
    if len(pem) > enrollment.MAX_CERTIFICATE_BYTES:
        raise Malformed("The certificate must be at most 4 KiB of PEM.")
    found = _ONE_PEM.fullmatch(pem)
    if found is None:
        raise Malformed(
            "The certificate must be exactly one in PEM, from -----BEGIN CERTIFICATE----- "
            "to -----END CERTIFICATE-----."
        )
    try:
        der = base64.b64decode("".join(found[1].split()), validate=True)
        parsed = x509.load_der_x509_certificate(der)
        key = _key(parsed)
        spki = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except Malformed:
        raise
    # What a stranger can put into a certificate makes the parser fail in many ways.
    except (ValueError, TypeError, binascii.Error, exceptions.UnsupportedAlgorithm) as fault:
        raise Malformed("The certificate cannot be read: it is damaged or not X.509.") from fault
    except x509.InvalidVersion as fault:
        raise Malformed("The certificate must be X.509 version 3.") from fault
    return MachineCertificate(
        pem=_normal_pem(der),
        sha256=f"sha256:{hashlib.sha256(der).hexdigest()}",
        pin=pins.pin_of_spki(spki),
        parsed=parsed,
        key=key,
    )


def is_signed_by_itself(certificate: MachineCertificate) -> bool:
    """Whether the certificate's own key signed it: the machine holds the private half."""
    parsed, key = certificate.parsed, certificate.key
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            if parsed.signature_algorithm_oid != x509.SignatureAlgorithmOID.ED25519:
                return False
            key.verify(parsed.signature, parsed.tbs_certificate_bytes)
            return True
        algorithm = parsed.signature_hash_algorithm
        if not isinstance(algorithm, _HASHES):
            return False
        key.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except (exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm, ValueError):
        return False
    return True


def _key(parsed: x509.Certificate) -> MachineKey:
    key = parsed.public_key()
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise Malformed("The certificate's key must be P-256 or Ed25519.")


def _normal_pem(der: bytes) -> str:
    body = base64.b64encode(der).decode("ascii")
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"
