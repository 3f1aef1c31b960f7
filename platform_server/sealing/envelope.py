"""Envelope encryption: a fresh data key per value, wrapped by a key-encryption key.

A sealed value is `es1`, the 8-byte id of the key-encryption key, the wrapped data key, and the
ciphertext, both by XChaCha20-Poly1305 (nonces of 24 random bytes need no counter). The value's
name is bound into the ciphertext, so that a row copied over another does not open. Changing the
key-encryption key rewraps the 32-byte data key and leaves the ciphertext alone. A key service
would stand behind `Keyring`'s wrap and unwrap.
"""

import dataclasses
import hashlib
import secrets
import threading
from collections.abc import Iterable
from typing import Final

import nacl.exceptions
import nacl.secret

_MAGIC: Final = b"es1"
_ID_BYTES: Final = 8
_KEY_BYTES: Final = 32
_OVERHEAD: Final = 24 + 16  # nonce and tag of XChaCha20-Poly1305
_WRAPPED: Final = _KEY_BYTES + _OVERHEAD
_HEAD: Final = len(_MAGIC) + _ID_BYTES
_ID_CONTEXT: Final = b"enlist-key-encryption-key-v1\n"


class CannotOpen(Exception):
    """The sealed value does not open: it was changed, or is not the one of this name."""


class UnknownKey(CannotOpen):
    """The value is sealed with a key-encryption key that is not held here."""

    def __init__(self, kek_id: str) -> None:
        super().__init__(f"The value is sealed with the key {kek_id}, which is not held here.")
        self.kek_id = kek_id


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeyEncryptionKey:
    """256 random bits; the id is a hash of them and may be shown."""

    raw: bytes = dataclasses.field(repr=False)

    @property
    def kek_id(self) -> str:
        """16 hex digits."""
        return hashlib.sha256(_ID_CONTEXT + self.raw).digest()[:_ID_BYTES].hex()


def new_key() -> KeyEncryptionKey:
    """A fresh key from the kernel's random source."""
    return KeyEncryptionKey(raw=secrets.token_bytes(_KEY_BYTES))


class Keyring:
    """The key-encryption keys held, of which one seals. Safe to use from several threads."""

    def __init__(self, keys: Iterable[KeyEncryptionKey], *, current: str) -> None:
        self._keys = {key.kek_id: key for key in keys}
        self._current = current
        self._lock = threading.Lock()
        if current not in self._keys:
            raise UnknownKey(current)

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self._current

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys held."""
        return frozenset(self._keys)

    def keys(self) -> tuple[KeyEncryptionKey, ...]:
        """The keys held, the sealing one first: for the file that keeps them."""
        with self._lock:
            return tuple(sorted(self._keys.values(), key=lambda one: one.kek_id != self._current))

    def adopt(self, key: KeyEncryptionKey) -> None:
        """Seals with this key from now on; the others still open."""
        with self._lock:
            self._keys = {**self._keys, key.kek_id: key}
            self._current = key.kek_id

    def forget_others(self) -> None:
        """Keeps the sealing key alone."""
        with self._lock:
            self._keys = {self._current: self._keys[self._current]}

    def seal(self, plaintext: bytes, *, name: str) -> bytes:
        """The value sealed under its name."""
        data_key = secrets.token_bytes(_KEY_BYTES)
        ciphertext = nacl.secret.Aead(data_key).encrypt(plaintext, name.encode())
        return self._wrap(data_key) + bytes(ciphertext)

    def open(self, sealed: bytes, *, name: str) -> bytes:
        """The value; raises `CannotOpen`, or `UnknownKey` naming the key that is missing."""
        data_key = self._unwrap(sealed)
        try:
            return nacl.secret.Aead(data_key).decrypt(sealed[_HEAD + _WRAPPED :], name.encode())
        except (nacl.exceptions.CryptoError, ValueError):
            raise CannotOpen(f"The sealed value {name!r} was changed or moved.") from None

    def rewrap(self, sealed: bytes) -> bytes:
        """The same value wrapped by the key that seals now; raises as `open` does."""
        return self._wrap(self._unwrap(sealed)) + sealed[_HEAD + _WRAPPED :]

    def _wrap(self, data_key: bytes) -> bytes:
        with self._lock:
            key = self._keys[self._current]
        head = _MAGIC + bytes.fromhex(key.kek_id)
        return head + bytes(nacl.secret.Aead(key.raw).encrypt(data_key, head))

    def _unwrap(self, sealed: bytes) -> bytes:
        kek_id = kek_id_of(sealed)
        with self._lock:
            key = self._keys.get(kek_id)
        if key is None:
            raise UnknownKey(kek_id)
        wrapped = sealed[_HEAD : _HEAD + _WRAPPED]
        try:
            return nacl.secret.Aead(key.raw).decrypt(wrapped, sealed[:_HEAD])
        except (nacl.exceptions.CryptoError, ValueError):
            raise CannotOpen("The wrapped data key was changed.") from None


def kek_id_of(sealed: bytes) -> str:
    """The id of the key-encryption key that wrapped the value; raises `CannotOpen`."""
    if len(sealed) < _HEAD + _WRAPPED + _OVERHEAD or not sealed.startswith(_MAGIC):
        raise CannotOpen("That is not a sealed value.")
    return sealed[len(_MAGIC) : _HEAD].hex()
