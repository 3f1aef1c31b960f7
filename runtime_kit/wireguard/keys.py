"""WireGuard's private keys: X25519, 32 bytes, written as base64 with its one padding sign."""

import base64
import binascii
from typing import Final

from cryptography.hazmat.primitives.asymmetric import x25519

from runtime_kit import secret

_BYTES: Final = 32


class NoKey(ValueError):
    """This is no WireGuard key: 32 bytes in base64, as `wg genkey` prints one."""


def new_private_key() -> secret.Secret:
    """A fresh private key."""
    raw = x25519.X25519PrivateKey.generate().private_bytes_raw()
    return secret.Secret(base64.b64encode(raw).decode())


def public_key_of(private_key: secret.Secret) -> str:
    """The public half; raises `NoKey` where the text is no private key."""
    try:
        raw = base64.b64decode(private_key.reveal().encode(), validate=True)
    except (binascii.Error, ValueError):
        raise NoKey("A WireGuard key is written in base64.") from None
    if len(raw) != _BYTES:
        raise NoKey(f"A WireGuard key has {_BYTES} bytes.")
    public = x25519.X25519PrivateKey.from_private_bytes(raw).public_key()
    return base64.b64encode(public.public_bytes_raw()).decode()
