"""master.key: the key-encryption keys of this engine, one a line, the sealing one first.

Usually one line; two while the master key is being changed. 0600, made once, replaced whole.
"""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Final

from platform_server.sealing import envelope
from runtime_kit import private_files

NAME: Final = "master.key"
MAX_BYTES: Final = 1024
_LINE = re.compile(r"emk_([0-9a-f]{64})")
_FORM: Final = "one or two lines of emk_ and 64 hex digits"


class Unusable(Exception):
    """The master key cannot be used: the message names the file and what to do."""


def read(path: pathlib.Path) -> tuple[envelope.KeyEncryptionKey, ...]:
    """The keys in the file; none when there is no file. Raises `Unusable`."""
    try:
        return parse(private_files.read_private(path, max_bytes=MAX_BYTES))
    except FileNotFoundError:
        return ()
    except private_files.LaxMode as fault:
        raise Unusable(str(fault)) from None
    except (OSError, private_files.FileTooLarge, UnicodeDecodeError) as fault:
        raise Unusable(f"The master key {path} cannot be read: {fault}") from None
    except ValueError:
        raise Unusable(
            f"{path} holds no master key (it is {_FORM}). Restore it from your backup; nothing "
            "was changed."
        ) from None


def parse(content: bytes) -> tuple[envelope.KeyEncryptionKey, ...]:
    """The keys in the content of such a file; raises ValueError when it is none."""
    found = [_LINE.fullmatch(line) for line in content.decode("ascii").split()]
    if not found or not all(found):
        raise ValueError("Not a master key.")
    return tuple(envelope.KeyEncryptionKey(raw=bytes.fromhex(one.group(1))) for one in found if one)


def content_of(keys: Sequence[envelope.KeyEncryptionKey]) -> bytes:
    """What the file of these keys holds."""
    return "".join(f"emk_{key.raw.hex()}\n" for key in keys).encode()


def create(path: pathlib.Path, key: envelope.KeyEncryptionKey) -> bool:
    """Writes a first key; says whether it did (a file that is there is left alone)."""
    return private_files.create_private(path, content_of([key]))


def sweep(path: pathlib.Path) -> None:
    """Removes the copies of keys that an engine killed in the middle of a write left beside it."""
    private_files.sweep(path)


def replace(path: pathlib.Path, keys: Sequence[envelope.KeyEncryptionKey]) -> None:
    """Replaces the keys in one step; raises `Unusable` when the file cannot be written."""
    try:
        private_files.write_private(path, content_of(keys))
    except OSError as fault:
        raise Unusable(f"The master key {path} cannot be replaced: {fault}") from None


def is_replaceable(path: pathlib.Path) -> bool:
    """Whether this process may put another file in its place (a credential of systemd, no)."""
    return os.access(path.parent, os.W_OK) and not os.statvfs(path.parent).f_flag & os.ST_RDONLY
