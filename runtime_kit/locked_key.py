"""A passphrase in front of a file that is encrypted to a key made for that file alone.

The age format (age-encryption.org/v1) knows passphrases, but its Python library takes a passphrase
only for what fits in memory. So a file of any size is encrypted to a fresh X25519 key, and that
key, encrypted with the passphrase, stands before it as an armoured age file of its own. Whoever
encrypts then needs the public half alone and never sees the passphrase.

By hand: `sed '/^-----END/q' FILE | age -d > key` and
`tail -n +$((1 + $(grep -na -m1 '^-----END' FILE | cut -d: -f1))) FILE | age -d -i key`.
Known limit: pyrage is imported only when something is locked or opened.
"""

import dataclasses
from typing import Final

from runtime_kit import secret as secret_kit

BEGIN: Final = b"-----BEGIN AGE ENCRYPTED FILE-----\n"
_END: Final = b"\n-----END AGE ENCRYPTED FILE-----\n"
MOST_BYTES: Final = 4096  # the locked key takes some 500


class Unopenable(Exception):
    """The passphrase does not open the key: give the right one."""


class OutOfShape(Exception):
    """There is no whole locked key at the beginning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LockedKey:
    """What goes before the file, and to whom the file itself is encrypted."""

    block: bytes = dataclasses.field(repr=False)
    recipient: str


def new(passphrase: secret_kit.Secret) -> LockedKey:
    """A fresh key, locked. Takes about a second on purpose (scrypt)."""
    import pyrage  # noqa: PLC0415 - two megabytes that most commands do not need

    identity = pyrage.x25519.Identity.generate()
    block = pyrage.passphrase.encrypt(str(identity).encode(), passphrase.reveal(), armored=True)
    return LockedKey(block=block, recipient=str(identity.to_public()))


def split(start: bytes) -> int:
    """How long the locked key at the start of these bytes is; raises `OutOfShape`."""
    end = start.find(_END)
    if not start.startswith(BEGIN) or end < 0:
        raise OutOfShape("The file does not begin with a whole locked key.")
    return end + len(_END)


def unlock(block: bytes, *, passphrase: secret_kit.Secret) -> secret_kit.Secret:
    """The key (`AGE-SECRET-KEY-1…`); raises `Unopenable`. Takes as long as `new`."""
    import pyrage  # noqa: PLC0415 - as above

    try:
        return secret_kit.Secret(pyrage.passphrase.decrypt(block, passphrase.reveal()).decode())
    except pyrage.DecryptError as fault:
        raise Unopenable(str(fault)) from None
