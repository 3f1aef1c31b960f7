"""A key that nobody holds, for machines whose provider would make up a password otherwise.

Its private half goes as soon as it is made: it is written nowhere and given to nobody. So whoever
is to come in needs a key of their own (`--ssh-key`).
"""

from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

COMMENT: Final = "enlist-nobody"


def public_key() -> str:
    """A fresh one, as `ssh-ed25519 AAAA… enlist-nobody`."""
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    line = public.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()
    return f"{line} {COMMENT}"
