"""Renewing a node's certificate, or its key, by proof of the key it has.

The new certificate is self-signed by its own key. Where that is another key, the present one signs
the new certificate's DER bytes in the context `enlist-renew-v1`: ECDSA with SHA-256 for P-256,
plain for Ed25519.
"""

import base64
import dataclasses

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from wire_protocol import pins, strict_json

CONTEXT = b"enlist-renew-v1\n"
MAX_PEM = 4096
MAX_SIGNATURE = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The new certificate; `signature` by the present key where the key changes."""

    certificate_pem: str
    signature: bytes | None = None

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        content: dict[str, object] = {"certificate_pem": self.certificate_pem}
        if self.signature is not None:
            content["signature"] = base64.b64encode(self.signature).decode()
        return strict_json.write(content)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The Platform knows the new certificate now; the old one counts until it saw the new used."""

    certificate_sha256: pins.Pin
    pin: pins.Pin

    def to_bytes(self) -> bytes:
        """The body as it crosses the wire."""
        return strict_json.write({"certificate_sha256": self.certificate_sha256, "pin": self.pin})


def parse_request(raw: bytes) -> Request:
    """Reads the request; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="renewal", most=16_384)
    return Request(
        certificate_pem=fields.text("certificate_pem", most=MAX_PEM),
        signature=fields.raw("signature", most=MAX_SIGNATURE) if fields.has("signature") else None,
    )


def parse_granted(raw: bytes) -> Granted:
    """Reads the answer; raises `strict_json.Malformed`."""
    fields = strict_json.read(raw, what="renewal answer", most=16_384)
    with strict_json.judged():
        return Granted(
            certificate_sha256=pins.parse_pin(fields.text("certificate_sha256", most=128)),
            pin=pins.parse_pin(fields.text("pin", most=128)),
        )


def sign(key: ec.EllipticCurvePrivateKey, der: bytes) -> bytes:
    """The present key's signature under the new certificate."""
    return key.sign(CONTEXT + der, ec.ECDSA(hashes.SHA256()))


def is_signed_by(public_key: object, der: bytes, *, signature: bytes) -> bool:
    """Whether the present key signed this new certificate; anything malformed is no."""
    try:
        if isinstance(public_key, ec.EllipticCurvePublicKey):
            public_key.verify(signature, CONTEXT + der, ec.ECDSA(hashes.SHA256()))
        elif isinstance(public_key, ed25519.Ed25519PublicKey):
            public_key.verify(signature, CONTEXT + der)
        else:
            return False
    except (InvalidSignature, ValueError):
        return False
    return True
