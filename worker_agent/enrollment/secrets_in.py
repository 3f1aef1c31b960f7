"""Where a token is read from: a file, stdin or a prompt; as an argument it works and warns.

What is read is bounded, so that a wrong file name (`/dev/zero`, a disk image) does no harm.
"""

import pathlib
import sys
from collections.abc import Callable
from typing import BinaryIO

from runtime_kit import private_files
from runtime_kit import secret as secret_kit
from worker_agent.settings import failures

MAX_BYTES = 16_384  # four times a join token
STDIN = "-"


def from_argument(
    text: str, *, flag: str, warn: Callable[[str], None], stdin: BinaryIO | None = None
) -> secret_kit.Secret:
    """The token given as an argument, or from stdin for `-`; raises `Misuse`."""
    if text == STDIN:
        return from_stdin(stdin)
    warn(
        f"{flag} stands in the command line, where every account of this machine can read it "
        "(ps). Give it on stdin (-) or in a file instead."
    )
    return secret_kit.Secret(text)


def from_file(name: str, *, flag: str, stdin: BinaryIO | None = None) -> secret_kit.Secret:
    """The token in the file, or from stdin for `-`; raises `Misuse`."""
    if name == STDIN:
        return from_stdin(stdin)
    try:
        content = private_files.read_bounded(pathlib.Path(name), max_bytes=MAX_BYTES)
    except private_files.FileTooLarge as error:
        raise failures.Misuse(f"{flag}: {error} It holds no token.") from error
    except OSError as error:
        raise failures.Misuse(f"{flag}: {name} cannot be read: {error.strerror}.") from error
    return _decoded(content, source=name)


def from_stdin(stdin: BinaryIO | None = None) -> secret_kit.Secret:
    """The token from stdin; raises `Misuse`."""
    content = (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise failures.Misuse(f"stdin holds more than {MAX_BYTES} bytes: that is no token.")
    return _decoded(content, source="stdin")


def _decoded(content: bytes, *, source: str) -> secret_kit.Secret:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise failures.Misuse(f"{source} holds no text, so no token.") from None
    if not text:
        raise failures.Misuse(f"{source} is empty: no token was given.")
    return secret_kit.Secret(text)
