"""The release key: made once, kept outside the tree, and used to sign lists of hashes.

Ed25519, as PKCS #8 PEM, mode 0600. install.sh carries the public half; a machine trusts the one it
was first installed with. Who has the private half can make every machine that updates run anything.
"""

import base64
import pathlib
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer.build import sources
from runtime_kit import private_files

# Where a checkout keeps a key that was made because none was given.
KEY_FOLDER: Final = ".enlist-release"
KEY_FILE: Final = "release.key"
_MOST_BYTES: Final = 8192


class KeyFileError(Exception):
    """The file is no release key that can be used; the message says why."""


class ReleaseKey:
    """A private release key. Prints as its public half."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"ReleaseKey({self.public_text})"

    @property
    def public_text(self) -> str:
        """The 32 bytes of the public half in base64, as install.sh carries them."""
        raw = self._key.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        return base64.b64encode(raw).decode()

    @property
    def public_pem(self) -> bytes:
        """The public half as a file that openssl reads."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, data: bytes) -> bytes:
        """The signature over exactly these bytes."""
        return self._key.sign(data)

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Whether this key made the signature."""
        try:
            self._key.public_key().verify(signature, data)
        except InvalidSignature:
            return False
        return True


def make(path: pathlib.Path) -> ReleaseKey:
    """Make a key in a new file.

    Raises:
        KeyFileError: there is a file already; a release key is never replaced.
    """
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    if not path.parent.is_dir():
        raise KeyFileError(f"There is no folder {path.parent} for the key.")
    if not private_files.create_private(path, pem):
        raise KeyFileError(f"{path} is there already, and a release key is never replaced.")
    return ReleaseKey(key)


def load(path: pathlib.Path) -> ReleaseKey:
    """Read a key.

    Raises:
        KeyFileError: there is none, others may read it, or it is of another kind.
    """
    try:
        pem = private_files.read_private(path, max_bytes=_MOST_BYTES)
        key = serialization.load_pem_private_key(pem, password=None)
    except FileNotFoundError:
        raise KeyFileError(
            f"There is no release key {path}; make one: scripts/release --new-key {path}"
        ) from None
    except private_files.LaxMode:
        raise KeyFileError(f"Others may read the release key: chmod 600 {path}") from None
    except (private_files.FileTooLarge, OSError, TypeError, ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{path} is no Ed25519 key without a password in PEM form.") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise KeyFileError(f"{path} is a key, but none of the kind Ed25519.")
    return ReleaseKey(key)


def of_the_checkout(root: pathlib.Path) -> tuple[ReleaseKey, pathlib.Path, bool]:
    """The key that a checkout keeps for itself, its file, and whether it was made just now."""
    path = root / KEY_FOLDER / KEY_FILE
    try:
        private_files.ensure_private_folder(path.parent)
    except OSError as error:
        raise sources.SourceError(
            f"There is no room for a release key in {root}: {error}"
        ) from error
    if path.exists():
        return load(path), path, False
    return make(path), path, True
