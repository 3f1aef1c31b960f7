"""Ed25519 signatures (RFC 8032) over a context line and exact bytes.

The context keeps a signature made for one purpose from being used for another. Keys are handed
in; nothing here reads a file or a clock.
"""

import hashlib
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from wire_protocol import ids

TRUST_CONTEXT = "enlist-trust-v1"
SIGNATURE_BYTES = 64
PUBLIC_KEY_BYTES = 32


def key_id_of(public_key: bytes) -> ids.KeyId:
    """A trust key's id: the first 16 hex digits of SHA-256 of its 32 raw bytes."""
    return ids.KeyId(hashlib.sha256(public_key).hexdigest()[:16])


def public_bytes(key: ed25519.Ed25519PublicKey) -> bytes:
    """The 32 raw bytes of a public key."""
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def sign(private_key: ed25519.Ed25519PrivateKey, content: bytes, *, context: str) -> bytes:
    """The 64-byte signature over `context`, a line end and the content."""
    return private_key.sign(_message(content, context=context))


def is_signed_by(public_key: bytes, content: bytes, *, signature: bytes, context: str) -> bool:
    """Whether the signature is this key's over exactly these bytes; malformed input is no."""
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(public_key)
        key.verify(signature, _message(content, context=context))
    except (InvalidSignature, ValueError):
        return False
    return True


def verifier_of(key: ed25519.Ed25519PublicKey) -> Callable[[bytes, bytes], bool]:
    """Tells of content and signature whether they go together, the content as it stands.

    For releases, whose signature stands over a whole file, so that openssl can verify it as well.
    """

    def verify(content: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, content)
        except InvalidSignature:
            return False
        return True

    return verify


def _message(content: bytes, *, context: str) -> bytes:
    return context.encode("ascii") + b"\n" + content
