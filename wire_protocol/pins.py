"""Pins: which public key is expected at the other end.

A pin is the SHA-256 of a certificate's SubjectPublicKeyInfo (RFC 7469, section 2.4, uses the same
hash), so that a certificate renewed with the same key keeps its pin. A person may also give the
hash of the whole certificate, as openssl prints it; it is accepted, and what a machine keeps is
the key's pin.
"""

import base64
import binascii
import hashlib
import re
from typing import NewType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

Pin = NewType("Pin", str)

_HEX = re.compile(r"[0-9a-f]{64}")


def parse_pin(text: str) -> Pin:
    """Reads `sha256:HEX` in any case, with or without colons, or `sha256//BASE64` (curl's form).

    Raises `ValueError` with the right form.
    """
    given = text.strip()
    if given.lower().startswith("sha256//"):
        try:
            raw = base64.b64decode(given[len("sha256//") :], validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        digits = raw.hex()
    else:
        digits = re.sub(r"^sha-?256[:= ]?(fingerprint=)?", "", given.lower()).replace(":", "")
    if not _HEX.fullmatch(digits):
        raise ValueError(
            "A fingerprint is sha256: and 64 hex digits (colons and upper case are fine), or "
            "sha256// and 44 characters of base64."
        )
    return Pin(f"sha256:{digits}")


def pin_of_spki(spki_der: bytes) -> Pin:
    """The pin of a public key given as DER SubjectPublicKeyInfo."""
    return Pin(f"sha256:{hashlib.sha256(spki_der).hexdigest()}")


def pin_of_certificate(certificate: x509.Certificate) -> Pin:
    """The pin of the certificate's public key."""
    return pin_of_spki(
        certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def fingerprint_of_certificate(certificate: x509.Certificate) -> Pin:
    """The hash of the whole certificate, in the form of a pin."""
    return Pin(f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}")
