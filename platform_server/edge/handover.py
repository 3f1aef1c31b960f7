"""What root hands to the units at the edge: the key and the words, out of the Platform's folder.

    python -I -m platform_server.edge.handover --data-dir DIR --to DIR

The folder is an account's own, so nothing in it is trusted: no link is followed at any step, no
pipe is waited for, and only regular files of bounded size that belong to the folder's owner are
read. What they say is judged by its form before it is written where the service manager takes it,
a folder of root's: PEM blocks of a key and its certificates, and options of a closed list.
Exit codes: 0 handed over, 1 refused; then what was handed over before stays.
Not for: whether key and certificate belong together; the edge, which has no rights, finds out.
"""

import argparse
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from runtime_kit import private_files

FOLDER: Final = ("run", "listener")
"""Where in the data directory the Platform leaves both."""
KEY: Final = "tls.pem"
WORDS: Final = "units.words"
SUFFIX: Final = ".words"
MOST_BYTES: Final = 65_536

_BLOCK: Final = re.compile(
    rb"-----BEGIN (?P<label>[A-Z ]{1,24})-----\n"
    rb"(?:[A-Za-z0-9+/=]{1,76}\n){1,400}"
    rb"-----END (?P=label)-----\n"
)
_KEYS: Final = (b"PRIVATE KEY", b"EC PRIVATE KEY")
_CERTIFICATE: Final = b"CERTIFICATE"

_NUMBER: Final = r"[0-9]{1,9}"
_COMMON: Final = {
    "--drain-s": r"[0-9]{1,3}(?:\.[0-9]{1,3})?",
    "--log-level": r"[a-z]{1,10}",
    "--log-format": r"[a-z]{1,10}",
    "--max-sockets": _NUMBER,
}
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "listener": {
        **_COMMON,
        "--max-body-bytes": _NUMBER,
        "--max-in-work": _NUMBER,
        "--trusted-proxy": r"[0-9a-fA-F.:]{2,45}(?:/[0-9]{1,3})?",
    },
    "bundles": _COMMON,
}


class Refused(Exception):
    """Nothing is handed over; the sentence says why."""


def written(words: Mapping[str, Sequence[str]]) -> bytes:
    """The file of words, as the Platform leaves it: a line for each program."""
    return "".join(f"{name} {' '.join(each)}\n" for name, each in words.items()).encode()


def parse_words(data: bytes) -> dict[str, list[str]]:
    """The words of each program; raises `Refused` for any that is not of the closed list."""
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise Refused(f"{WORDS} is not ASCII") from error
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        if name not in OPTIONS or name in found:
            raise Refused(f"{WORDS} has a line for no program, or two for one")
        found[name] = _judged(rest.split(" ") if rest else [], allowed=OPTIONS[name])
    if set(found) != set(OPTIONS):
        raise Refused(f"{WORDS} lacks a line")
    return found


def _judged(words: list[str], *, allowed: Mapping[str, str]) -> list[str]:
    if len(words) % 2:
        raise Refused(f"{WORDS} has an option without its value")
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option not in allowed or re.fullmatch(allowed[option], value) is None:
            raise Refused(f"{WORDS} has an option or a value that is not the edge's")
    return words


def check_key(data: bytes) -> None:
    """Raises `Refused` unless it is one private key and its certificates, in PEM and no more."""
    labels, at = [], 0
    while at < len(data):
        block = _BLOCK.match(data, at)
        if block is None:
            raise Refused(f"{KEY} is not PEM")
        labels.append(block["label"])
        at = block.end()
    certificates = labels.count(_CERTIFICATE)
    if certificates == 0 or len(labels) != certificates + 1 or not set(labels) & set(_KEYS):
        raise Refused(f"{KEY} is not one key and its certificates")


def hand_over(data_dir: Path, *, to: Path) -> None:
    """Copies both; raises `Refused` or, where `to` cannot be written, `OSError`."""
    folder = _open_folder(data_dir, owner=None)
    try:
        owner = os.fstat(folder).st_uid
        for name in FOLDER:
            inner = _open_folder(name, owner=owner, within=folder)
            os.close(folder)
            folder = inner
        key = _read(KEY, owner=owner, within=folder)
        words = parse_words(_read(WORDS, owner=owner, within=folder))
    finally:
        os.close(folder)
    check_key(key)
    for name, each in words.items():
        lines = "".join(f"{word}\n" for word in each)
        private_files.write_private(to / f"{name}{SUFFIX}", lines.encode())
    private_files.write_private(to / KEY, key)


def _open_folder(path: str | Path, *, owner: int | None, within: int | None = None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, dir_fd=within)
    except OSError as error:
        raise Refused(f"{path} is not a folder to be entered: {error.strerror}") from error
    if owner is not None and os.fstat(descriptor).st_uid != owner:
        os.close(descriptor)
        raise Refused(f"{path} is another account's folder")
    return descriptor


def _read(name: str, *, owner: int, within: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=within)
    except OSError as error:
        raise Refused(f"{name} cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_nlink != 1:
            raise Refused(f"{name} is not a plain file of the folder's owner")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Refused(f"{name} is too large")
    return data


def main(arguments: list[str]) -> int:
    """Hand over; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m platform_server.edge.handover")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True, help="a folder of root's")
    given = parser.parse_args(arguments)
    try:
        hand_over(given.data_dir, to=given.to)
    except (Refused, OSError) as error:
        sys.stderr.write(f"Nothing was handed over to the edge: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
